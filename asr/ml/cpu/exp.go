package cpu

import "math"

// exp is e^x with a relative error below 2e-7, several times faster than math.Exp (both bounds by TestExp's inputs): x = n ln 2 + r with
// |r| <= ln 2 / 2, a polynomial for e^r, and n added to the exponent. It is 0 below -87, +Inf above 88.7, and NaN stays NaN.
func exp(x float32) float32 {
	const (
		log2e  = 1.44269504088896341
		ln2Hi  = 0.693359375 // exact products with |n| < 2^9
		ln2Lo  = -2.12194440054690583e-4
		lowest = -87.0
		most   = 88.7228
	)
	if x < lowest {
		return 0
	}
	if x > most {
		return float32(math.Inf(1))
	}
	if x != x {
		return x
	}
	// Adding and subtracting 1.5*2^23 rounds to the nearest integer.
	const shifter = 3 << 22
	n := float32(x*log2e+shifter) - shifter
	r := x - n*ln2Hi
	r -= n * ln2Lo
	p := float32(1.0 / 5040)
	p = p*r + 1.0/720
	p = p*r + 1.0/120
	p = p*r + 1.0/24
	p = p*r + 1.0/6
	p = p*r + 0.5
	p = p*r*r + r + 1
	// Two factors, for n = 128.
	k := int32(n)
	h := k / 2
	return p * math.Float32frombits(uint32(h+127)<<23) * math.Float32frombits(uint32(k-h+127)<<23)
}

func sigmoid(x float32) float32 { return 1 / (1 + exp(-x)) }
