package mp4

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
)

// Movie fragments (ISO 14496-12, section 8.8).

// defaults are what samples have whose fragment does not say.
type defaults struct {
	description  uint32
	ticks, bytes int64
}

// defaultsOf reads a track's trex box (section 8.8.3).
func (f *File) defaultsOf(id uint32) (defaults, error) {
	d := defaults{description: 1}
	if !f.Fragmented {
		return d, nil
	}
	err := f.children(f.mvex, func(b box) error {
		if b.kind != "trex" {
			return nil
		}
		if b.bytes() < 24 {
			return damaged("The box %q is too short.", b.kind)
		}
		h, err := f.win.Bytes(b.body, 24)
		if err != nil || binary.BigEndian.Uint32(h[4:]) != id {
			return err
		}
		d = defaults{binary.BigEndian.Uint32(h[8:]), int64(binary.BigEndian.Uint32(h[12:])), int64(binary.BigEndian.Uint32(h[16:]))}
		return nil
	})
	return d, err
}

// fragments is a walk through the boxes of the file: those of the file itself, of a moof box, and of a traf box of the track.
type fragments struct {
	p         parser
	at        int64 // of the next box of the file
	moof      box
	moofAt    int64 // of the next box in moof
	trafs     int   // of the moof so far
	traf      box
	trafAt    int64
	header    bool  // the tfhd of the traf was seen
	base      int64 // what offsets of the traf count from
	data      int64 // behind the samples before
	defaults  defaults
	relative  bool // base is only known to a reader of the other tracks
	trun      trun
	movieSeen bool
}

// trun is the rest of a run of samples.
type trun struct {
	at    int64 // of the next entry
	width int64 // of an entry
	left  int64 // samples
	flags uint32
}

// Flags of tfhd and trun.
const (
	tfhdBase, tfhdDescription, tfhdTicks, tfhdBytes = 0x1, 0x2, 0x8, 0x10
	tfhdBaseIsMoof                                  = 0x20000
	trunOffset, trunFirstFlags                      = 0x1, 0x4
	trunTicks, trunBytes, trunFlags, trunShift      = 0x100, 0x200, 0x400, 0x800
)

// fromFragments gives the next samples of fragments. In a file without any it looks whether what is behind the moov box is whole.
func (r *Runs) fromFragments(ctx context.Context) (Run, error) {
	f := &r.fragments
	if f.p.win == nil {
		f.p = parser{r: r.track.file.r, size: r.track.file.size, win: r.win}
	}
	for {
		if err := ctx.Err(); err != nil {
			return Run{}, err
		}
		var err error
		switch {
		case f.trun.left > 0:
			return r.fromTrun()
		case f.trafAt < f.traf.end:
			err = r.inTraf()
		case f.moofAt < f.moof.end:
			err = r.inMoof()
		default:
			err = r.inFile()
		}
		if err != nil {
			return Run{}, err
		}
	}
}

// inFile reads the next box of the file.
func (r *Runs) inFile() error {
	f, file := &r.fragments, r.track.file
	if !file.Fragmented && f.at < file.moov.end {
		f.at, f.movieSeen = file.moov.end, true // what is before was looked at
	}
	b, ok, err := f.p.boxAt(f.at, file.size)
	if err != nil || !ok {
		return r.ended(err)
	}
	switch b.kind {
	case "moov":
		if f.movieSeen {
			return damaged("Another movie follows behind the first, at byte %d.", b.at)
		}
		f.movieSeen = true
	case "moof":
		if !file.Fragmented {
			return damaged("The file has a fragment at byte %d, but says that it has none.", b.at)
		}
		f.moof, f.moofAt, f.trafs = b, b.body, 0
	}
	f.at = b.end
	return nil
}

// ended says what it means that no further box of the file follows, or none that is whole: io.EOF is the end. Behind a movie that is complete
// by its tables junk does no harm.
func (r *Runs) ended(err error) error {
	at, file := r.fragments.at, r.track.file
	var damage *Error
	if err != nil && !errors.As(err, &damage) {
		return err
	}
	if at == file.size {
		return io.EOF
	}
	if !file.Fragmented {
		if err == nil {
			return io.EOF
		}
		h, readErr := r.win.Bytes(at+4, 4) // there is a whole header, or there was no error
		if readErr != nil {
			return readErr
		}
		if !plausible(h) {
			return io.EOF
		}
	}
	if err == nil {
		err = damaged("The file is cut off, or damaged at byte %d.", at)
	}
	return err
}

