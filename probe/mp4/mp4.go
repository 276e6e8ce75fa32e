// Package mp4 finds the audio in files of the ISO base media format: MP4, M4A, 3GP (ISO 14496-12 and -14) and QuickTime movies (QuickTime File
// Format Specification), whole or in fragments.
//
// It reads boxes and tables, not samples, and decodes nothing. The files come from strangers:
//
//   - Memory is bounded, whatever the file claims: about 200 kB for Parse, and 100 kB for Runs. Tables are read piece by piece, unless the
//     whole moov box is small.
//   - Every run of samples that Runs gives lies within the file.
//   - Work is linear in the bytes of boxes and tables. Many samples of one size are one run, so that a claim of 4 billion costs no more than
//     one of 4.
//
// The package opens no other file: movies whose media lies elsewhere are refused. What it says of durations is what the file claims.
package mp4

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
)

// Error is what is wrong with a file. Other errors are those of the reader underneath, and of the context.
type Error struct {
	Unsupported bool   // the file may be whole, but needs what is not supported here
	Detail      string // a sentence
}

func (e *Error) Error() string { return "mp4: " + e.Detail }

func damaged(format string, args ...any) error {
	return &Error{Detail: fmt.Sprintf(format, args...)}
}

func unsupported(format string, args ...any) error {
	return &Error{Unsupported: true, Detail: fmt.Sprintf(format, args...)}
}

// Unknown is a duration or length that the file does not tell.
const Unknown = -1

// File is what a file's boxes tell.
type File struct {
	Brand       string // of ftyp, four characters; empty in old QuickTime movies
	Tracks      int    // of all kinds
	AudioTracks int
	Audio       *Track // the first audio track that has samples; nil if AudioTracks is 0
	Fragmented  bool   // there may be samples in fragments behind the moov box

	MovieTimescale   uint32 // units per second of the movie's own times; 0 if the file does not tell
	MovieDuration    int64  // of the longest track, in these units; Unknown
	FragmentDuration int64  // the same with all fragments

	parser
	moov, mvex box
	fragment   bool         // a fragment stands before moov
	sounds     []trackBoxes // audio tracks, the first of them
}

// Bounds of what is walked through. Real files have some hundred boxes outside of fragments.
const (
	maxBoxes  = 100_000
	maxDepth  = 8
	maxSounds = 16
)

// parser reads boxes.
type parser struct {
	r     io.ReaderAt
	size  int64
	win   *Window
	boxes int // seen so far
}

// box is a box with its content, from body to end.
type box struct {
	kind          string
	at, body, end int64
}

func (b box) bytes() int64 { return b.end - b.body }

// boxAt reads a box's header (ISO 14496-12, section 4.2). It is not ok if fewer bytes are left before end than a header has, or zeros: in
// QuickTime four of them end a list.
func (p *parser) boxAt(at, end int64) (b box, ok bool, err error) {
	if end-at < 8 {
		return box{}, false, nil
	}
	h, err := p.win.Bytes(at, 8)
	if err != nil {
		return box{}, false, err
	}
	b = box{kind: string(h[4:8]), at: at, body: at + 8}
	size := uint64(binary.BigEndian.Uint32(h))
	switch {
	case size == 0 && (end < p.size || b.kind == "\x00\x00\x00\x00"):
		return box{}, false, nil
	case size == 0: // up to the end of the file
		b.end = end
		return b, true, nil
	case size == 1:
		if end-at < 16 {
			return box{}, false, damaged("The box %q at byte %d is cut off.", b.kind, at)
		}
		if h, err = p.win.Bytes(at+8, 8); err != nil {
			return box{}, false, err
		}
		size, b.body = binary.BigEndian.Uint64(h), at+16
	}
	if size < uint64(b.body-at) {
		return box{}, false, damaged("The box %q at byte %d claims a size of %d bytes, less than its header has.", b.kind, at, size)
	}
	if size > uint64(end-at) {
		return box{}, false, damaged("The box %q at byte %d claims %d bytes, but only %d are left.", b.kind, at, size, end-at)
	}
	b.end = at + int64(size)
	return b, true, nil
}

// children visits the boxes in another.
func (p *parser) children(parent box, visit func(box) error) error {
	for at := parent.body; ; {
		b, ok, err := p.boxAt(at, parent.end)
		if err != nil || !ok {
			return err
		}
		if p.boxes++; p.boxes > maxBoxes {
			return damaged("The file has more than %d boxes.", maxBoxes)
		}
		if err := visit(b); err != nil {
			return err
		}
		at = b.end
	}
}

