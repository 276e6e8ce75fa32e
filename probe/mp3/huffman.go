package mp3

import (
	"math"
	"sync"
)

// tables are computed once: see codebook for what they are computed from.
type tables struct {
	pairs  [32]pairTable
	quads  [2][1 << quadBits]uint8 // four values, one bit each, and above them the word's length
	powers [8191 + 16]float32      // x^(4/3)
	gains  [gainMost - gainLeast + 1]float32
	window [16][32]float32              // see synthesize
	blocks [4][2 * subbandLines]float32 // see blockWindows
}

// theTables computes the tables the first time.
var theTables = sync.OnceValue(func() *tables {
	t := new(tables)
	for i := range t.pairs {
		book, ok := codebooks[i]
		switch {
		case i >= 24:
			book, ok = codebooks[24], true
		case i >= 16:
			book, ok = codebooks[16], true
		}
		if ok {
			t.pairs[i] = makePairTable(book)
		}
	}
	for i, book := range quadbooks {
		t.quads[i] = makeQuadTable(book)
	}
	for i := range t.powers {
		t.powers[i] = float32(float64(i) * math.Cbrt(float64(i)))
	}
	for i := range t.gains {
		t.gains[i] = float32(math.Exp2(float64(i+gainLeast) / 4))
	}
	t.window = synthesisWindow()
	t.blocks = blockWindows()
	return t
})

const (
	pairBits = 8 // of a code word are looked up at once, and then the rest
	quadBits = 6
)

// pairTable finds a pair by the bits that follow. An entry has the pair in bits 0 to 7, the first value above the second, and how many bits
// its word has (beyond pairBits in the second lookup) in bits 8 to 12. In the first lookup, an entry of a longer word has linked set, the
// number of bits of the second lookup in bits 8 to 12, and where that starts from bit 13 on.
type pairTable []uint32

const linked = 1 << 31

// words goes through a codebook: each word is given left-aligned in 32 bits.
func (b codebook) words(digits int, yield func(word uint32, length, value int)) {
	word := uint32(0)
	for i := range b.lengths {
		length, value := digit(b.lengths[i]), 0
		for _, d := range []byte(b.values[digits*i : digits*(i+1)]) {
			value = value<<4 | digit(d)
		}
		yield(word, length, value)
		word += 1 << (32 - length)
	}
}

func digit(c byte) int {
	if c <= '9' {
		return int(c - '0')
	}
	return int(c-'a') + 10
}

func makePairTable(b codebook) pairTable {
	var rest [1 << pairBits]int // the longest rest of a word, by its first bits
	b.words(2, func(word uint32, length, _ int) {
		first := word >> (32 - pairBits)
		rest[first] = max(rest[first], length-pairBits)
	})
	size := 1 << pairBits
	for _, bits := range rest {
		if bits > 0 {
			size += 1 << bits
		}
	}
	t, next := make(pairTable, size), 1<<pairBits
	for i, bits := range rest {
		if bits > 0 {
			t[i] = linked | uint32(next)<<13 | uint32(bits)<<8
			next += 1 << bits
		}
	}
	b.words(2, func(word uint32, length, value int) {
		first := word >> (32 - pairBits)
		if length <= pairBits {
			for i := range uint32(1) << (pairBits - length) {
				t[first+i] = uint32(length)<<8 | uint32(value)
			}
			return
		}
		bits := int(t[first] >> 8 & 31)
		at := t[first]&^linked>>13 + word<<pairBits>>(32-bits)
		for i := range uint32(1) << (bits - (length - pairBits)) {
			t[at+i] = uint32(length-pairBits)<<8 | uint32(value)
		}
	})
	return t
}

func makeQuadTable(b codebook) (t [1 << quadBits]uint8) {
	b.words(1, func(word uint32, length, value int) {
		for i := range uint32(1) << (quadBits - length) {
			t[word>>(32-quadBits)+i] = uint8(length<<4 | value)
		}
	})
	return t
}

