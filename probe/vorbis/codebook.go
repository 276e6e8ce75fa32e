package vorbis

import "math"

// codebook is a prefix code whose entries stand for numbers or for vectors (section 3).
type codebook struct {
	dimensions int
	entries    int
	vectors    bool // entries have vectors

	// What decoding needs, and only setupParser.build makes.
	fast   []int32   // by the next 8 bits: entry<<4 | its bits, or ^(the node that they lead to)
	nodes  []int32   // pairs, by the next bit: a node, or ^entry
	values []float32 // the vectors, one after the other
}

const (
	fastBits    = 8
	maxCodeBits = 32
)

// scalar reads an entry's number. It is negative at the end of the packet, as it is for a codebook without entries.
func (c *codebook) scalar(r *bitReader) int {
	if len(c.nodes) == 0 {
		r.ended = true
		return -1
	}
	w := r.window()
	v := c.fast[w&(1<<fastBits-1)]
	if v >= 0 {
		if !r.skip(int(v & 15)) {
			return -1
		}
		return int(v >> 4)
	}
	node, n := ^v, fastBits
	for w >>= fastBits; ; w >>= 1 {
		n++
		if node = c.nodes[2*node+int32(w&1)]; node < 0 {
			break
		}
	}
	if !r.skip(n) {
		return -1
	}
	return int(^node)
}

// vector reads an entry's vector, nil at the end of the packet.
func (c *codebook) vector(r *bitReader) []float32 {
	i := c.scalar(r)
	if i < 0 {
		return nil
	}
	return c.values[i*c.dimensions : (i+1)*c.dimensions]
}

// prefixCode hands out codewords: each entry gets the lowest one of its length that is free (section 3.2.1).
type prefixCode struct {
	book   *codebook // to build, or nil
	used   int
	single int                     // the first codeword's length
	free   [maxCodeBits + 1]uint32 // by length: the lowest codeword that is free, from the top bit; 0 is none
}

// add gives the next entry a codeword.
func (p *prefixCode) add(entry, length int) error {
	var word uint32
	at := 0
	if p.used == 0 {
		p.single = length
	} else {
		for at = length; at > 0 && p.free[at] == 0; at-- {
		}
		if at == 0 {
			return damaged("a codebook with more codewords than there can be")
		}
		word, p.free[at] = p.free[at], 0
	}
	for n := length; n > at; n-- {
		p.free[n] = word + 1<<(maxCodeBits-n)
	}
	p.used++
	if p.book != nil {
		p.book.insert(entry, word, length)
	}
	return nil
}

// end checks that no codeword is left over. A single one has one bit, of either value.
func (p *prefixCode) end() error {
	if p.used == 1 && p.single == 1 {
		if p.book != nil {
			p.book.nodes[1] = p.book.nodes[0]
		}
		return nil
	}
	if p.used > 0 && p.free != [maxCodeBits + 1]uint32{} {
		return damaged("a codebook with codewords that mean nothing")
	}
	return nil
}

// insert puts a codeword into the tree.
func (c *codebook) insert(entry int, word uint32, length int) {
	if len(c.nodes) == 0 {
		c.nodes = append(c.nodes, 0, 0)
	}
	node := int32(0)
	for n := 1; n < length; n++ {
		next := &c.nodes[2*node+int32(word>>(maxCodeBits-n)&1)]
		if *next == 0 {
			*next = int32(len(c.nodes) / 2)
			node = *next
			c.nodes = append(c.nodes, 0, 0)
			continue
		}
		node = *next
	}
	c.nodes[2*node+int32(word>>(maxCodeBits-length)&1)] = ^int32(entry)
}

// index makes the table for the first bits.
func (c *codebook) index() {
	if len(c.nodes) == 0 {
		return
	}
	c.fast = make([]int32, 1<<fastBits)
	for i := range c.fast {
		node, n := int32(0), 0
		for n < fastBits {
			node = c.nodes[2*node+int32(i>>n&1)]
			n++
			if node < 0 {
				break
			}
		}
		if c.fast[i] = ^node; node < 0 {
			c.fast[i] = ^node<<4 | int32(n)
		}
	}
}

