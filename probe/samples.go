package probe

import "math"

// maxSample bounds samples. Full scale is 1; some programs write floats at the scale of 16-bit integers, which is kept. Beyond that lies
// nothing that was recorded, and sums of squares would leave the range of float32.
const maxSample = 65536

// mix puts the mean of each frame of interleaved samples into dst, cleaned, and returns how many samples were not finite: they count as 0.
func mix(dst []float32, interleaved []float64, channels int) (bad int) {
	scale := 1 / float64(channels)
	for i := range dst {
		sum := 0.0
		for _, v := range interleaved[i*channels : (i+1)*channels] {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				bad++
				continue
			}
			sum += min(max(v, -maxSample), maxSample)
		}
		dst[i] = float32(sum * scale)
	}
	return bad
}

// The samples of companded bytes, within ±1 (ITU-T G.711: A-law has 13 bits, mu-law has 14).
var (
	aLaw  = makeALaw()
	muLaw = makeMuLaw()
)

func makeALaw() (t [256]float32) {
	for i := range t {
		b := uint8(i) ^ 0x55 // every other bit is inverted on the line
		exponent, v := b>>4&7, int(b&15)<<1+1
		if exponent > 0 {
			v = (v + 32) << (exponent - 1)
		}
		if b&0x80 == 0 {
			v = -v
		}
		t[i] = float32(v) / 4096
	}
	return t
}

func makeMuLaw() (t [256]float32) {
	for i := range t {
		b := ^uint8(i)
		v := (int(b&15)<<1+33)<<(b>>4&7) - 33
		if b&0x80 != 0 {
			v = -v
		}
		t[i] = float32(v) / 8192
	}
	return t
}
