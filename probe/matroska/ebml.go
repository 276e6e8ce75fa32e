package matroska

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/bits"
)

// unknown is the size of an element that does not say it.
const unknown = -1

// windowBytes is the size of reads, and what can be looked at without a copy.
const windowBytes = 64 << 10

// window reads a file forwards through a buffer.
type window struct {
	r    io.ReaderAt
	size int64
	at   int64 // the next byte
	from int64 // the first byte in buf
	buf  []byte
}

func newWindow(r io.ReaderAt, size, at int64) *window {
	return &window{r: r, size: size, at: at, from: at, buf: make([]byte, 0, min(size, windowBytes))}
}

// peek gives the next n bytes, at most windowBytes, until the next call. The file must hold them.
func (w *window) peek(n int64) ([]byte, error) {
	if n > w.size-w.at {
		return nil, damaged(w.at, "the file ends here, and %d bytes are missing", n-(w.size-w.at))
	}
	if w.at < w.from || w.at > w.from+int64(len(w.buf)) {
		w.from, w.buf = w.at, w.buf[:0]
	}
	if have := w.from + int64(len(w.buf)) - w.at; have < n {
		w.buf = w.buf[:copy(w.buf, w.buf[w.at-w.from:])]
		w.from = w.at
		more := w.buf[len(w.buf):min(int64(cap(w.buf)), w.size-w.at)]
		if m, err := w.r.ReadAt(more, w.at+have); m < len(more) {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		w.buf = w.buf[:len(w.buf)+len(more)]
	}
	return w.buf[w.at-w.from:][:n], nil
}

// take is peek, and goes on behind what it gives.
func (w *window) take(n int64) ([]byte, error) {
	b, err := w.peek(n)
	if err == nil {
		w.at += n
	}
	return b, err
}

// copyTo fills p.
func (w *window) copyTo(p []byte) error {
	for len(p) > 0 {
		b, err := w.take(min(int64(len(p)), windowBytes))
		if err != nil {
			return err
		}
		p = p[copy(p, b):]
	}
	return nil
}

// vint reads a number of up to max bytes in EBML's variable length, whose first byte tells how many it has. It gives them as they are and
// without the marker. end bounds it.
func (w *window) vint(longest int, end int64) (raw, value uint64, length int, err error) {
	start := w.at
	if start >= end {
		return 0, 0, 0, damaged(start, "an element is cut off")
	}
	b, err := w.peek(1)
	if err != nil {
		return 0, 0, 0, err
	}
	length = bits.LeadingZeros8(b[0]) + 1
	if length > longest {
		return 0, 0, 0, damaged(start, "%02x begins no element", b[0])
	}
	if int64(length) > end-start {
		return 0, 0, 0, damaged(start, "an element is cut off")
	}
	if b, err = w.take(int64(length)); err != nil {
		return 0, 0, 0, err
	}
	for _, v := range b {
		raw = raw<<8 | uint64(v)
	}
	return raw, raw &^ (1 << (7 * length)), length, nil
}

// allOnes says whether a value of so many bytes is the reserved one.
func allOnes(value uint64, length int) bool { return value == 1<<(7*length)-1 }

// element is the header of an element.
type element struct {
	id       uint32
	at, body int64 // where it and its content start
	size     int64 // of the content; unknown
}

func (e element) end() int64 { return e.body + e.size }

// element reads the header of the next element, which must end before end.
func (w *window) element(end int64) (e element, err error) {
	e.at = w.at
	id, value, n, err := w.vint(4, end)
	if err != nil {
		return e, err
	}
	if value == 0 || allOnes(value, n) {
		return e, damaged(e.at, "%x is no element", id)
	}
	e.id = uint32(id)
	_, size, n, err := w.vint(8, end)
	if err != nil {
		return e, err
	}
	e.body, e.size = w.at, int64(size) // 56 bits
	switch {
	case allOnes(size, n):
		e.size = unknown
	case e.size > end-e.body:
		return e, damaged(e.at, "element %X claims %d bytes, but %d follow", e.id, e.size, end-e.body)
	}
	return e, nil
}

// children calls visit for each element in a parent of known size. visit may leave the window anywhere.
func (w *window) children(parent element, visit func(element) error) error {
	if parent.size == unknown {
		return damaged(parent.at, "element %X has no size", parent.id)
	}
	for w.at = parent.body; w.at < parent.end(); {
		e, err := w.element(parent.end())
		if err != nil {
			return err
		}
		if e.size == unknown {
			return damaged(e.at, "element %X has no size", e.id)
		}
		if err := visit(e); err != nil {
			return err
		}
		w.at = e.end()
	}
	return nil
}

// content is what a short element holds.
func (w *window) content(e element, most int64) ([]byte, error) {
	if e.size > most {
		return nil, damaged(e.at, "element %X has %d bytes, more than %d", e.id, e.size, most)
	}
	w.at = e.body
	return w.peek(e.size)
}

func (w *window) uint(e element) (v uint64, err error) {
	b, err := w.content(e, 8)
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v, err
}

func (w *window) int(e element) (int64, error) {
	v, err := w.uint(e)
	if err != nil {
		return 0, err
	}
	shift := 64 - 8*e.size
	return int64(v<<shift) >> shift, nil // the sign is that of its first bit; a shift by 64, of no bytes, gives 0
}

func (w *window) float(e element) (float64, error) {
	b, err := w.content(e, 8)
	if err != nil {
		return 0, err
	}
	switch len(b) {
	case 0:
		return 0, nil
	case 4:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(b))), nil
	case 8:
		return math.Float64frombits(binary.BigEndian.Uint64(b)), nil
	}
	return 0, damaged(e.at, "a number of %d bytes", len(b))
}

// text reads a short string, which may be padded with zeros.
func (w *window) text(e element) (string, error) {
	const longest = 256
	b, err := w.content(e, longest)
	if err != nil {
		return "", err
	}
	for i, c := range b {
		if c == 0 {
			b = b[:i]
			break
		}
		if c < ' ' || c > '~' {
			return "", damaged(e.at, "element %X is no text", e.id)
		}
	}
	return string(b), nil
}
