package mp3

// sideInfo is what stands before the data of a frame (ISO 11172-3, section 2.4.1.7; ISO 13818-3, section 2.4.1.7).
type sideInfo struct {
	begin    int // by how many bytes the data starts before the frame's own (main_data_begin)
	granules [2][2]granuleInfo
}

// granuleInfo is the side information of a granule of a channel, and how many of its lines are in use.
type granuleInfo struct {
	bits         int // of scalefactors and Huffman codes (part2_3_length)
	big          int // lines that are coded in pairs (big_values)
	gain         int // global_gain
	scaling      int // scalefac_compress
	block        uint8
	mixed        bool
	tables       [3]uint8 // by region
	subblockGain [3]int
	regions      [2]int // the lines at which the first two regions end
	preemphasis  bool   // preflag
	coarse       bool   // scalefac_scale
	quads        uint8  // the code for quadruples (count1table_select)
	shared       uint8  // groups of scalefactors that are those of the first granule (scfsi), from bit 3 on
	layout       *layout
	lines        int // all further lines are zero
}

// Kinds of blocks (block_type).
const (
	normalBlock = iota
	startBlock
	shortBlock
	stopBlock
)

// bitString reads the few bytes of the side information.
type bitString struct {
	b  []byte
	at int
}

// read gives the next n bits, and zeros behind the end.
func (s *bitString) read(n int) (v int) {
	for range n {
		v <<= 1
		if s.at < 8*len(s.b) {
			v |= int(s.b[s.at/8]>>(7-s.at%8)) & 1
		}
		s.at++
	}
	return v
}

func (s *bitString) flag() bool { return s.read(1) == 1 }

// parse reads b, which has the length that the header asks for.
func (s *sideInfo) parse(h Header, b []byte) error {
	r := &bitString{b: b}
	channels := h.Channels()
	var shared [2]int
	if h.Version == MPEG1 {
		s.begin = r.read(9)
		r.read(7 - 2*channels) // private bits: 5 or 3
		for c := range channels {
			shared[c] = r.read(4)
		}
	} else {
		s.begin = r.read(8)
		r.read(channels)
	}
	var err error
	for g := range h.Samples() / granuleLines {
		for c := range channels {
			info := &s.granules[g][c]
			if e := info.parse(h, r); e != nil {
				err = e
			}
			if g == 1 {
				info.shared = uint8(shared[c])
			}
		}
	}
	return err
}

func (g *granuleInfo) parse(h Header, r *bitString) error {
	*g = granuleInfo{bits: r.read(12), big: 2 * r.read(9), gain: r.read(8)}
	if h.Version == MPEG1 {
		g.scaling = r.read(4)
	} else {
		g.scaling = r.read(9)
	}
	switched := r.flag()
	rate := h.rateIndex()
	if switched {
		g.parseSwitched(h, r)
	} else {
		for i := range g.tables {
			g.tables[i] = uint8(r.read(5))
		}
		first := r.read(4) + 1 // bands in region 0
		second := first + r.read(3) + 1
		g.regions = [2]int{longStart(rate, first), longStart(rate, second)}
	}
	if h.Version == MPEG1 {
		g.preemphasis = r.flag()
	} else {
		g.preemphasis = g.scaling >= 500
	}
	g.coarse = r.flag()
	g.quads = uint8(r.read(1))
	kind := longBlocks
	if g.block == shortBlock {
		if kind = shortBlocks; g.mixed {
			kind = mixedBlocks
		}
	}
	g.layout = &layouts[rate][kind]
	switch {
	case g.big > granuleLines:
		return damaged("it has more lines than there are")
	case switched && g.block == normalBlock:
		return damaged("it switches to the same window")
	case kind == mixedBlocks && rate == rate8000:
		return damaged("mixed blocks at 8 kHz are not defined")
	}
	return nil
}

// parseSwitched reads what a granule has that does not consist of normal blocks.
func (g *granuleInfo) parseSwitched(h Header, r *bitString) {
	g.block = uint8(r.read(2))
	g.mixed = r.flag()
	g.tables[0], g.tables[1] = uint8(r.read(5)), uint8(r.read(5))
	for i := range g.subblockGain {
		g.subblockGain[i] = r.read(3)
	}
	g.regions = [2]int{36, granuleLines}
	switch rate := h.rateIndex(); {
	case g.block != shortBlock:
		g.regions[0] = longStart(rate, 8)
	case rate == rate8000:
		g.regions[0] = 72
	}
}

// rateIndex counts the nine rates: 44.1, 48, 32 kHz, the same halved, and halved again.
func (h Header) rateIndex() int {
	for i, rate := range rates {
		if rate>>h.Version == h.Rate {
			return 3*int(h.Version) + i
		}
	}
	return 0 // not reached: ParseHeader knows no other rates
}

// rate8000 is the index of 8 kHz.
const rate8000 = 8

// intensity reports whether the upper lines of both channels may be coded as one.
func (h Header) intensity() bool { return h.Mode == JointStereo && h.Extension&1 != 0 }

// midSide reports whether channels are coded as their sum and difference.
func (h Header) midSide() bool { return h.Mode == JointStereo && h.Extension&2 != 0 }
