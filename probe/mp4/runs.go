package mp4

import (
	"context"
	"encoding/binary"
	"io"
	"math"
)

// Run is a number of samples of the same size and duration that follow each other in the file, which has all of their bytes.
type Run struct {
	At    int64 // of the first, in the file
	Count int64 // at least 1
	Bytes int64 // of each, at least 1
	Ticks int64 // each lasts, as the file claims
}

// Runs walks through the samples of a track: those of the sample tables, then those of fragments.
type Runs struct {
	track   *Track
	win     *Window // for what is read rarely
	opened  bool
	checked uint32 // a description other than the track's that is the same
	checks  int    // how often one was compared
	uniform int64  // the size of all samples; 0 if each has its own

	left      int64 // samples of the tables
	sizes     cursor
	sizeBits  int64
	times     cursor
	ticks     int64
	timeLeft  int64 // samples that last so many ticks
	offsets   cursor
	chunks    cursor
	next      chunkRun // the next entry of chunks
	perChunk  int64
	chunkAt   int64 // of the next sample
	chunkLeft int64 // samples
	chunk     int64 // its number, from 1

	fragments fragments
}

// chunkRun is an entry of stsc: from this chunk on each has so many samples.
type chunkRun struct {
	first       int64 // math.MaxInt64: there are no more
	samples     int64
	description uint32
}

// Runs starts at the first sample. If frameBytes is not 0, samples that all have one byte have so many instead: so QuickTime writes frames of
// PCM.
func (t *Track) Runs(frameBytes int64) *Runs {
	r := &Runs{track: t, win: NewWindow(t.file.r, t.file.size, 16<<10), uniform: t.UniformBytes, left: t.Samples}
	if frameBytes > 0 && r.uniform == 1 {
		r.uniform = frameBytes
	}
	return r
}

// Next gives the next samples, io.EOF behind the last one of a whole file, or what is damaged.
func (r *Runs) Next(ctx context.Context) (Run, error) {
	if err := ctx.Err(); err != nil {
		return Run{}, err
	}
	if !r.opened {
		if err := r.open(); err != nil {
			return Run{}, err
		}
		r.opened = true
	}
	if r.left > 0 {
		return r.fromTables()
	}
	return r.fromFragments(ctx)
}

// cursor reads the entries of a table in order.
type cursor struct {
	table
	win  *Window
	read int64 // entries so far
}

const (
	windowBytes     = 16 << 10
	sizeWindowBytes = 32 << 10
)

func newCursor(r io.ReaderAt, t table, most int) cursor {
	return cursor{table: t, win: NewWindow(r, t.at+t.count*t.width, int(min(int64(most), t.count*t.width)))}
}

// next is the next entry; nil at the end.
func (c *cursor) next() ([]byte, error) {
	if c.read == c.count {
		return nil, nil
	}
	b, err := c.win.Bytes(c.at+c.read*c.width, int(c.width))
	c.read++
	return b, err
}

// readSizes reads how many samples there are, and whether all have one size (section 8.7.3).
func (t *Track) readSizes() error {
	stsz, stz2 := t.boxes["stbl/stsz"], t.boxes["stbl/stz2"]
	b := stsz
	if b.kind == "" {
		b = stz2
	}
	if b.kind == "" {
		return damaged("The audio track has no stsz box.")
	}
	if b.bytes() < 12 {
		return damaged("The box %q is too short.", b.kind)
	}
	h, err := t.file.win.Bytes(b.body+4, 8)
	if err != nil {
		return err
	}
	t.Samples = int64(binary.BigEndian.Uint32(h[4:]))
	bits := int64(32)
	if b.kind == "stsz" {
		t.UniformBytes = int64(binary.BigEndian.Uint32(h))
	} else if bits = int64(h[3]); bits != 4 && bits != 8 && bits != 16 {
		return damaged("The box %q gives sizes of %d bits.", b.kind, bits)
	}
	if t.UniformBytes == 0 && t.Samples > (b.end-b.body-12)*8/bits {
		return damaged("The box %q claims %d samples, more than its %d bytes hold.", b.kind, t.Samples, b.bytes())
	}
	return nil
}

