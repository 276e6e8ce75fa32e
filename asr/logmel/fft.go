package logmel

import "math"

// half is the length of the complex transform inside: the even samples are the
// real parts and the odd ones the imaginary parts.
const half = NFFT / 2

// fftTables are the factors of a real FFT of NFFT points.
type fftTables struct {
	turn [half]complex128     // exp(-2πi k/half), of the complex transform
	odd  [half + 1]complex128 // exp(-2πi k/NFFT), of the odd samples
}

// fftScratch holds the complex transform, which goes back and forth.
type fftScratch struct{ a, b [half]complex128 }

func newFFTTables() (t fftTables) {
	for k := range t.turn {
		t.turn[k] = unit(k, half)
	}
	for k := range t.odd {
		t.odd[k] = unit(k, NFFT)
	}
	return t
}

// unit is exp(-2πi k/n).
func unit(k, n int) complex128 {
	sin, cos := math.Sincos(-2 * math.Pi * float64(k) / float64(n))
	return complex(cos, sin)
}

// power sets out[b] to |X[b]|², b = 0 … NFFT/2, of the discrete Fourier
// transform X of in, without scaling.
func (t *fftTables) power(in *[NFFT]float64, s *fftScratch, out *[half + 1]float64) {
	for n := range s.a {
		s.a[n] = complex(in[2*n], in[2*n+1])
	}
	z := t.transform(s)
	// With E and O the transforms of the even and of the odd samples, Z = E + iO,
	// so Z[k] and the conjugate of Z[-k] give both, and
	// X[k] = E[k] + exp(-2πi k/NFFT)·O[k].
	for k := range out {
		p, q := z[k%half], z[(half-k)%half]
		even := complex((real(p)+real(q))/2, (imag(p)-imag(q))/2)
		odd := complex((imag(p)+imag(q))/2, (real(q)-real(p))/2)
		x := even + t.odd[k]*odd
		out[k] = real(x)*real(x) + imag(x)*imag(x)
	}
}

// transform computes the DFT of s.a: Stockham's form of radix 4, which puts the
// results in order as it goes (C. Van Loan, Computational Frameworks for the
// FFT, section 1.7). half is 4^4, so four passes do it, and the result is in
// s.a again.
func (t *fftTables) transform(s *fftScratch) *[half]complex128 {
	x, y := &s.a, &s.b
	for n, stride := half, 1; n > 1; n, stride = n/4, stride*4 {
		quarter := n / 4
		for p := range quarter {
			w1, w2, w3 := t.turn[p*stride], t.turn[2*p*stride], t.turn[3*p*stride]
			for q := range stride {
				from, to := q+stride*p, q+stride*4*p
				a, b := x[from], x[from+stride*quarter]
				c, d := x[from+2*stride*quarter], x[from+3*stride*quarter]
				sum, diff := a+c, a-c
				sum2, diff2 := b+d, b-d
				turned := complex(-imag(diff2), real(diff2)) // i·(b-d)
				y[to] = sum + sum2
				y[to+stride] = w1 * (diff - turned)
				y[to+2*stride] = w2 * (sum - sum2)
				y[to+3*stride] = w3 * (diff + turned)
			}
		}
		x, y = y, x
	}
	return x
}
