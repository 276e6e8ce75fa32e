package mp3

import "math"

// hybrid makes subband samples of a granule's lines (ISO 11172-3, section 2.4.3.4.10): it sorts the lines of short blocks, reduces aliases, transforms
// subband after subband, and adds what overlaps from the granule before.
func (t *tables) hybrid(ch *channel, info *granuleInfo) {
	lines := info.lines
	if info.layout.kind != longBlocks {
		lines = sortShort(&ch.lines, info.layout, lines)
	}
	active := reduceAliases(&ch.lines, info, lines)
	clear(ch.sub[:])
	var block [2 * subbandLines]float32
	for sb := range active {
		kind := info.block
		if info.mixed && sb < 2 {
			kind = normalBlock
		}
		in := (*[subbandLines]float32)(ch.lines[subbandLines*sb:])
		if kind == shortBlock {
			t.shortBlocks(&block, in)
		} else {
			longBlock(&block, in, &t.blocks[kind])
		}
		overlap := (*[subbandLines]float32)(ch.overlap[subbandLines*sb:])
		for i := range overlap {
			block[i] += overlap[i]
		}
		copy(overlap[:], block[subbandLines:])
		ch.place(sb, (*[subbandLines]float32)(block[:]))
	}
	for sb := active; sb < ch.fading; sb++ {
		overlap := (*[subbandLines]float32)(ch.overlap[subbandLines*sb:])
		ch.place(sb, overlap)
		clear(overlap[:])
	}
	ch.fading = active
}

// place puts the samples of a subband in their places. In every other subband frequencies run backwards, which negating every other sample
// undoes.
func (ch *channel) place(sb int, samples *[subbandLines]float32) {
	sign := float32(1 - 2*(sb&1))
	column := ch.sub[sb:]
	for i := 0; i < subbandLines; i += 2 {
		column[subbands*i] = samples[i]
		column[subbands*(i+1)] = sign * samples[i+1]
	}
}

// sortShort puts the lines of the three windows of short blocks next to each other, and returns how many lines are in use then.
func sortShort(lines *[granuleLines]float32, l *layout, used int) int {
	at := 0
	for _, w := range l.widths[:l.long] {
		at += int(w)
	}
	var sorted [granuleLines]float32
	from := at
	for band := l.long; band < len(l.widths) && at < used; band += 3 {
		w := int(l.widths[band])
		src, dst := lines[at:at+3*w], sorted[at:at+3*w]
		for i := range w {
			dst[3*i], dst[3*i+1], dst[3*i+2] = src[i], src[i+w], src[i+2*w]
		}
		at += 3 * w
	}
	if at > from {
		copy(lines[from:at], sorted[from:at])
	}
	return max(at, used)
}

// The coefficients of alias reduction (table 3-B.9), of the line before a boundary and the one behind it.
var aliasKeep, aliasLeak = func() (keep, leak [8]float32) {
	for i, c := range [8]float64{-0.6, -0.535, -0.33, -0.185, -0.095, -0.041, -0.0142, -0.0037} {
		keep[i], leak[i] = float32(1/math.Sqrt(1+c*c)), float32(c/math.Sqrt(1+c*c))
	}
	return
}()

// reduceAliases works across the boundaries between subbands with long blocks. It returns how many subbands are not silent.
func reduceAliases(lines *[granuleLines]float32, info *granuleInfo, used int) (active int) {
	active = (used + subbandLines - 1) / subbandLines
	boundaries := subbands - 1
	if info.block == shortBlock {
		boundaries = 0
		if info.mixed {
			boundaries = 1
		}
	}
	for sb := 1; sb <= boundaries && subbandLines*sb-len(aliasKeep) < used; sb++ {
		across := (*[16]float32)(lines[subbandLines*sb-8:])
		for i := range 8 {
			a, b := across[7-i], across[8+i]
			across[7-i] = a*aliasKeep[i] - b*aliasLeak[i]
			across[8+i] = b*aliasKeep[i] + a*aliasLeak[i]
		}
		active = max(active, sb+1)
	}
	return active
}

// The inverse MDCT of n lines X has the 2n outputs (section 2.4.3.4.10.2)
//
//	x[i] = sum over k of X[k] * cos(pi/(4n) * (2i+1+n) * (2k+1))
//
// With t[m] = sum over k of X[k] * cos(pi/(4n) * (2m+1) * (2k+1)), m = 0 to n-1, it is x[i] = t[n/2+i] for the first quarter of the outputs,
// -t[3n/2-1-i] for the middle ones, and -t[i-3n/2] for the last quarter. Multiplying t by 2*cos(pi/(4n) * (2m+1)) turns it into
//
//	s[m] = sum over k of (X[k]+X[k-1]) * cos(pi/(2n) * (2m+1) * k)
//
// which splits into even and odd k: with odd ones the same step gives a sum of half the length again. blockWindows has the windows with signs
// and divisors folded in, so that the output is s times them.
func blockWindows() (all [4][2 * subbandLines]float32) {
	const n = subbandLines
	long := func(i int) float64 { return math.Sin(math.Pi / 36 * (float64(i) + 0.5)) }
	short := func(i int) float64 { return math.Sin(math.Pi / 12 * (float64(i) + 0.5)) }
	for i := range 2 * n {
		start, stop := 0.0, 0.0
		switch {
		case i < 18:
			start = long(i)
		case i < 24:
			start = 1
		case i < 30:
			start = short(i - 18)
		}
		switch {
		case i >= 18:
			stop = long(i)
		case i >= 12:
			stop = 1
		case i >= 6:
			stop = short(i - 6)
		}
		fold := folded(n, i)
		all[normalBlock][i] = float32(long(i) * fold)
		all[startBlock][i], all[stopBlock][i] = float32(start*fold), float32(stop*fold)
	}
	for i := range 12 {
		all[shortBlock][i] = float32(short(i) * folded(6, i))
	}
	return all
}