// codebook reads a codebook (section 3.2.1).
func (p *setupParser) codebook() (codebook, error) {
	r := p.bits
	if r.read(24) != 0x564342 {
		return codebook{}, damaged("no codebook where one should be")
	}
	c := codebook{dimensions: r.read(16), entries: r.read(24)}
	if c.dimensions == 0 || c.entries == 0 {
		return c, damaged("a codebook of %d entries and %d dimensions", c.entries, c.dimensions)
	}
	if p.entries += c.entries; p.entries > MaxEntries {
		return c, ErrTooLarge
	}
	code := prefixCode{}
	if p.build {
		code.book = &c
	}
	var err error
	if r.flag() {
		err = p.orderedLengths(&code, c.entries)
	} else {
		err = p.lengths(&code, c.entries)
	}
	if err == nil {
		err = code.end()
	}
	if err != nil {
		return c, err
	}
	if p.build {
		c.index()
	}
	return c, p.lookup(&c)
}

func (p *setupParser) lengths(code *prefixCode, entries int) error {
	sparse := p.bits.flag()
	if p.bits.left() < entries {
		return damaged("a codebook of %d entries in %d bits", entries, p.bits.left())
	}
	for i := range entries {
		if sparse && !p.bits.flag() {
			continue
		}
		if err := code.add(i, p.bits.read(5)+1); err != nil {
			return err
		}
	}
	return nil
}

func (p *setupParser) orderedLengths(code *prefixCode, entries int) error {
	length := p.bits.read(5) + 1
	for i := 0; i < entries; length++ {
		n := p.bits.read(ilog(entries - i))
		if n > entries-i || length > maxCodeBits {
			return damaged("a codebook with wrong codeword lengths")
		}
		for ; n > 0; n, i = n-1, i+1 {
			if err := code.add(i, length); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookup reads the vectors of a codebook (section 3.2.1, "codebook lookup").
func (p *setupParser) lookup(c *codebook) error {
	r := p.bits
	kind := r.read(4)
	switch kind {
	case 0:
		return nil
	case 1, 2:
		c.vectors = true
	default:
		return damaged("a codebook with a lookup of type %d", kind)
	}
	if p.values += c.entries * c.dimensions; p.values > MaxValues {
		return ErrTooLarge
	}
	low, step := unpackFloat(uint32(r.read(32))), unpackFloat(uint32(r.read(32)))
	width, sum := r.read(4)+1, r.flag()
	n := c.entries * c.dimensions
	if kind == 1 {
		n = root(c.entries, c.dimensions)
	}
	if r.left() < n*width {
		return damaged("a codebook of %d values in %d bits", n, r.left())
	}
	if !p.build {
		r.skip(n * width)
		return nil
	}
	c.values = make([]float32, c.entries*c.dimensions)
	var grid []float64 // of a lattice: the values of each dimension
	if kind == 1 {
		grid = make([]float64, n)
		for i := range grid {
			grid[i] = float64(r.read(width))*step + low
		}
	}
	for e := range c.entries {
		last, divisor := 0.0, 1
		for d := range c.dimensions {
			v := last
			if kind == 1 {
				v += grid[e/divisor%n]
				divisor = min(divisor*n, c.entries) // from where on the quotient is 0
			} else {
				v += float64(r.read(width))*step + low
			}
			if sum {
				last = v
			}
			c.values[e*c.dimensions+d] = float32(v)
		}
	}
	return nil
}

// root is the largest number whose power is no more than entries (section 9.2.3).
func root(entries, power int) int {
	n := 1
	for fits(n+1, power, entries) {
		n++
	}
	return n
}

// fits reports whether base to the given power is no more than most, which is below 2^24.
func fits(base, power, most int) bool {
	v := 1
	for range power {
		if v *= base; v > most {
			return false
		}
		if base == 1 {
			break
		}
	}
	return true
}

// unpackFloat reads the format's own floating point numbers (section 9.2.2).
func unpackFloat(v uint32) float64 {
	mantissa := float64(v & 0x1FFFFF)
	if v&0x80000000 != 0 {
		mantissa = -mantissa
	}
	return math.Ldexp(mantissa, int(v>>21&0x3FF)-788)
}
