package vorbis

// setupParser reads the third header packet (section 4.2.4). It checks everything; only if it builds does it allocate more than some hundred
// bytes for each part.
type setupParser struct {
	info     Info
	build    bool
	bits     *bitReader
	entries  int // of all codebooks so far
	values   int
	books    []codebook
	floors   []floor
	residues []residue
	mappings []mapping
	modes    []int // the mapping of each
}

// mapping says which floor and residue a channel has, and which channels are coupled (section 4.2.4).
type mapping struct {
	coupling [][2]int // channels with magnitude and angle
	mux      []int    // the submap of each channel
	submaps  []submap
}

type submap struct{ floor, residue int }

func (p *setupParser) parse(packet []byte) error {
	if !IsHeader(packet, 5) {
		return damaged("no setup header")
	}
	p.bits = &bitReader{b: packet[7:]}
	parts := []func() error{p.parseCodebooks, p.parseTimes, p.parseFloors, p.parseResidues, p.parseMappings, p.parseModes}
	for _, part := range parts {
		if err := part(); err != nil {
			return err
		}
		if p.bits.ended {
			return damaged("the setup header is cut off")
		}
	}
	if !p.bits.flag() {
		return damaged("the setup header has no end")
	}
	return nil
}

// several reads a count of the given width and so many parts.
func several[T any](r *bitReader, width int, one func() (T, error)) ([]T, error) {
	var all []T
	for range r.read(width) + 1 {
		v, err := one()
		switch {
		case err != nil:
			return nil, err
		case r.ended:
			return nil, damaged("the setup header is cut off")
		}
		all = append(all, v)
	}
	return all, nil
}

func (p *setupParser) parseCodebooks() (err error) {
	p.books, err = several(p.bits, 8, p.codebook)
	return err
}

// parseTimes reads what was never used.
func (p *setupParser) parseTimes() error {
	_, err := several(p.bits, 6, func() (int, error) {
		if kind := p.bits.read(16); kind != 0 {
			return 0, damaged("a time transform of type %d", kind)
		}
		return 0, nil
	})
	return err
}

func (p *setupParser) parseFloors() (err error) {
	p.floors, err = several(p.bits, 6, func() (floor, error) {
		switch kind := p.bits.read(16); kind {
		case 0:
			return p.floor0()
		case 1:
			return p.floor1()
		default:
			return nil, damaged("a floor of type %d", kind)
		}
	})
	return err
}

func (p *setupParser) parseResidues() (err error) {
	p.residues, err = several(p.bits, 6, p.residue)
	return err
}

func (p *setupParser) parseMappings() (err error) {
	p.mappings, err = several(p.bits, 6, p.mapping)
	return err
}

func (p *setupParser) mapping() (m mapping, err error) {
	r, channels := p.bits, p.info.Channels
	if kind := r.read(16); kind != 0 {
		return m, damaged("a mapping of type %d", kind)
	}
	submaps := 1
	if r.flag() {
		submaps = r.read(4) + 1
	}
	if r.flag() {
		width := ilog(channels - 1)
		for range r.read(8) + 1 {
			pair := [2]int{r.read(width), r.read(width)}
			if pair[0] == pair[1] || max(pair[0], pair[1]) >= channels {
				return m, damaged("a channel coupled with itself or with none")
			}
			m.coupling = append(m.coupling, pair)
		}
	}
	if r.read(2) != 0 {
		return m, damaged("a mapping with reserved bits")
	}
	m.mux = make([]int, channels)
	if submaps > 1 {
		for c := range m.mux {
			if m.mux[c] = r.read(4); m.mux[c] >= submaps {
				return m, damaged("a channel of a submap that does not exist")
			}
		}
	}
	for range submaps {
		r.skip(8)
		s := submap{r.read(8), r.read(8)}
		if s.floor >= len(p.floors) || s.residue >= len(p.residues) {
			return m, damaged("a submap whose floor or residue does not exist")
		}
		m.submaps = append(m.submaps, s)
	}
	return m, nil
}

func (p *setupParser) parseModes() (err error) {
	p.modes, err = several(p.bits, 6, func() (int, error) {
		r := p.bits
		p.info.long = append(p.info.long, r.flag())
		if window, transform := r.read(16), r.read(16); window != 0 || transform != 0 {
			return 0, damaged("a mode with another window or transform")
		}
		m := r.read(8)
		if m >= len(p.mappings) {
			return 0, damaged("a mode whose mapping does not exist")
		}
		return m, nil
	})
	return err
}

// book checks the number of a codebook, which is to have vectors or not to matter.
func (p *setupParser) book(n int, vectors bool) error {
	if n >= len(p.books) || vectors && !p.books[n].vectors {
		return damaged("a codebook that does not exist or has no vectors")
	}
	return nil
}