// open finds the tables.
func (r *Runs) open() error {
	t, f := r.track, r.track.file
	r.sizeBits = 32
	sizes := t.boxes["stbl/stsz"]
	if sizes.kind == "" {
		sizes = t.boxes["stbl/stz2"]
		h, err := f.win.Bytes(sizes.body+7, 1)
		if err != nil {
			return err
		}
		r.sizeBits = int64(h[0])
	}
	entries := table{kind: sizes.kind, at: sizes.body + 12, count: t.Samples, width: r.sizeBits / 8}
	if r.sizeBits == 4 { // two in a byte
		entries.count, entries.width = (t.Samples+1)/2, 1
	}
	if r.uniform > 0 {
		entries.count = 0
	}
	r.sizes = newCursor(f.r, entries, sizeWindowBytes)
	for _, c := range []struct {
		cursor *cursor
		kind   string
		width  int64
	}{{&r.times, "stbl/stts", 8}, {&r.chunks, "stbl/stsc", 12}, {&r.offsets, "stbl/stco", 4}, {&r.offsets, "stbl/co64", 8}} {
		b := t.boxes[c.kind]
		if b.kind == "" && c.cursor.kind != "" {
			continue // stco, not co64
		}
		entries, err := f.tableOf(b, c.width)
		if err != nil {
			return err
		}
		*c.cursor = newCursor(f.r, entries, windowBytes)
	}
	return r.readChunkRun()
}

// fromTables gives the next samples of the sample tables.
func (r *Runs) fromTables() (Run, error) {
	if r.chunkLeft == 0 {
		if err := r.nextChunk(); err != nil {
			return Run{}, err
		}
	}
	if err := r.nextTime(); err != nil {
		return Run{}, err
	}
	run := Run{At: r.chunkAt, Count: 1, Bytes: r.uniform, Ticks: r.ticks}
	if r.uniform > 0 {
		run.Count = min(r.chunkLeft, r.left, r.timeLeft)
	} else {
		var err error
		if run.Bytes, err = r.nextSize(); err != nil {
			return Run{}, err
		}
	}
	if err := r.track.file.checkRun(run); err != nil {
		return Run{}, err
	}
	r.left -= run.Count
	r.chunkLeft -= run.Count
	r.timeLeft -= run.Count
	r.chunkAt += run.Count * run.Bytes
	return run, nil
}

// checkRun refuses samples that the file does not hold.
func (f *File) checkRun(run Run) error {
	if run.Bytes <= 0 {
		return damaged("A sample of the audio track has no bytes.")
	}
	if run.At < 0 || run.At > f.size || run.Count > (f.size-run.At)/run.Bytes {
		return damaged("Samples of the audio track lie at byte %d and behind, but the file ends at %d: it is cut off.", run.At, f.size)
	}
	return nil
}

// nextSize is the size of the next sample.
func (r *Runs) nextSize() (int64, error) {
	if second := (r.track.Samples-r.left)%2 == 1; r.sizeBits == 4 && second {
		r.sizes.read-- // the other half of the byte
		b, err := r.sizes.next()
		if err != nil {
			return 0, err
		}
		return int64(b[0] & 15), nil
	}
	b, err := r.sizes.next()
	switch {
	case err != nil:
		return 0, err
	case r.sizeBits == 4:
		return int64(b[0] >> 4), nil
	case r.sizeBits == 8:
		return int64(b[0]), nil
	case r.sizeBits == 16:
		return int64(binary.BigEndian.Uint16(b)), nil
	}
	return int64(binary.BigEndian.Uint32(b)), nil
}

// nextTime reads how long the next samples last (section 8.6.1.2). A table that ends early says nothing of the rest.
func (r *Runs) nextTime() error {
	for r.timeLeft == 0 {
		b, err := r.times.next()
		if err != nil {
			return err
		}
		if b == nil {
			r.timeLeft, r.ticks = math.MaxInt64, 0
			return nil
		}
		r.timeLeft, r.ticks = int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
	}
	return nil
}