// spectrum reads the Huffman codes of a granule up to bit stop, as powers of the values: they still lack the gains. It sets how many lines are in
// use (ISO 11172-3, section 2.4.2.7).
func (t *tables) spectrum(lines *[granuleLines]float32, info *granuleInfo, r *bitReader, stop int) error {
	at := 0
	for i, table := range info.tables {
		end := info.big
		if i < len(info.regions) {
			end = min(end, info.regions[i])
		}
		switch {
		case end <= at:
			continue
		case table == 0:
			clear(lines[at:end])
		case t.pairs[table] == nil:
			return damaged("it uses a code that does not exist")
		default:
			if !t.readPairs(lines[at:end], t.pairs[table], uint(extraBits[table]), r, stop) {
				return damaged("its lines need more data than it says")
			}
		}
		at = end
	}
	if r.at > stop {
		return damaged("its lines need more data than it says")
	}
	at = t.readQuads(lines, at, &t.quads[info.quads], r, stop)
	clear(lines[at:])
	info.lines = at
	return nil
}

// readPairs fills lines, whose number is even. A load has the bits of a pair, at most 19 + 2*(13+1). It gives up beyond bit stop.
func (t *tables) readPairs(lines []float32, table pairTable, extra uint, r *bitReader, stop int) bool {
	first := (*[1 << pairBits]uint32)(table)
	for ; len(lines) >= 2; lines = lines[2:] {
		if r.at >= stop {
			return false
		}
		v := r.peek()
		e := first[v>>(64-pairBits)]
		if e&linked != 0 {
			v <<= pairBits
			r.at += pairBits
			e = table[uint64(e&^linked>>13)+v>>(64-e>>8&31)]
		}
		n := e >> 8 & 31
		v <<= n
		r.at += int(n)
		lines[0], lines[1] = 0, 0
		x, y := uint64(e>>4&15), uint64(e&15)
		if x != 0 {
			if x == 15 {
				x += v >> (64 - extra)
				v <<= extra
				r.at += int(extra)
			}
			lines[0] = signed(t.powers[x], v)
			v <<= 1
			r.at++
		}
		if y != 0 {
			if y == 15 {
				y += v >> (64 - extra)
				v <<= extra
				r.at += int(extra)
			}
			lines[1] = signed(t.powers[y], v)
			r.at++
		}
	}
	return true
}

// signed is x, or -x if the top bit of v is set.
func signed(x float32, v uint64) float32 {
	return math.Float32frombits(math.Float32bits(x) | uint32(v>>63)<<31)
}

// readQuads reads quadruples from line at on up to bit stop, and returns the line behind them. One that goes beyond stop is no part of the
// granule: some encoders count too few bits.
func (t *tables) readQuads(lines *[granuleLines]float32, at int, table *[1 << quadBits]uint8, r *bitReader, stop int) int {
	for at <= granuleLines-4 && r.at < stop {
		v := r.peek()
		e := table[v>>(64-quadBits)]
		v <<= e >> 4
		r.at += int(e >> 4)
		quad := lines[at : at+4 : at+4]
		for i := range quad {
			quad[i] = 0
			if e&(8>>i) != 0 {
				quad[i] = signed(1, v)
				v <<= 1
				r.at++
			}
		}
		if r.at > stop {
			break
		}
		at += 4
	}
	return at
}

// Gains are powers of two in steps of a quarter: from the least, with all factors at their largest, to the most.
const (
	gainOffset = 210 // of global_gain
	gainLeast  = -gainOffset - 8*7 - 4*(15+3)
	gainMost   = 255 - gainOffset
)

// requantize applies the gains of bands (ISO 11172-3, section 2.4.3.4.7.1).
func (t *tables) requantize(lines *[granuleLines]float32, info *granuleInfo, f *scalefactors) {
	step := 2
	if info.coarse {
		step = 4
	}
	at := 0
	for band, width := range info.layout.widths {
		if at >= info.lines {
			return
		}
		exponent := info.gain - gainOffset
		factor := int(f.values[band])
		if band >= info.layout.long {
			exponent -= 8 * info.subblockGain[(band-info.layout.long)%3]
		} else if info.preemphasis {
			factor += int(preemphasis[band])
		}
		gain := t.gains[exponent-step*factor-gainLeast]
		part := lines[at : at+int(width)]
		for i := range part {
			part[i] *= gain
		}
		at += int(width)
	}
}
