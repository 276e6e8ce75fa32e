package checkpoint

import (
	"encoding/binary"
	"math"
)

// widen converts little-endian elements of type d, all of raw, to dst. The
// callers have refused I64.
func widen(dst []float32, raw []byte, d DType) {
	switch d {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = halfToFloat32(binary.LittleEndian.Uint16(raw[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(raw[2*i:])) << 16)
		}
	case I64: // not a weight
	}
}

// narrow is widen with rounding to bfloat16.
func narrow(dst []uint16, raw []byte, d DType) {
	switch d {
	case F32:
		for i := range dst {
			dst[i] = RoundBFloat16(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])))
		}
	case F16:
		for i := range dst {
			dst[i] = RoundBFloat16(halfToFloat32(binary.LittleEndian.Uint16(raw[2*i:])))
		}
	case BF16:
		for i := range dst {
			dst[i] = binary.LittleEndian.Uint16(raw[2*i:])
		}
	case I64: // not a weight
	}
}

// RoundBFloat16 is the bfloat16 nearest to f, ties to even. A NaN stays a NaN:
// without the quiet bit, one whose payload is all in the low half would become
// an infinity.
func RoundBFloat16(f float32) uint16 {
	b := math.Float32bits(f)
	if f != f {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

// halfToFloat32 widens an IEEE 754 binary16, exactly.
func halfToFloat32(h uint16) float32 {
	sign := uint32(h>>15) << 31
	exp := uint32(h >> 10 & 0x1f)
	frac := uint32(h & 0x3ff)
	switch exp {
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | 0xff<<23 | frac<<13)
	case 0: // zero or subnormal: frac units of 2^-24
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+127-15)<<23 | frac<<13)
}
