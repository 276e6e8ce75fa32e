package probe

import "math"

// maxSample bounds samples. Full scale is 1; some programs write floats at the scale of 16-bit integers, which is kept. Beyond that lies
// nothing that was recorded, and sums of squares would leave the range of float32.
const maxSample = 65536

// narrow is v as a float32: a finite number stays finite.
func narrow(v float64) float32 {
	if math.IsInf(v, 0) {
		return float32(v)
	}
	return float32(min(max(v, -math.MaxFloat32), math.MaxFloat32)) // NaN stays NaN
}

// mixer makes one channel of several, and clean numbers of any.
type mixer struct {
	channels int
	pick     int // the channel that is taken, from 1; 0 is the mean of all
	bad      int64
}

// mix cleans and mixes frames of interleaved samples into dst. Samples that are not finite count as 0.
func (m *mixer) mix(dst, interleaved []float32) {
	for i, v := range interleaved {
		if v > maxSample || v < -maxSample || v != v {
			interleaved[i] = m.clean(v)
		}
	}
	switch {
	case m.channels == 1:
		copy(dst, interleaved)
	case m.pick > 0:
		for i := range dst {
			dst[i] = interleaved[i*m.channels+m.pick-1]
		}
	default:
		scale := 1 / float64(m.channels)
		for i := range dst {
			sum := 0.0
			for _, v := range interleaved[i*m.channels : (i+1)*m.channels] {
				sum += float64(v)
			}
			dst[i] = float32(sum * scale)
		}
	}
}

func (m *mixer) clean(v float32) float32 {
	switch {
	case v != v || math.IsInf(float64(v), 0):
		m.bad++
		return 0
	case v > 0:
		return maxSample
	}
	return -maxSample
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
