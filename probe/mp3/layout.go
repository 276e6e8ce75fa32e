package mp3

// layout is how a granule's lines fall into scalefactor bands, in the order of the bitstream: long bands first, then for each short band the
// lines of window after window.
type layout struct {
	widths []uint8 // of bands; short ones stand here three times
	long   int     // how many of them are long
	kind   int
}

// Kinds of layouts.
const (
	longBlocks = iota
	shortBlocks
	mixedBlocks // long below line 36, short above
)

// layouts by rate and kind.
var layouts = makeLayouts()

func makeLayouts() (all [9][3]layout) {
	for rate := range all {
		var short []uint8
		for _, w := range shortWidths[rate] {
			short = append(short, w, w, w)
		}
		long := longWidths[rate][:]
		split := 6 // long bands below line 36
		if rate < 3 {
			split = 8
		}
		mixed := append(append([]uint8{}, long[:split]...), short[9:]...)
		all[rate] = [3]layout{{long, len(long), longBlocks}, {short, 0, shortBlocks}, {mixed, split, mixedBlocks}}
	}
	return all
}

// longStart is the line at which a long band starts; behind the last one all lines end.
func longStart(rate, band int) (at int) {
	for _, w := range longWidths[rate][:min(band, len(longWidths[rate]))] {
		at += int(w)
	}
	return at
}

// scalefactors are those of a granule of a channel, by the bands of its layout. Bands for which none are transmitted have 0.
type scalefactors struct {
	values  [39]uint8
	illegal [39]bool // it is no position of intensity stereo
}

// read reads the scalefactors of a granule (ISO 11172-3, section 2.4.2.7; ISO 13818-3, section 2.4.3.2). intensity: they are positions where the
// channel is silent.
func (f *scalefactors) read(r *bitReader, h Header, info *granuleInfo, intensity bool) {
	if h.Version == MPEG1 {
		f.readMPEG1(r, info)
		return
	}
	coding, sizes := lowSizes(info.scaling, intensity)
	*f = scalefactors{}
	at := 0
	for i, n := range scalefactorCounts[coding][info.layout.kind] {
		for range n {
			v := r.read(sizes[i])
			f.values[at] = uint8(v)
			f.illegal[at] = sizes[i] > 0 && v == 1<<sizes[i]-1
			at++
		}
	}
}

func (f *scalefactors) readMPEG1(r *bitReader, info *granuleInfo) {
	lower, upper := uint(lowerBits[info.scaling]), uint(upperBits[info.scaling])
	if info.layout.kind == longBlocks {
		for group, end := range [4]int{6, 11, 16, 21} {
			if info.shared&(8>>group) != 0 {
				continue // as in the first granule
			}
			size := lower
			if group >= 2 {
				size = upper
			}
			for at := [4]int{0, 6, 11, 16}[group]; at < end; at++ {
				f.set(at, r.read(size))
			}
		}
		f.set(21, 0)
		return
	}
	*f = scalefactors{}
	bands := len(info.layout.widths) - 3
	for at := range bands {
		size := upper
		if at < bands-18 { // the six uppermost bands of each window
			size = lower
		}
		f.set(at, r.read(size))
	}
}

// set sets a scalefactor of MPEG-1, where 7 and above are no positions.
func (f *scalefactors) set(at, v int) {
	f.values[at], f.illegal[at] = uint8(v), v >= 7
}

// lowSizes decodes scalefac_compress of MPEG-2: the row of scalefactorCounts, and the bits of scalefactors in each of its groups.
func lowSizes(scaling int, intensity bool) (coding int, sizes [4]uint) {
	s := uint(scaling)
	if intensity {
		switch s >>= 1; {
		case s < 180:
			return 3, [4]uint{s / 36, s % 36 / 6, s % 6}
		case s < 244:
			s -= 180
			return 4, [4]uint{s >> 4, s >> 2 & 3, s & 3}
		}
		s -= 244
		return 5, [4]uint{s / 3, s % 3}
	}
	switch {
	case s < 400:
		return 0, [4]uint{(s >> 4) / 5, (s >> 4) % 5, s >> 2 & 3, s & 3}
	case s < 500:
		s -= 400
		return 1, [4]uint{(s >> 2) / 5, (s >> 2) % 5, s & 3}
	}
	s -= 500
	return 2, [4]uint{s / 3, s % 3}
}
