package ml

import "math"

// RoundBFloat16 rounds to the nearest bfloat16, ties to even. A NaN stays a NaN.
func RoundBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40 // the payload's upper half could be zero, which would be an infinity
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// WidenBFloat16 is exact.
func WidenBFloat16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }
