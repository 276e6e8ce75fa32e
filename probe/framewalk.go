package probe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
)

// Elementary streams: frames one behind the other, each with a header that says how long it is, and nothing around them (MPEG audio, ADTS).
// Such files come from recorders that were switched off, from radio streams, and from programs that join files, so that they are seldom clean.
//
// The rules:
//
//   - Bytes are such a stream if frames of one kind follow each other: three of them, or fewer where they are the whole file. Before them
//     may be other bytes, in the head of the file, if these are not known to be something else.
//   - Tags (ID3, APE) are skipped wherever they stand. What follows the last frame is ignored if it holds no frame.
//   - Other bytes between frames are left out, with a warning; more than maxJunkBytes of them in all is damage. A frame counts after
//     a gap if others of its kind follow it.
//   - Frames of another kind (rate, channels) are damage.
//   - A frame that the end of the file cuts off is left out, with a warning.

const (
	frameHeadBytes = 8       // of a header, at most
	maxFrameBytes  = 8 << 10 // of a frame
	enoughFrames   = 3       // in a row are no accident
	maxJunkBytes   = 64 << 10
)

// frameHead is what a frame's header says.
type frameHead struct {
	bytes  int   // of the whole frame, at most maxFrameBytes, and more than 0
	frames int64 // sample frames that it decodes to
	kind   frameKind
}

// frameKind is what all frames of a stream have in common.
type frameKind struct {
	name           string // "MPEG-1 Layer III"
	rate, channels int
	detail         int // whatever else must not change
}

func (k frameKind) String() string {
	return fmt.Sprintf("%s with %d Hz and %d channels", k.name, k.rate, k.channels)
}

// frameParser reads the header at the start of b.
type frameParser func(b []byte) (frameHead, bool)

// chain follows frames of one kind from the start of b, which is the rest of the file if last is true. It gives the number of headers up to
// enoughFrames, and whether the last frame ends with the file, or before a tag.
func (parse frameParser) chain(b []byte, last bool) (first frameHead, n int, ends bool) {
	for n < enoughFrames {
		h, ok := parse(b)
		if !ok || n > 0 && h.kind != first.kind {
			break
		}
		if n++; n == 1 {
			first = h
		}
		if h.bytes > len(b) {
			break
		}
		b = b[h.bytes:]
		if last && (len(b) == 0 || tagBytes(b, int64(len(b))) > 0) {
			return first, n, true
		}
	}
	return first, n, false
}

// find looks for the first frame in the head of a file.
func (parse frameParser) find(head []byte) (at int, first frameHead, ok bool) {
	last := len(head) < headBytes
	first, n, ends := parse.chain(head, last)
	if n >= enoughFrames || ends || last && n > 1 {
		return 0, first, true
	}
	for at = range head {
		if head[at] != 0xFF {
			continue
		}
		if first, n, _ = parse.chain(head[at:], last); n >= enoughFrames {
			_, known := knownAs(head)
			return at, first, !known
		}
	}
	return 0, frameHead{}, false
}

// tagBytes is the length of the tag that b starts with; 0 if it starts with none, or with one that is longer than the rest of the file.
func tagBytes(b []byte, rest int64) int64 {
	n := int64(0)
	switch {
	case len(b) >= 10 && string(b[:3]) == "ID3" && (b[6]|b[7]|b[8]|b[9])&0x80 == 0:
		n = 10 + (int64(b[6])<<21 | int64(b[7])<<14 | int64(b[8])<<7 | int64(b[9]))
		if b[5]&0x10 != 0 {
			n += 10
		}
	case len(b) >= 3 && string(b[:3]) == "TAG": // ID3v1
		n = 128
	case len(b) >= 32 && string(b[:8]) == "APETAGEX": // its header, which does not count itself
		n = 32 + int64(binary.LittleEndian.Uint32(b[12:]))
	}
	if n > rest {
		return 0
	}
	return n
}

// frameWalk walks through an elementary stream.
type frameWalk struct {
	source *source
	parse  frameParser
	kind   frameKind
	sync   byte   // that frames start with; 0: 0xFF
	at     int64  // the next byte
	window []byte // bytes from there on
	buf    [64 << 10]byte

	junk   int64 // bytes that were left out
	junkAt int64 // where the first of them are
	cut    bool  // the last frame is cut off
}