// plausible tells the kind of a box from junk.
func plausible(kind []byte) bool {
	for _, c := range kind {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}

// inMoof reads the next box of the moof.
func (r *Runs) inMoof() error {
	f := &r.fragments
	b, ok, err := f.p.boxAt(f.moofAt, f.moof.end)
	if err != nil {
		return err
	}
	if !ok {
		f.moofAt = f.moof.end
		return nil
	}
	f.moofAt = b.end
	if b.kind == "traf" {
		f.trafs++
		f.traf, f.trafAt, f.header = b, b.body, false
	}
	return nil
}

// inTraf reads the next box of the traf.
func (r *Runs) inTraf() error {
	f := &r.fragments
	b, ok, err := f.p.boxAt(f.trafAt, f.traf.end)
	if err != nil {
		return err
	}
	if !ok {
		f.trafAt = f.traf.end
		return nil
	}
	f.trafAt = b.end
	switch b.kind {
	case "tfhd":
		if f.header {
			return damaged("A fragment of the file has two boxes \"tfhd\".")
		}
		f.header = true
		return r.trafHeader(b)
	case "trun":
		if !f.header {
			return damaged("A fragment of the file has no tfhd box before its samples.")
		}
		return r.openTrun(b)
	}
	return nil
}

// trafHeader reads tfhd (section 8.8.7). It skips the traf of another track.
func (r *Runs) trafHeader(b box) error {
	f, t := &r.fragments, r.track
	h, err := r.fullBox(b, 8)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(h[4:]) != t.ID {
		f.trafAt = f.traf.end
		return nil
	}
	flags := binary.BigEndian.Uint32(h) & 0xFFFFFF
	n := 8
	for _, field := range []struct {
		flag  uint32
		bytes int
	}{{tfhdBase, 8}, {tfhdDescription, 4}, {tfhdTicks, 4}, {tfhdBytes, 4}} {
		if flags&field.flag != 0 {
			n += field.bytes
		}
	}
	if h, err = r.fullBox(b, n); err != nil {
		return err
	}
	h = h[8:]
	field := func(flag uint32, otherwise int64) int64 {
		if flags&flag == 0 {
			return otherwise
		}
		v := int64(binary.BigEndian.Uint32(h))
		h = h[4:]
		return v
	}
	f.base, f.relative = f.moof.at, flags&(tfhdBase|tfhdBaseIsMoof) == 0 && f.trafs > 1
	if flags&tfhdBase != 0 {
		f.base = int64(min(binary.BigEndian.Uint64(h), 1<<62))
		h = h[8:]
	}
	f.data = f.base
	f.defaults.description = uint32(field(tfhdDescription, int64(t.defaults.description)))
	f.defaults.ticks = field(tfhdTicks, t.defaults.ticks)
	f.defaults.bytes = field(tfhdBytes, t.defaults.bytes)
	return nil
}

// fullBox is the first n bytes of a box's content.
func (r *Runs) fullBox(b box, n int) ([]byte, error) {
	if b.bytes() < int64(n) {
		return nil, damaged("The box %q at byte %d is too short.", b.kind, b.at)
	}
	return r.win.Bytes(b.body, n)
}

// openTrun reads the header of trun (section 8.8.8).
func (r *Runs) openTrun(b box) error {
	f := &r.fragments
	h, err := r.fullBox(b, 8)
	if err != nil {
		return err
	}
	flags, count := binary.BigEndian.Uint32(h)&0xFFFFFF, int64(binary.BigEndian.Uint32(h[4:]))
	n := 8
	if flags&trunOffset != 0 {
		n += 4
	}
	if flags&trunFirstFlags != 0 {
		n += 4
	}
	if h, err = r.fullBox(b, n); err != nil {
		return err
	}
	if count == 0 {
		return nil
	}
	if f.relative {
		return unsupported("A fragment of the file gives places relative to those of another track, which is not supported.")
	}
	if flags&trunOffset != 0 {
		f.data = f.base + int64(int32(binary.BigEndian.Uint32(h[8:])))
	}
	if err := r.checkDescription(f.defaults.description); err != nil {
		return err
	}
	t := trun{at: b.body + int64(n), left: count, flags: flags}
	for _, flag := range []uint32{trunTicks, trunBytes, trunFlags, trunShift} {
		if flags&flag != 0 {
			t.width += 4
		}
	}
	if t.width > 0 && count > (b.end-t.at)/t.width {
		return damaged("The box %q at byte %d claims %d samples, more than its %d bytes hold.", b.kind, b.at, count, b.bytes())
	}
	f.trun = t
	return nil
}

// fromTrun gives the next samples of a trun. Without a table they are all the same.
func (r *Runs) fromTrun() (Run, error) {
	f := &r.fragments
	t := &f.trun
	run := Run{At: f.data, Count: 1, Bytes: f.defaults.bytes, Ticks: f.defaults.ticks}
	if t.width == 0 {
		run.Count = t.left
	} else {
		h, err := r.win.Bytes(t.at, int(t.width))
		if err != nil {
			return Run{}, err
		}
		if t.flags&trunTicks != 0 {
			run.Ticks = int64(binary.BigEndian.Uint32(h))
			h = h[4:]
		}
		if t.flags&trunBytes != 0 {
			run.Bytes = int64(binary.BigEndian.Uint32(h))
		}
		t.at += t.width
	}
	if err := r.track.file.checkRun(run); err != nil {
		return Run{}, err
	}
	t.left -= run.Count
	f.data += run.Count * run.Bytes
	return run, nil
}
