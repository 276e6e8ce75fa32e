package flac

import "math/bits"

// subframeCoder writes blocks of samples as subframes (RFC 9639, section 9.2). It only holds what it works on, so that a block allocates
// nothing.
type subframeCoder struct {
	shifted       [EncoderBlock]int32 // without wasted bits
	fixed, linear attempt

	windowData [EncoderBlock]float64
	windowed   int // how much of it there is
	weighted   [maxLinearOrder + EncoderBlock]float64
}

// attempt is what a predictor leaves, and how that is coded.
type attempt struct {
	buf      [EncoderBlock]uint32
	residual []uint32 // folded; the part of buf in use
	plan     ricePlan
	bits     uint64 // of the subframe, about
}

// encode writes the samples, which have the given width, in the smallest way it knows.
func (s *subframeCoder) encode(p *packer, x []int32, width uint) {
	wasted, constant := survey(x)
	if constant {
		p.put(0, 8)
		p.signed(x[0], width)
		return
	}
	if wasted > 0 {
		for i, v := range x {
			s.shifted[i] = v >> wasted
		}
		x = s.shifted[:len(x)]
		width -= wasted
	}
	order := s.tryFixed(x, width)
	model := s.tryLinear(x, width)
	switch verbatim := uint64(len(x)) * uint64(width); {
	case model.order > 0 && s.linear.bits < min(s.fixed.bits, verbatim):
		subframeHead(p, 31+uint64(model.order), wasted)
		plain(p, x[:model.order], width)
		model.write(p)
		s.linear.plan.write(p, s.linear.residual, len(x), model.order)
	case s.fixed.bits < verbatim:
		subframeHead(p, 8+uint64(order), wasted)
		plain(p, x[:order], width)
		s.fixed.plan.write(p, s.fixed.residual, len(x), order)
	default:
		subframeHead(p, 1, wasted)
		plain(p, x, width)
	}
}

// tryFixed says which polynomial predictor is best.
func (s *subframeCoder) tryFixed(x []int32, width uint) (order int) {
	order = fixedOrder(x)
	s.fixed.residual = s.fixed.buf[:len(x)-order]
	fixedResidual(s.fixed.residual, x, order)
	s.fixed.planFor(len(x), order, width)
	s.fixed.bits = s.fixed.plan.bits + uint64(order)*uint64(width)
	return order
}

// tryLinear gives the best linear predictor; it may have no order.
func (s *subframeCoder) tryLinear(x []int32, width uint) linearModel {
	m := s.findLinear(x, width)
	if m.order == 0 {
		return m
	}
	s.linear.residual = s.linear.buf[:len(x)-m.order]
	if !m.residual(s.linear.residual, x) {
		return linearModel{}
	}
	s.linear.planFor(len(x), m.order, width)
	s.linear.bits = s.linear.plan.bits + uint64(m.order)*uint64(width+linearPrecision) + 4 + 5
	return m
}

func plain(p *packer, x []int32, width uint) {
	for _, v := range x {
		p.signed(v, width)
	}
}

// write writes the model between the first samples and the residual.
func (m *linearModel) write(p *packer) {
	p.put(linearPrecision-1, 4)
	p.put(uint64(m.shift), 5)
	plain(p, m.weights[:m.order], linearPrecision)
}

// subframeHead writes the type and how many low bits of all samples are zero.
func subframeHead(p *packer, kind uint64, wasted uint) {
	if wasted == 0 {
		p.put(kind<<1, 8)
		return
	}
	p.put(kind<<1|1, 8)
	p.put(1, wasted) // one less zeros, and a one
}

// survey says how many low bits are zero in all samples, and whether all are the same.
func survey(x []int32) (wasted uint, constant bool) {
	all, differ := int32(0), int32(0)
	for _, v := range x {
		all |= v
		differ |= v ^ x[0]
	}
	if differ == 0 {
		return 0, true
	}
	return uint(bits.TrailingZeros32(uint32(all))), false
}

// maxFixedOrder is that of the longest polynomial predictor.
const maxFixedOrder = 4

// fixedOrder picks the polynomial predictor whose residual is smallest: differences of differences, up to four times.
func fixedOrder(x []int32) int {
	if len(x) <= maxFixedOrder {
		return 0
	}
	d0, d1, d2, d3 := x[3], x[3]-x[2], x[3]-2*x[2]+x[1], x[3]-3*x[2]+3*x[1]-x[0]
	var sum [maxFixedOrder + 1]uint64
	for _, v := range x[maxFixedOrder:] {
		e1 := v - d0
		e2 := e1 - d1
		e3 := e2 - d2
		e4 := e3 - d3
		d0, d1, d2, d3 = v, e1, e2, e3
		sum[0] += uint64(magnitude(v))
		sum[1] += uint64(magnitude(e1))
		sum[2] += uint64(magnitude(e2))
		sum[3] += uint64(magnitude(e3))
		sum[4] += uint64(magnitude(e4))
	}
	best := 0
	for order, s := range sum {
		if s < sum[best] {
			best = order
		}
	}
	return best
}

func magnitude(v int32) uint32 { return uint32((v ^ v>>31) - v>>31) }

// fold maps 0, -1, 1, -2, 2 to 0, 1, 2, 3, 4 and so on.
func fold(v int32) uint32 { return uint32(v<<1 ^ v>>31) }

// fixedResidual fills dst with what the polynomial of the given order misses of x behind its first samples, folded. At 24 bits the fourth
// difference has 28.
func fixedResidual(dst []uint32, x []int32, order int) {
	switch order {
	case 0:
		for i := range dst {
			dst[i] = fold(x[i])
		}
	case 1:
		a := x[0]
		for i, v := range x[1:] {
			dst[i] = fold(v - a)
			a = v
		}
	case 2:
		a, b := x[1], x[0]
		for i, v := range x[2:] {
			dst[i] = fold(v - 2*a + b)
			a, b = v, a
		}
	case 3:
		a, b, c := x[2], x[1], x[0]
		for i, v := range x[3:] {
			dst[i] = fold(v - 3*a + 3*b - c)
			a, b, c = v, a, b
		}
	case 4:
		a, b, c, d := x[3], x[2], x[1], x[0]
		for i, v := range x[4:] {
			dst[i] = fold(v - 4*a + 6*b - 4*c + d)
			a, b, c, d = v, a, b, c
		}
	}
}