// peek gives the next n bytes, or more, or all that are left. n is less than the buffer's length.
func (w *frameWalk) peek(ctx context.Context, n int) ([]byte, error) {
	if len(w.window) >= n || w.at+int64(len(w.window)) == w.source.size {
		return w.window, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	have := copy(w.buf[:], w.window)
	more := w.buf[have:]
	from := w.at + int64(have)
	if left := w.source.size - from; left < int64(len(more)) {
		more = more[:left]
	}
	if err := w.source.bytes(more, from); err != nil {
		return nil, err
	}
	w.window = w.buf[:have+len(more)]
	return w.window, nil
}

func (w *frameWalk) skip(n int64) {
	w.at += n
	w.window = w.window[min(n, int64(len(w.window))):]
}

// next gives the next frame, valid until the call after, and io.EOF behind the last one.
func (w *frameWalk) next(ctx context.Context) ([]byte, frameHead, error) {
	for {
		b, err := w.peek(ctx, maxFrameBytes)
		switch {
		case err != nil:
			return nil, frameHead{}, err
		case len(b) == 0:
			return nil, frameHead{}, io.EOF
		}
		h, ok := w.parse(b)
		switch {
		case !ok || h.kind != w.kind:
			if err := w.gap(ctx); err != nil {
				return nil, frameHead{}, err
			}
		case h.bytes > len(b):
			w.cut = true
			w.skip(int64(len(b)))
		default:
			w.skip(int64(h.bytes))
			return b[:h.bytes], h, nil
		}
	}
}

// gap skips what is no frame: a tag, or bytes up to the next frame or the end of the file.
func (w *frameWalk) gap(ctx context.Context) error {
	if n := tagBytes(w.window, w.source.size-w.at); n > 0 {
		w.skip(n)
		return nil
	}
	const ahead = enoughFrames*maxFrameBytes + frameHeadBytes
	start, sync := w.at, w.sync
	if sync == 0 {
		sync = 0xFF
	}
	for {
		b, err := w.peek(ctx, ahead)
		if err != nil {
			return err
		}
		last := w.at+int64(len(b)) == w.source.size
		i := bytes.IndexByte(b, sync)
		if i < 0 {
			w.skip(int64(len(b)))
			if last {
				return nil
			}
			continue
		}
		if w.skip(int64(i)); i > 0 && !last && len(w.window) < ahead {
			continue
		}
		h, n, ends := w.parse.chain(w.window, last)
		switch {
		case n >= enoughFrames && h.kind != w.kind:
			return broken("The stream changes at byte %d: from %s to %s.", w.at, w.kind, h.kind)
		case h.kind == w.kind && (n >= enoughFrames || ends && n > 1):
			return w.leftOut(start)
		}
		w.skip(1)
	}
}

// leftOut notes that the bytes from start on are no frames, and that a frame follows.
func (w *frameWalk) leftOut(start int64) error {
	if w.junk == 0 {
		w.junkAt = start
	}
	if w.junk += w.at - start; w.junk > maxJunkBytes {
		return broken("The stream is damaged: from byte %d on, %d bytes between frames are no frames.", w.junkAt, w.junk)
	}
	return nil
}

// warnings say what was left out so far.
func (w *frameWalk) warnings() (all []string) {
	if w.junk > 0 {
		all = append(all, fmt.Sprintf("%d bytes between frames, the first at byte %d, are no audio and were left out.", w.junk, w.junkAt))
	}
	if w.cut {
		all = append(all, "The last frame is cut off and was left out.")
	}
	return all
}

// walkedTrack is the track of a file that is frames and nothing else. It tells what was found between them.
type walkedTrack struct {
	*codedTrack
	counted *frameWalk // of the last count
}

// newWalkedTrack makes the track of a stream that is walked through as walk does, from where it stands. unwrap makes the packet of the frame at a byte.
func newWalkedTrack(s *source, st stream, walk frameWalk, unwrap func(b []byte, h frameHead, at int64) (packet, error)) (track, error) {
	t := &walkedTrack{}
	st.packets = func(counting bool) packetReader {
		w := walk
		if counting {
			t.counted = &w
		}
		return &walkedPackets{&w, unwrap}
	}
	coded, err := newCodedTrack(s, st)
	if err != nil {
		return nil, err
	}
	t.codedTrack = coded.(*codedTrack)
	return t, nil
}

func (t *walkedTrack) about() about {
	a := t.codedTrack.about()
	if t.counted != nil {
		a.warnings = append(slices.Clip(a.warnings), t.counted.warnings()...)
	}
	return a
}

// walkedPackets are the packets of such a stream.
type walkedPackets struct {
	walk   *frameWalk
	unwrap func(b []byte, h frameHead, at int64) (packet, error)
}

func (p *walkedPackets) next(ctx context.Context) (packet, error) {
	b, h, err := p.walk.next(ctx)
	if err != nil {
		return packet{}, err
	}
	return p.unwrap(b, h, p.walk.at-int64(h.bytes))
}