// term is the m for output i of n lines.
func term(n, i int) (m int, negative bool) {
	switch {
	case i < n/2:
		return n/2 + i, false
	case i < 3*n/2:
		return 3*n/2 - 1 - i, true
	}
	return i - 3*n/2, true
}

// folded is the sign and the divisor for output i of n lines.
func folded(n, i int) float64 {
	m, negative := term(n, i)
	f := 0.5 / math.Cos(math.Pi/float64(4*n)*float64(2*m+1))
	if negative {
		return -f
	}
	return f
}

// The divisors of the odd terms.
var oddDivisors9, oddDivisors3 = func() (nine [9]float32, three [3]float32) {
	for m := range nine {
		nine[m] = float32(0.5 / math.Cos(math.Pi/36*float64(2*m+1)))
	}
	for m := range three {
		three[m] = float32(0.5 / math.Cos(math.Pi/12*float64(2*m+1)))
	}
	return
}()

// longBlock transforms 18 lines and applies the window.
func longBlock(out *[2 * subbandLines]float32, x *[subbandLines]float32, window *[2 * subbandLines]float32) {
	// Pairs of lines are added, once for all and once more for the odd ones.
	var even, odd [9]float32
	even[0], odd[0] = x[0], x[1]+x[0]
	last := odd[0]
	for i := 1; i < 9; i++ {
		even[i] = x[2*i] + x[2*i-1]
		y := x[2*i+1] + x[2*i]
		odd[i] = y + last
		last = y
	}
	cosines9(&even)
	cosines9(&odd)
	var s [subbandLines]float32
	for m := range even {
		o := odd[m] * oddDivisors9[m]
		s[m], s[17-m] = even[m]+o, even[m]-o
	}
	for i := range 9 {
		a, b := s[9+i], s[8-i]
		out[i] = a * window[i]
		out[17-i] = a * window[17-i]
		out[18+i] = b * window[18+i]
		out[35-i] = b * window[35-i]
	}
}

// cosines9 replaces y by the sums over k of y[k] * cos(pi/18 * (2m+1) * k).
func cosines9(y *[9]float32) {
	const ( // cosines of degrees
		c10, c20, c30, c40 = 0.98480775301220805936674302458952, 0.93969262078590838405410927732473, 0.86602540378443864676372317075294, 0.76604444311897803520239265055542
		c50, c70, c80      = 0.64278760968653932632264340990726, 0.34202014332566873304409961468226, 0.17364817766693034885171662676931
	)
	y0, y1, y2, y3, y4, y5, y6, y7, y8 := y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7], y[8]
	a, b := y0+0.5*y6, y0-y6
	e0 := a + c20*y2 + c40*y4 + c80*y8
	e1 := b + 0.5*(y2-y4-y8)
	e2 := a - c80*y2 - c20*y4 + c40*y8
	e3 := a - c40*y2 + c80*y4 - c20*y8
	e4 := b - y2 + y4 + y8
	c := c30 * y3
	o0 := c + c10*y1 + c50*y5 + c70*y7
	o1 := c30 * (y1 - y5 - y7)
	o2 := c50*y1 - c70*y5 + c10*y7 - c
	o3 := c70*y1 + c10*y5 - c50*y7 - c
	y[0], y[8] = e0+o0, e0-o0
	y[1], y[7] = e1+o1, e1-o1
	y[2], y[6] = e2+o2, e2-o2
	y[3], y[5] = e3+o3, e3-o3
	y[4] = e4
}

// shortBlocks transforms three times six lines, of the three windows in turn, and adds them up where they stand.
func (t *tables) shortBlocks(out *[2 * subbandLines]float32, x *[subbandLines]float32) {
	clear(out[:])
	window := &t.blocks[shortBlock]
	for w := range 3 {
		x0, x1, x2, x3, x4, x5 := x[w], x[w+3], x[w+6], x[w+9], x[w+12], x[w+15]
		y1, y3, y5 := x1+x0, x3+x2, x5+x4
		e0, e1, e2 := cosines3(x0, x2+x1, x4+x3)
		o0, o1, o2 := cosines3(y1, y3+y1, y5+y3)
		o0, o1, o2 = o0*oddDivisors3[0], o1*oddDivisors3[1], o2*oddDivisors3[2]
		s := [6]float32{e0 + o0, e1 + o1, e2 + o2, e2 - o2, e1 - o1, e0 - o0}
		part := (*[12]float32)(out[6+6*w:])
		for i := range 3 {
			a, b := s[3+i], s[2-i]
			part[i] += a * window[i]
			part[5-i] += a * window[5-i]
			part[6+i] += b * window[6+i]
			part[11-i] += b * window[11-i]
		}
	}
}

// cosines3 gives the sums over k of y[k] * cos(pi/6 * (2m+1) * k).
func cosines3(y0, y1, y2 float32) (a, b, c float32) {
	even, odd := y0+0.5*y2, y1*0.86602540378443864676372317075294
	return even + odd, y0 - y2, even - odd
}
