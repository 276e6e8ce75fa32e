package mp3

import "math"

// Synthesis (ISO 11172-3, section 2.4.3.2.2 and figure 3-A.2). In the standard, each 32 subband samples S give 64 values
//
//	V[i] = sum over k of S[k] * cos(pi/64 * (16+i) * (2k+1))
//
// of which all but 32 are the same but for the sign: with y[n] = sum over k of S[k] * cos(pi/64 * n * (2k+1)), V[i] is y[16+i] up to 16,
// where y[32] is 0, -y[48-i] up to 48, and -y[i-48] from there. The history keeps y, the newest first. An output is the sum of
// 16 products of the window with V of this time and of the 15 times before; outputs j and 32-j use the same values.

// synthesisWindow has a row for each j from 1 to 15: the factors of y[16+j] of even age and of y[16-j] of odd age for output j, and then for
// output 32-j. Row 0 has those of output 0, and then the factors of y[0] of odd age for output 16.
func synthesisWindow() (all [16][32]float32) {
	d := func(i int) float32 { // the window of the standard
		v := prototype[min(i, 512-i)]
		if i/64%2 != 0 {
			v = -v
		}
		return float32(v) / 65536
	}
	for i := range 8 {
		for j := range all {
			all[j][i], all[j][8+i] = d(64*i+j), -d(64*i+32+j)
			if j > 0 {
				all[j][16+i], all[j][24+i] = -d(64*i+32-j), -d(64*i+64-j)
			}
		}
		all[0][16+i] = -d(64*i + 48)
	}
	return all
}

// synthesize makes samples of a channel's subband samples: to every step-th place of dst.
func (t *tables) synthesize(ch *channel, dst []float32, step int) {
	for slot := range subbandLines {
		at := subbands * (subbandLines - 1 - slot)
		cosines32((*[32]float32)(ch.history[at:]), (*[32]float32)(ch.sub[subbands*slot:]))
		t.apply((*[512]float32)(ch.history[at:]), dst[subbands*slot*step:], step)
	}
	copy(ch.history[subbands*subbandLines:], ch.history[:15*subbands])
}

// apply applies the window: it makes 32 samples of the history.
func (t *tables) apply(y *[512]float32, dst []float32, step int) {
	dst = dst[:31*step+1]
	w := &t.window[0]
	var first, middle float32
	for i := range 8 {
		first += y[64*i+16]*w[i] + y[64*i+48]*w[8+i]
		middle += y[64*i+32] * w[16+i]
	}
	dst[0], dst[16*step] = first, middle
	for j := 1; j < 16; j++ {
		w := &t.window[j]
		var a, b, c, d float32 // four sums, so that none waits for another
		for i := range 8 {
			even, odd := y[64*i+16+j], y[64*i+48-j]
			a += even * w[i]
			b += odd * w[8+i]
			c += even * w[16+i]
			d += odd * w[24+i]
		}
		dst[j*step], dst[(32-j)*step] = a+b, c+d
	}
}

// Divisors for cosines32 and its parts: 1/(2*cos(pi/(2n) * (2k+1))).
var divisors32, divisors16, divisors8 = halfSecants(32), halfSecants(16), halfSecants(8)

func halfSecants(n int) (d [16]float32) {
	for k := range n / 2 {
		d[k] = float32(0.5 / math.Cos(math.Pi/float64(2*n)*float64(2*k+1)))
	}
	return d
}

// cosines32 gives y[n] = sum over k of s[k] * cos(pi/64 * n * (2k+1)). The sum for even n is one of half the length over the sums of mirrored
// values; that for odd n is one over their differences, divided, where two results are added (B. G. Lee's algorithm).
func cosines32(y, s *[32]float32) {
	var a, b [16]float32
	for k := range a {
		p, q := s[k], s[31-k]
		a[k], b[k] = p+q, (p-q)*divisors32[k]
	}
	cosines16(&a)
	cosines16(&b)
	for n := range 15 {
		y[2*n], y[2*n+1] = a[n], b[n]+b[n+1]
	}
	y[30], y[31] = a[15], b[15]
}

func cosines16(s *[16]float32) {
	var a, b [8]float32
	for k := range a {
		p, q := s[k], s[15-k]
		a[k], b[k] = p+q, (p-q)*divisors16[k]
	}
	cosines8(&a)
	cosines8(&b)
	for n := range 7 {
		s[2*n], s[2*n+1] = a[n], b[n]+b[n+1]
	}
	s[14], s[15] = a[7], b[7]
}

func cosines8(s *[8]float32) {
	a0, a1, a2, a3 := cosines4(s[0]+s[7], s[1]+s[6], s[2]+s[5], s[3]+s[4])
	b0, b1, b2, b3 := cosines4((s[0]-s[7])*divisors8[0], (s[1]-s[6])*divisors8[1], (s[2]-s[5])*divisors8[2], (s[3]-s[4])*divisors8[3])
	s[0], s[2], s[4], s[6] = a0, a1, a2, a3
	s[1], s[3], s[5], s[7] = b0+b1, b1+b2, b2+b3, b3
}

// cosines4 is cosines32 for four values.
func cosines4(s0, s1, s2, s3 float32) (y0, y1, y2, y3 float32) {
	const cos1, cos3 = 0.92387953251128675612818318939679, 0.38268343236508977172845998403040 // of pi/8 and 3*pi/8
	a, b, p, q := s0+s3, s1+s2, s0-s3, s1-s2
	return a + b, cos1*p + cos3*q, (a - b) * (math.Sqrt2 / 2), cos3*p - cos1*q
}
