package mp4

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Track is an audio track.
type Track struct {
	ID        uint32
	Timescale uint32 // units per second of its times, the ticks; never 0
	Duration  int64  // of its media, in ticks, without fragments; Unknown
	Samples   int64  // that the moov box claims
	// UniformBytes is the size of all of these samples; 0 if each has its own.
	UniformBytes int64
	Edit         Edit
	Entry        *Entry

	file        *File
	boxes       trackBoxes
	description uint32   // the number of Entry
	defaults    defaults // of fragments
}

// Edit is the part of a track's media that is presented (ISO 14496-12, section 8.6.6).
type Edit struct {
	Delay  int64 // before it starts, in units of the movie
	Start  int64 // in the media, in ticks
	Length int64 // in units of the movie; Unknown: up to the end
}

// trackBoxes are the boxes of a track that matter, by their parent and kind.
type trackBoxes map[string]box

var trackContainers = map[string]bool{"trak": true, "edts": true, "mdia": true, "minf": true, "dinf": true, "stbl": true}

var trackLeaves = map[string]bool{
	"trak/tkhd": true, "edts/elst": true, "mdia/mdhd": true, "mdia/hdlr": true, "dinf/dref": true,
	"stbl/stsd": true, "stbl/stts": true, "stbl/stsc": true, "stbl/stsz": true, "stbl/stz2": true, "stbl/stco": true, "stbl/co64": true,
}

// track gathers the boxes of a trak box, and keeps those of audio.
func (f *File) track(trak box) error {
	f.Tracks++
	boxes := trackBoxes{}
	if err := f.gather(trak, boxes, 0); err != nil {
		return err
	}
	handler, ok := boxes["mdia/hdlr"]
	if !ok || handler.bytes() < 12 {
		return nil // of no kind that we know
	}
	h, err := f.win.Bytes(handler.body, 12)
	if err != nil || string(h[8:12]) != "soun" {
		return err
	}
	f.AudioTracks++
	if len(f.sounds) < maxSounds {
		f.sounds = append(f.sounds, boxes)
	}
	return nil
}

func (f *File) gather(parent box, boxes trackBoxes, depth int) error {
	if depth > maxDepth {
		return damaged("The boxes of a track are nested too deep.")
	}
	return f.children(parent, func(b box) error {
		if trackContainers[b.kind] {
			return f.gather(b, boxes, depth+1)
		}
		key := parent.kind + "/" + b.kind
		if !trackLeaves[key] {
			return nil
		}
		if _, twice := boxes[key]; twice {
			return damaged("A track of the file has two boxes %q.", b.kind)
		}
		boxes[key] = b
		return nil
	})
}

// chooseAudio reads the first audio track that has samples, or may have in fragments; the first if none has.
func (f *File) chooseAudio() error {
	for i := range f.sounds {
		t := &Track{file: f, boxes: f.sounds[i]}
		if err := t.read(); err != nil {
			return err
		}
		if i == 0 || t.Samples > 0 {
			f.Audio = t
		}
		if t.Samples > 0 || f.Fragmented {
			return nil
		}
	}
	return nil
}

// read parses the boxes of a track but for the tables.
func (t *Track) read() error {
	var err error
	f := t.file
	mdhd, ok := t.boxes["mdia/mdhd"]
	if !ok {
		return damaged("The audio track has no mdhd box.")
	}
	if t.Timescale, t.Duration, err = f.times(mdhd); err != nil {
		return err
	}
	if t.Timescale == 0 {
		return damaged("The audio track has a timescale of 0.")
	}
	if err := t.readID(); err != nil {
		return err
	}
	if err := t.readSizes(); err != nil {
		return err
	}
	if t.defaults, err = f.defaultsOf(t.ID); err != nil {
		return err
	}
	if t.Samples == 0 && !f.Fragmented {
		return nil
	}
	if t.Edit, err = t.readEdits(); err != nil {
		return err
	}
	if t.description, err = t.firstDescription(); err != nil {
		return err
	}
	entry, err := t.entryBox(t.description)
	if err != nil {
		return err
	}
	if t.Entry, err = f.entry(entry, t.boxes["stbl/stsd"]); err != nil {
		return err
	}
	return t.checkReference()
}

// readID reads tkhd (section 8.3.2).
func (t *Track) readID() error {
	b, ok := t.boxes["trak/tkhd"]
	if !ok {
		return damaged("The audio track has no tkhd box.")
	}
	version, err := t.file.version(b)
	if err != nil {
		return err
	}
	at := int64(12)
	if version == 1 {
		at = 20
	}
	if b.bytes() < at+4 {
		return damaged("The box %q is too short.", b.kind)
	}
	h, err := t.file.win.Bytes(b.body+at, 4)
	if err != nil {
		return err
	}
	t.ID = binary.BigEndian.Uint32(h)
	return nil
}

// table is a box of entries of equal size, behind version, flags and a number.
type table struct {
	kind         string
	at           int64 // of the first entry
	count, width int64
}

