package flac

import "math"

// Linear prediction: each sample is foretold as a weighted sum of those before it, with weights that are found anew for each block by the
// autocorrelation method (Makhoul, "Linear prediction: a tutorial review", 1975) and stored in the frame.

const (
	maxLinearOrder  = 8  // the streamable subset allows 12 up to 48 kHz
	linearPrecision = 14 // bits of a stored weight
	maxLinearShift  = 15
)

// linearModel is a predictor: the sum of weights times samples, the newest first, shifted right.
type linearModel struct {
	order   int // 0: there is none
	weights [maxLinearOrder]int32
	shift   uint
}

// window weighs a block so that its edges do not count as steps: a cosine ramp over the first and the last quarter (Tukey). It is kept for the
// next block.
func (s *subframeCoder) window(n int) []float64 {
	if s.windowed == n {
		return s.windowData[:n]
	}
	w := s.windowData[:n]
	ramp := max(n/4, 1)
	for i := range w {
		w[i] = 1
		if edge := min(i, n-1-i); edge < ramp {
			w[i] = 0.5 - 0.5*math.Cos(math.Pi*(float64(edge)+0.5)/float64(ramp))
		}
	}
	s.windowed = n
	return w
}

// autocorrelate gives the sums of products of samples that are up to maxLinearOrder apart.
func (s *subframeCoder) autocorrelate(x []int32) (sum [maxLinearOrder + 1]float64) {
	w := s.window(len(x))
	y := s.weighted[:maxLinearOrder+len(x)] // the first ones stay zero
	for i, v := range x {
		y[maxLinearOrder+i] = float64(v) * w[i]
	}
	var s0, s1, s2, s3, s4, s5, s6, s7, s8 float64
	for i := maxLinearOrder; i < len(y); i++ {
		p := y[i-maxLinearOrder : i+1 : i+1]
		_ = p[8]
		v := p[8]
		s0 += v * v
		s1 += v * p[7]
		s2 += v * p[6]
		s3 += v * p[5]
		s4 += v * p[4]
		s5 += v * p[3]
		s6 += v * p[2]
		s7 += v * p[1]
		s8 += v * p[0]
	}
	return [maxLinearOrder + 1]float64{s0, s1, s2, s3, s4, s5, s6, s7, s8}
}

// findLinear finds a predictor for samples of the given width.
func (s *subframeCoder) findLinear(x []int32, width uint) linearModel {
	if len(x) <= 4*maxLinearOrder {
		return linearModel{}
	}
	r := s.autocorrelate(x)
	var c, best [maxLinearOrder]float64
	bestOrder, fewest := 0, math.Inf(1)
	missed := r[0]                                                   // the energy that is not foretold
	for order := 1; order <= maxLinearOrder && missed > 0; order++ { // Levinson and Durbin's recursion
		k := r[order]
		for i := range order - 1 {
			k -= c[i] * r[order-1-i]
		}
		k /= missed
		for i := range order / 2 {
			j := order - 2 - i
			if i > j {
				break
			}
			a, b := c[i], c[j]
			c[i], c[j] = a-k*b, b-k*a
		}
		c[order-1] = k
		missed *= 1 - k*k
		// A number that is spread like Laplace's distribution takes about this many bits.
		bits := max(0.5*math.Log2(max(missed, 1e-9)/float64(2*len(x))), 0)*float64(len(x)-order) + float64(uint(order)*(width+linearPrecision))
		if bits < fewest {
			bestOrder, fewest, best = order, bits, c
		}
	}
	return quantize(best[:bestOrder])
}

// quantize makes integers of weights. What rounding adds to one is taken from the next. It gives no model where a weight is too large for its
// bits, or is no number.
func quantize(c []float64) linearModel {
	largest := 0.0
	for _, v := range c {
		largest = max(largest, math.Abs(v))
	}
	if !(largest > 0 && largest < 1<<(linearPrecision-1)) {
		return linearModel{}
	}
	_, exponent := math.Frexp(largest)
	m := linearModel{order: len(c), shift: uint(min(linearPrecision-1-exponent, maxLinearShift))}
	const most = 1<<(linearPrecision-1) - 1
	carry := 0.0
	for i, v := range c {
		carry += math.Ldexp(v, int(m.shift))
		q := min(max(math.Round(carry), -most-1), most)
		m.weights[i] = int32(q)
		carry -= q
	}
	return m
}

// residual fills dst with what the model misses of x behind its first samples, folded. It reports false where that has too many bits for the
// format, which only models of odd signals do.
func (m *linearModel) residual(dst []uint32, x []int32) bool {
	var w [maxLinearOrder]int64 // the newest sample's first; zero beyond the order
	for i, v := range m.weights[:m.order] {
		w[i] = int64(v)
	}
	wide := int64(0)
	for i := range dst {
		var v, sum int64
		if at := i + m.order; at >= maxLinearOrder {
			p := x[at-maxLinearOrder : at+1 : at+1]
			_ = p[8]
			v = int64(p[8])
			sum = w[0]*int64(p[7]) + w[1]*int64(p[6]) + w[2]*int64(p[5]) + w[3]*int64(p[4]) +
				w[4]*int64(p[3]) + w[5]*int64(p[2]) + w[6]*int64(p[1]) + w[7]*int64(p[0])
		} else {
			v = int64(x[at])
			for j, c := range w[:at] {
				sum += c * int64(x[at-1-j])
			}
		}
		v -= sum >> m.shift
		wide |= v ^ v>>63
		dst[i] = fold(int32(v))
	}
	return wide < 1<<30
}