// nextChunk goes to the next chunk (sections 8.7.4 and 8.7.5).
func (r *Runs) nextChunk() error {
	b, err := r.offsets.next()
	if err != nil {
		return err
	}
	if b == nil {
		return damaged("The audio track claims %d samples, but its chunks hold %d fewer.", r.track.Samples, r.left)
	}
	if len(b) == 8 {
		r.chunkAt = int64(min(binary.BigEndian.Uint64(b), math.MaxInt64))
	} else {
		r.chunkAt = int64(binary.BigEndian.Uint32(b))
	}
	r.chunk++
	if r.chunk == r.next.first {
		if err := r.checkDescription(r.next.description); err != nil {
			return err
		}
		r.perChunk = r.next.samples
		if err := r.readChunkRun(); err != nil {
			return err
		}
	}
	if r.perChunk == 0 {
		return damaged("The box \"stsc\" of the audio track says nothing of chunk %d.", r.chunk)
	}
	r.chunkLeft = r.perChunk
	return nil
}

// readChunkRun reads an entry of stsc.
func (r *Runs) readChunkRun() error {
	b, err := r.chunks.next()
	if err != nil {
		return err
	}
	if b == nil {
		r.next = chunkRun{first: math.MaxInt64}
		return nil
	}
	next := chunkRun{int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:])), binary.BigEndian.Uint32(b[8:])}
	if next.first <= r.chunk || next.samples == 0 {
		return damaged("The box \"stsc\" of the audio track is damaged.")
	}
	r.next = next
	return nil
}

// firstDescription is the number of the first samples' entry in stsd.
func (t *Track) firstDescription() (uint32, error) {
	if t.Samples == 0 {
		return t.defaults.description, nil
	}
	b := t.boxes["stbl/stsc"]
	entries, err := t.file.tableOf(b, 12)
	if err != nil {
		return 0, err
	}
	if entries.count == 0 {
		return 0, damaged("The audio track has no stsc box.")
	}
	h, err := t.file.win.Bytes(entries.at+8, 4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(h), nil
}

// maxChecks bounds how often entries of stsd are compared: more of them than that are not used by turns.
const maxChecks = 16

// checkDescription refuses samples that are coded in another way than the first. Some writers repeat one entry.
func (r *Runs) checkDescription(number uint32) error {
	t := r.track
	if number == t.description || number == r.checked {
		return nil
	}
	changes := unsupported("The audio track changes its codec or its setup within the file, which is not supported.")
	if r.checks++; r.checks > maxChecks {
		return changes
	}
	var entries [2]box
	for i, n := range []uint32{t.description, number} {
		b, err := t.entryBox(n)
		if err != nil {
			return err
		}
		entries[i] = b
	}
	a, b := entries[0], entries[1]
	same := a.kind == b.kind && a.bytes() == b.bytes()
	other := NewWindow(t.file.r, b.end, windowBytes)
	for i := int64(0); same && i < a.bytes(); i += windowBytes {
		n := int(min(windowBytes, a.bytes()-i))
		x, err := r.win.Bytes(a.body+i, n)
		if err != nil {
			return err
		}
		y, err := other.Bytes(b.body+i, n)
		if err != nil {
			return err
		}
		same = string(x) == string(y)
	}
	if !same {
		return changes
	}
	r.checked = number
	return nil
}

// Times is what the table of durations says in all. regular counts the samples that last within an eighth of expected ticks, and last is how
// long the last one lasts.
func (t *Track) Times(ctx context.Context, expected int64) (sum, regular, last int64, err error) {
	entries, err := t.file.tableOf(t.boxes["stbl/stts"], 8)
	if err != nil {
		return 0, 0, 0, err
	}
	c := newCursor(t.file.r, entries, windowBytes)
	for {
		if err := ctx.Err(); err != nil {
			return 0, 0, 0, err
		}
		b, err := c.next()
		if err != nil || b == nil {
			return sum, regular, last, err
		}
		count := int64(binary.BigEndian.Uint32(b))
		if count == 0 {
			continue
		}
		last = int64(binary.BigEndian.Uint32(b[4:]))
		sum = saturatingAdd(sum, saturatingProduct(count, last))
		if off := last - expected; 8*off <= expected && -8*off <= expected {
			regular += count
		}
	}
}