// tableOf reads the header of a table, whose entries must lie within the box. A box that is not there has none.
func (f *File) tableOf(b box, width int64) (table, error) {
	if b.kind == "" {
		return table{}, nil
	}
	if b.bytes() < 8 {
		return table{}, damaged("The box %q is too short.", b.kind)
	}
	h, err := f.win.Bytes(b.body+4, 4)
	if err != nil {
		return table{}, err
	}
	t := table{kind: b.kind, at: b.body + 8, count: int64(binary.BigEndian.Uint32(h)), width: width}
	if t.count > (b.end-t.at)/width {
		return table{}, damaged("The box %q claims %d entries, more than its %d bytes hold.", b.kind, t.count, b.bytes())
	}
	return t, nil
}

// readEdits sums up the edit list: empty edits at the start, and then one part of the media, which may be cut into adjoining pieces.
func (t *Track) readEdits() (Edit, error) {
	whole := Edit{Length: Unknown}
	b := t.boxes["edts/elst"]
	if b.kind == "" {
		return whole, nil
	}
	version, err := t.file.version(b)
	if err != nil {
		return whole, err
	}
	width := int64(12)
	if version == 1 {
		width = 20
	}
	entries, err := t.file.tableOf(b, width)
	if err != nil || entries.count == 0 {
		return whole, err
	}
	sum := edits{track: t}
	win := NewWindow(t.file.r, b.end, minForward)
	for i := range entries.count {
		h, err := win.Bytes(entries.at+i*width, int(width))
		if err != nil {
			return whole, err
		}
		if err := sum.add(h, version == 1); err != nil {
			return whole, err
		}
	}
	if !sum.found {
		return whole, damaged("The edit list presents nothing of the audio track.")
	}
	return sum.Edit, nil
}

// edits sums up an edit list.
type edits struct {
	Edit
	track  *Track
	found  bool // a part of the media
	behind bool // an empty edit behind that
}

func (e *edits) add(h []byte, wide bool) error {
	length, start := int64(binary.BigEndian.Uint32(h)), int64(int32(binary.BigEndian.Uint32(h[4:])))
	if wide {
		length, start = int64(binary.BigEndian.Uint64(h)), int64(binary.BigEndian.Uint64(h[8:]))
	}
	rate := binary.BigEndian.Uint32(h[len(h)-4:])
	const several = "The edit list of the audio track cuts it into several parts, which is not supported."
	switch {
	case length < 0 || start < -1:
		return damaged("The edit list of the audio track has a negative time.")
	case start == -1 && e.found: // silence behind; if more follows, it lies between
		e.behind = true
	case start == -1:
		e.Delay = saturatingAdd(e.Delay, length)
	case rate != 1<<16:
		return unsupported("The edit list of the audio track plays it at another speed, which is not supported.")
	case !e.found:
		e.found, e.Start, e.Length = true, start, length
		if length == 0 {
			e.Length = Unknown
		}
	case e.behind || !e.adjoins(start):
		return unsupported(several)
	default:
		e.Length = saturatingAdd(e.Length, length)
	}
	return nil
}

// adjoins says whether a part that starts there is the continuation of the one before, within the resolution of the movie's times.
func (e *edits) adjoins(start int64) bool {
	movie := e.track.file.MovieTimescale
	if e.Length == Unknown || movie == 0 {
		return false
	}
	end := saturatingAdd(e.Start, Scale(e.Length, uint64(e.track.Timescale), uint64(movie)))
	resolution := int64(e.track.Timescale/movie) + 1
	return start >= end-resolution && start <= saturatingAdd(end, resolution)
}

func saturatingAdd(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func saturatingProduct(a, b int64) int64 {
	if hi, lo := bits.Mul64(uint64(a), uint64(b)); hi == 0 && lo <= math.MaxInt64 {
		return int64(lo)
	}
	return math.MaxInt64
}

// Scale is v x num / den, rounded, for v >= 0. It saturates. den must not be 0.
func Scale(v int64, num, den uint64) int64 {
	hi, lo := bits.Mul64(uint64(v), num)
	lo, carry := bits.Add64(lo, den/2, 0)
	hi += carry
	if hi >= den {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, den)
	return int64(min(q, math.MaxInt64))
}

// checkReference refuses samples that lie in another file (section 8.7.2).
func (t *Track) checkReference() error {
	dref := t.boxes["dinf/dref"]
	if dref.kind == "" || dref.bytes() < 8 {
		return nil
	}
	list := dref
	list.body += 8
	i := uint16(0)
	return t.file.children(list, func(b box) error {
		if i++; i != t.Entry.reference {
			return nil
		}
		if b.bytes() < 4 {
			return damaged("The box %q is too short.", b.kind)
		}
		h, err := t.file.win.Bytes(b.body, 4)
		if err != nil {
			return err
		}
		if h[3]&1 == 0 {
			return unsupported("The samples of the audio track lie in another file, which is not read.")
		}
		return nil
	})
}
