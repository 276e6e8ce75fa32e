package vorbis

import (
	"math"
	"math/bits"
	"math/cmplx"
)

// mdct is the inverse transform of blocks of one size: n/2 frequencies X become n samples, of which sample i is the sum of
// X[k] cos(2 pi/n (i + 1/2 + n/4) (k + 1/2)) (section 1.3.2). It is made of a cosine transform of n/2 points, DCT-IV, and that of a Fourier transform
// of n/4 points.
type mdct struct {
	n        int
	turns    []complex64 // before and after the Fourier transform
	twiddles []complex64 // of its largest stage
	reversed []int       // where its inputs go
	work     []complex64
	cosines  []float32
}

func newMDCT(n int) *mdct {
	points := n / 4
	m := &mdct{
		n: n, turns: make([]complex64, points), twiddles: make([]complex64, points/2), reversed: make([]int, points),
		work: make([]complex64, points), cosines: make([]float32, n/2),
	}
	width := bits.Len(uint(points)) - 1
	for i := range points {
		m.turns[i] = complex64(cmplx.Rect(1, -math.Pi*float64(8*i+1)/float64(4*n)))
		m.reversed[i] = int(bits.Reverse(uint(i)) >> (bits.UintSize - width))
	}
	for i := range m.twiddles {
		m.twiddles[i] = complex64(cmplx.Rect(1, -2*math.Pi*float64(i)/float64(points)))
	}
	return m
}

// inverse transforms n/2 frequencies to n samples.
func (m *mdct) inverse(out, frequencies []float32) {
	m.dct4(frequencies)
	quarter := m.n / 4
	// The cosines go on beyond their end, mirrored and with the other sign.
	for i, v := range m.cosines[quarter:] {
		out[i] = v
		out[2*quarter-1-i] = -v
	}
	for i, v := range m.cosines[:quarter] {
		out[3*quarter-1-i] = -v
		out[3*quarter+i] = -v
	}
}

func (m *mdct) dct4(x []float32) {
	last := len(x) - 1
	for i, turn := range m.turns {
		m.work[m.reversed[i]] = complex(x[2*i], x[last-2*i]) * turn
	}
	m.fourier()
	for i, turn := range m.turns {
		v := m.work[i] * turn
		m.cosines[2*i], m.cosines[last-2*i] = real(v), -imag(v)
	}
}

// fourier transforms work in place, which is in the order of reversed bits.
func (m *mdct) fourier() {
	points := len(m.work)
	for half := 1; half < points; half *= 2 {
		stride := points / (2 * half)
		for start := 0; start < points; start += 2 * half {
			a, b := m.work[start:start+half], m.work[start+half:start+2*half]
			for i := range a {
				v := b[i] * m.twiddles[i*stride]
				a[i], b[i] = a[i]+v, a[i]-v
			}
		}
	}
}

// slope is the rising half of the window of a block of n samples (section 4.3.1).
func slope(n int) []float32 {
	w := make([]float32, n/2)
	for i := range w {
		s := math.Sin(math.Pi / float64(n) * (float64(i) + 0.5))
		w[i] = float32(math.Sin(math.Pi / 2 * s * s))
	}
	return w
}
