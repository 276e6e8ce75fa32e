package flac

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// bitWriter writes bits, most significant first.
type bitWriter struct {
	b []byte
	n uint // bits in the last byte
}

func (w *bitWriter) write(v uint64, n uint) {
	for i := n; i > 0; i-- {
		if w.n%8 == 0 {
			w.b = append(w.b, 0)
		}
		w.b[len(w.b)-1] |= byte(v>>(i-1)&1) << (7 - w.n%8)
		w.n++
	}
}

func (w *bitWriter) signed(v int64, n uint) { w.write(uint64(v), n) }

func (w *bitWriter) unary(zeros uint64) {
	for range zeros {
		w.write(0, 1)
	}
	w.write(1, 1)
}

// slowCRC computes a checksum bit by bit.
func slowCRC(b []byte, width int, polynomial uint32) uint32 {
	var c uint32
	for _, v := range b {
		for bit := 7; bit >= 0; bit-- {
			out := c>>(width-1)&1 ^ uint32(v>>bit&1)
			c = c << 1 & (1<<width - 1)
			if out != 0 {
				c ^= polynomial
			}
		}
	}
	return c
}

// frameWriter writes frames with all that the format has, chosen at random.
type frameWriter struct {
	rand *rand.Rand
	info StreamInfo
}

// frame is a frame of random samples, and these samples.
func (f *frameWriter) frame(block int) ([]byte, [][]int64) {
	stereo := Independent
	if f.info.Channels == 2 {
		stereo = Stereo(f.rand.IntN(4))
	}
	samples := make([][]int64, f.info.Channels)
	for c := range samples {
		samples[c] = f.signal(block, f.info.Bits)
	}
	w := &bitWriter{b: f.header(block, stereo)}
	for c, x := range f.split(stereo, samples) {
		width := uint(f.info.Bits)
		if stereo == SideRight && c == 0 || (stereo == LeftSide || stereo == MidSide) && c == 1 {
			width++
		}
		f.subframe(w, x, width)
	}
	w.n = uint(len(w.b)) * 8
	return binary.BigEndian.AppendUint16(w.b, uint16(slowCRC(w.b, 16, 0x8005))), samples
}

func (f *frameWriter) header(block int, stereo Stereo) []byte {
	channels := f.info.Channels - 1
	if stereo != Independent {
		channels = 7 + int(stereo)
	}
	h := []byte{0xFF, 0xF8 | byte(f.rand.IntN(2)), 7 << 4, byte(channels << 4)} // rate and width of STREAMINFO
	h = append(h, codeNumber(f.rand.Uint64N(1<<36)>>f.rand.IntN(36))...)
	h = binary.BigEndian.AppendUint16(h, uint16(block-1))
	return append(h, byte(slowCRC(h, 8, 0x07)))
}

// codeNumber writes a number in the manner of UTF-8.
func codeNumber(v uint64) []byte {
	if v < 0x80 {
		return []byte{byte(v)}
	}
	n := max((bits.Len64(v)+3)/5, 2)
	b := make([]byte, n)
	for i := n - 1; i > 0; i-- {
		b[i] = 0x80 | byte(v&0x3F)
		v >>= 6
	}
	b[0] = byte(0xFF<<(8-n)) | byte(v)
	return b
}

// signal is a random walk within the width, or noise, or a constant, with some low bits zero now and then.
func (f *frameWriter) signal(n, width int) []int64 {
	most := int64(1)<<(width-1) - 1
	x := make([]int64, n)
	kind, v, zeros := f.rand.IntN(4), f.rand.Int64N(2*most+1)-most, f.rand.IntN(2)*f.rand.IntN(width)
	for i := range x {
		switch kind {
		case 0:
			v = min(max(v+f.rand.Int64N(201)-100, -most-1), most)
		case 1:
			v = f.rand.Int64N(2*most+2) - most - 1
		}
		x[i] = v >> zeros << zeros
	}
	return x
}

// split makes mid and side and so on.
func (f *frameWriter) split(s Stereo, x [][]int64) [][]int64 {
	if s == Independent {
		return x
	}
	out := [][]int64{make([]int64, len(x[0])), make([]int64, len(x[0]))}
	for i := range x[0] {
		l, r := x[0][i], x[1][i]
		switch s {
		case LeftSide:
			out[0][i], out[1][i] = l, l-r
		case SideRight:
			out[0][i], out[1][i] = l-r, r
		default:
			out[0][i], out[1][i] = (l+r)>>1, l-r
		}
	}
	return out
}