// Parse finds the moov box and what it says of the first audio track. Boxes behind moov are not looked at: see Runs.
func Parse(ctx context.Context, r io.ReaderAt, size int64) (*File, error) {
	f := &File{MovieDuration: Unknown, FragmentDuration: Unknown, parser: parser{r: r, size: size, win: NewWindow(r, size, 16<<10)}}
	if err := f.findMovie(ctx); err != nil {
		return nil, err
	}
	if err := f.movie(ctx); err != nil {
		return nil, err
	}
	if f.fragment && !f.Fragmented {
		return nil, damaged("The file has a fragment, but says that it has none.")
	}
	if err := f.chooseAudio(); err != nil {
		return nil, err
	}
	return f, nil
}

// findMovie looks for moov among the boxes of the file.
func (f *File) findMovie(ctx context.Context) error {
	image := false
	for at := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, ok, err := f.boxAt(at, f.size)
		switch {
		case err != nil:
			return err
		case !ok && f.fragment:
			return damaged("The file is a fragment of a longer one, without the start that describes it.")
		case !ok && image:
			return unsupported("The file is an image, not a recording.")
		case !ok:
			return damaged("The file has no moov box: it was never finished, or its end is missing.")
		}
		switch b.kind {
		case "ftyp":
			if b.bytes() >= 4 && f.Brand == "" {
				h, err := f.win.Bytes(b.body, 4)
				if err != nil {
					return err
				}
				f.Brand = string(h)
			}
		case "moov":
			f.moov = b
			return f.keepMovie()
		case "meta":
			image = true
		case "moof":
			f.fragment = true
		}
		at = b.end
	}
}

// keepBytes is how large a moov box may be to be kept in memory: those of some minutes of audio are.
const keepBytes = 32 << 10

// keepMovie reads a small moov box at once.
func (f *File) keepMovie() error {
	if f.moov.bytes() > keepBytes {
		return nil
	}
	b, err := f.win.Bytes(f.moov.body, int(f.moov.bytes()))
	if err != nil {
		return err
	}
	kept := &keptReader{ReaderAt: f.r, at: f.moov.body, kept: bytes.Clone(b)}
	f.r = kept
	f.win = NewWindow(kept, f.moov.end, 4<<10)
	return nil
}

// movie reads the moov box.
func (f *File) movie(ctx context.Context) error {
	return f.children(f.moov, func(b box) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch b.kind {
		case "mvhd":
			return f.movieHeader(b)
		case "trak":
			return f.track(b)
		case "mvex":
			f.mvex, f.Fragmented = b, true
			return f.children(b, func(b box) error {
				if b.kind != "mehd" {
					return nil
				}
				var err error
				f.FragmentDuration, err = f.fragmentDuration(b)
				return err
			})
		case "cmov":
			return unsupported("The QuickTime movie's header is compressed, which is not supported.")
		case "rmra":
			return unsupported("The QuickTime movie refers to other files, which is not supported.")
		}
		return nil
	})
}

// movieHeader reads mvhd (section 8.2.2).
func (f *File) movieHeader(b box) error {
	var err error
	f.MovieTimescale, f.MovieDuration, err = f.times(b)
	return err
}

// times reads timescale and duration of mvhd and mdhd: behind two times of the same width.
func (f *File) times(b box) (timescale uint32, duration int64, err error) {
	version, err := f.version(b)
	if err != nil {
		return 0, 0, err
	}
	wide := version == 1
	n := 12 + 8
	if wide {
		n = 4 + 16 + 12
	}
	if b.bytes() < int64(n) {
		return 0, 0, damaged("The box %q is too short.", b.kind)
	}
	h, err := f.win.Bytes(b.body, n)
	if err != nil {
		return 0, 0, err
	}
	if wide {
		return binary.BigEndian.Uint32(h[20:]), known(binary.BigEndian.Uint64(h[24:])), nil
	}
	return binary.BigEndian.Uint32(h[12:]), known32(binary.BigEndian.Uint32(h[16:])), nil
}

// known is a duration, of which 0 and all ones mean that it is not known.
func known(v uint64) int64 {
	if v == 0 || v > 1<<63-1 {
		return Unknown
	}
	return int64(v)
}

func known32(v uint32) int64 {
	if v == 1<<32-1 {
		return Unknown
	}
	return known(uint64(v))
}

// version is the first byte of a full box.
func (f *File) version(b box) (byte, error) {
	if b.bytes() < 4 {
		return 0, damaged("The box %q is too short.", b.kind)
	}
	h, err := f.win.Bytes(b.body, 1)
	if err != nil {
		return 0, err
	}
	return h[0], nil
}

// fragmentDuration reads mehd (section 8.8.2).
func (f *File) fragmentDuration(b box) (int64, error) {
	version, err := f.version(b)
	if err != nil {
		return 0, err
	}
	n := 8
	if version == 1 {
		n = 12
	}
	if b.bytes() < int64(n) {
		return 0, damaged("The box %q is too short.", b.kind)
	}
	h, err := f.win.Bytes(b.body, n)
	if err != nil {
		return 0, err
	}
	if version == 1 {
		return known(binary.BigEndian.Uint64(h[4:])), nil
	}
	return known32(binary.BigEndian.Uint32(h[4:])), nil
}
