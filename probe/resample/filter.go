package resample

import "math"

// The filters are windowed sincs with a Kaiser window (Kaiser and Schafer, "On the use of the I0-sinh window for spectrum analysis", 1980;
// the two formulas below are in Oppenheim and Schafer, "Discrete-Time Signal Processing", section 7.5).
const (
	attenuation = 90.0 // dB in the stop band, 10 more than promised: tables are float32 and sums are too
	passEdge    = 0.9  // the pass band's end, as a part of the lower Nyquist frequency; the stop band begins at that frequency
)

// kaiserBeta is the window's shape for an attenuation of a dB, a > 50.
func kaiserBeta(a float64) float64 { return 0.1102 * (a - 8.7) }

// kaiserHalf is the least half length, in samples, for an attenuation of a dB and a transition band of width cycles per sample.
func kaiserHalf(a, width float64) float64 { return (a - 7.95) / (2.285 * 2 * math.Pi * width) / 2 }

// kaiser is the window at x in [-1, 1], times a constant; it is zero outside. Filters are scaled as a whole afterwards.
func kaiser(x, beta float64) float64 {
	if x < -1 || x > 1 {
		return 0
	}
	return besselI0(beta * math.Sqrt(1-x*x))
}

// besselI0 is the modified Bessel function of the first kind of order 0, by its power series.
func besselI0(x float64) float64 {
	sum, term, q := 1.0, 1.0, x*x/4
	for k := 1.0; term > sum*1e-17; k++ {
		term *= q / (k * k)
		sum += term
	}
	return sum
}

// sinc is sin(pi x) / (pi x).
func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// dot is the inner product of a and b over len(a) values, a multiple of 4. Its order of summation depends on nothing but len(a): that makes
// the output independent of how the input was split.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	for i := 0; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	return (s0 + s2) + (s1 + s3)
}