// predictor is a way to code a subframe.
type predictor struct {
	code             uint64 // of the type
	precision, shift uint
	c                []int64 // the oldest sample's first
	residual         []int64
}

// choose picks a predictor at random, but verbatim where its residual would not fit into 32 bits.
func (f *frameWriter) choose(x []int64) predictor {
	p := predictor{code: 1}
	switch f.rand.IntN(4) {
	case 0:
		if !slices.ContainsFunc(x, func(v int64) bool { return v != x[0] }) {
			p.code = 0
		}
		return p
	case 1:
		return p
	case 2:
		order := f.rand.IntN(min(4, len(x)) + 1)
		p.code, p.c = uint64(8+order), fixedCoefficients[order]
	case 3:
		p.c = make([]int64, 1+f.rand.IntN(min(32, len(x))))
		p.code, p.precision, p.shift = uint64(31+len(p.c)), uint(1+f.rand.IntN(15)), uint(f.rand.IntN(16))
		for i := range p.c {
			if f.rand.IntN(4) == 0 { // or else few residuals fit
				p.c[i] = f.rand.Int64N(1<<p.precision) - 1<<(p.precision-1)
			}
		}
	}
	for i := len(p.c); i < len(x); i++ {
		sum := int64(0)
		for j, v := range p.c {
			sum += v * x[i-len(p.c)+j]
		}
		r := x[i] - sum>>p.shift
		if r >= 1<<30 || r <= -1<<30 {
			return predictor{code: 1}
		}
		p.residual = append(p.residual, r)
	}
	return p
}

func (f *frameWriter) subframe(w *bitWriter, x []int64, width uint) {
	all := uint64(0)
	for _, v := range x {
		all |= uint64(v)
	}
	wasted := uint(0)
	if all != 0 {
		wasted = min(uint(bits.TrailingZeros64(all)), width-1)
	}
	shifted := make([]int64, len(x))
	for i, v := range x {
		shifted[i] = v >> wasted
	}
	p := f.choose(shifted)
	w.write(p.code, 7)
	w.write(uint64(min(wasted, 1)), 1)
	if wasted > 0 {
		w.unary(uint64(wasted - 1))
	}
	plain := len(x) // samples that stand as they are
	switch {
	case p.code == 0:
		plain = 1
	case p.code > 1:
		plain = len(p.c)
	}
	for _, v := range shifted[:plain] {
		w.signed(v, width-wasted)
	}
	if p.code >= 32 {
		w.write(uint64(p.precision-1), 4)
		w.write(uint64(p.shift), 5)
		for _, c := range slices.Backward(p.c) {
			w.signed(c, p.precision)
		}
	}
	if p.code > 1 {
		f.residual(w, p.residual, len(x), len(p.c))
	}
}

func (f *frameWriter) residual(w *bitWriter, residual []int64, block, order int) {
	method := uint(f.rand.IntN(2))
	w.write(uint64(method), 2)
	part := f.rand.IntN(5)
	for part > 0 && (block%(1<<part) != 0 || block>>part < order) {
		part--
	}
	w.write(uint64(part), 4)
	for p := range 1 << part {
		n := block >> part
		if p == 0 {
			n -= order
		}
		f.partition(w, residual[:n], 4+method)
		residual = residual[n:]
	}
}

func (f *frameWriter) partition(w *bitWriter, x []int64, parameterBits uint) {
	widest, zero := 0, true
	for _, v := range x {
		widest = max(widest, bits.Len64(uint64(v^v>>63))+1)
		zero = zero && v == 0
	}
	k := max(widest-f.rand.IntN(4), 0)
	if k > 1<<parameterBits-2 || f.rand.IntN(4) == 0 && widest < 32 {
		w.write(1<<parameterBits-1, parameterBits)
		if zero {
			widest = 0
		}
		w.write(uint64(widest), 5)
		for _, v := range x {
			w.signed(v, uint(widest))
		}
		return
	}
	w.write(uint64(k), parameterBits)
	for _, v := range x {
		folded := uint64(v<<1) ^ uint64(v>>63)
		w.unary(folded >> k)
		w.write(folded, uint(k))
	}
}
