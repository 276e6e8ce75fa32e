package vorbis

// Decoder turns packets into samples. It is not safe for concurrent use.
type Decoder struct {
	info       Info
	setup      setupParser
	transforms [2]*mdct
	slopes     [2][]float32

	channels []channel
	previous int // length of the last packet's block; 0 before the first
	residue  residueVectors
}

// channel is one channel's state.
type channel struct {
	spectrum []float32
	block    []float32 // samples of this packet
	tail     []float32 // the second half of the last packet's, windowed
	curve    curve
	heard    bool // this packet has a floor for it
	silent   bool // this packet has no residue for it
}

// NewDecoder makes a decoder for the stream with the given first and third header packets.
func NewDecoder(identification, setup []byte) (*Decoder, error) {
	info, err := ParseInfo(identification, setup)
	if err != nil {
		return nil, err
	}
	d := &Decoder{info: info, setup: setupParser{build: true}}
	d.setup.info.Channels = info.Channels
	if err := d.setup.parse(setup); err != nil {
		return nil, err
	}
	for i, n := range info.blocks {
		d.transforms[i], d.slopes[i] = newMDCT(n), slope(n)
	}
	most := info.blocks[1]
	d.channels = make([]channel, info.Channels)
	for c := range d.channels {
		d.channels[c] = channel{spectrum: make([]float32, most/2), block: make([]float32, most), tail: make([]float32, most/2)}
	}
	return d, nil
}

// Info is what the headers say.
func (d *Decoder) Info() Info { return d.info }

// Reset forgets all packets: the next one is the first of a stream.
func (d *Decoder) Reset() { d.previous = 0 }

// Decode appends the samples of a packet to dst, interleaved. They are within ±1 but for overshoots, and finite unless the packet or the headers are
// hostile. Info.Block says how many there are. An error means that the packet is no audio packet.
func (d *Decoder) Decode(dst []float32, packet []byte) ([]float32, error) {
	r := &bitReader{b: packet}
	mode, err := d.info.mode(r)
	if err != nil {
		return dst, err
	}
	long := b2i(d.info.long[mode])
	before, after := long, long // the sizes of the windows' slopes
	if long == 1 {
		before, after = b2i(r.flag()), b2i(r.flag())
	}
	n := d.info.blocks[long]
	d.spectra(r, &d.setup.mappings[d.setup.modes[mode]], n/2)
	frames := 0
	if d.previous > 0 {
		frames = d.previous/4 + n/4
	}
	at := len(dst)
	dst = append(dst, make([]float32, frames*d.info.Channels)...)
	for c := range d.channels {
		ch := &d.channels[c]
		block := ch.block[:n]
		if ch.heard {
			d.transforms[long].inverse(block, ch.spectrum[:n/2])
			rise(block[:n/2], d.slopes[before])
			fall(block[n/2:], d.slopes[after])
		} else {
			clear(block)
		}
		if frames > 0 {
			overlap(dst[at+c:], d.info.Channels, frames, ch.tail[:d.previous/2], block[:n/2])
		}
		copy(ch.tail, block[n/2:])
	}
	d.previous = n
	return dst, nil
}

// spectra reads the spectrum of each channel, n frequencies (sections 4.3.2 to 4.3.6).
func (d *Decoder) spectra(r *bitReader, m *mapping, n int) {
	for c := range d.channels {
		ch := &d.channels[c]
		floor := d.setup.floors[m.submaps[m.mux[c]].floor]
		ch.heard = floor.decode(r, d.setup.books, &ch.curve)
		ch.silent = !ch.heard
		clear(ch.spectrum[:n])
	}
	for _, pair := range m.coupling {
		a, b := &d.channels[pair[0]], &d.channels[pair[1]]
		both := a.silent && b.silent
		a.silent, b.silent = both, both
	}
	for i, s := range m.submaps {
		v := &d.residue
		v.spectra, v.silent = v.spectra[:0], v.silent[:0]
		for c := range d.channels {
			if m.mux[c] == i {
				v.spectra = append(v.spectra, d.channels[c].spectrum[:n])
				v.silent = append(v.silent, d.channels[c].silent)
			}
		}
		d.setup.residues[s.residue].decode(r, d.setup.books, v)
	}
	for i := len(m.coupling) - 1; i >= 0; i-- {
		decouple(d.channels[m.coupling[i][0]].spectrum[:n], d.channels[m.coupling[i][1]].spectrum[:n])
	}
	for c := range d.channels {
		if ch := &d.channels[c]; ch.heard {
			d.setup.floors[m.submaps[m.mux[c]].floor].apply(ch.spectrum[:n], &ch.curve)
		}
	}
}

// decouple turns magnitude and angle into two channels (section 4.3.5).
func decouple(magnitude, angle []float32) {
	for i, m := range magnitude {
		a := angle[i]
		switch {
		case m > 0 && a > 0:
			angle[i] = m - a
		case m > 0:
			magnitude[i], angle[i] = m+a, m
		case a > 0:
			angle[i] = m + a
		default:
			magnitude[i], angle[i] = m-a, m
		}
	}
}

// rise applies the first half of a window, whose slope lies in the middle of x.
func rise(x, slope []float32) {
	start := (len(x) - len(slope)) / 2
	clear(x[:start])
	for i, w := range slope {
		x[start+i] *= w
	}
}

// fall applies the second half of a window.
func fall(x, slope []float32) {
	start := (len(x) - len(slope)) / 2
	for i := range slope {
		x[start+i] *= slope[len(slope)-1-i]
	}
	clear(x[start+len(slope):])
}

// overlap adds the second half of a block and the first half of the next one, whose middles lie at the same place, and writes what lies between the
// blocks' centers to every stride-th of out.
func overlap(out []float32, stride, frames int, tail, head []float32) {
	shift := len(tail)/2 - len(head)/2 // where head starts
	for i := range frames {
		v := float32(0)
		if i < len(tail) {
			v = tail[i]
		}
		if j := i - shift; j >= 0 && j < len(head) {
			v += head[j]
		}
		out[i*stride] = v
	}
}
