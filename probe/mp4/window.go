package mp4

import (
	"errors"
	"io"
)

// Window reads pieces of a file, mostly in order, through a buffer. Where they follow each other it reads ever more ahead, up to its most; where
// they do not, a little.
type Window struct {
	r       io.ReaderAt
	end     int64 // it reads nothing behind
	most    int
	at      int64 // of the buffer in the file
	buf     []byte
	forward int // how much was read last
}

const minForward = 4 << 10

// errOutside is returned for bytes that are not there: callers check before, so that it reaches nobody unless they are wrong.
var errOutside = errors.New("mp4: read beyond the end")

// NewWindow makes a Window on what lies before end. It takes most bytes of memory, or as many as the largest piece has.
func NewWindow(r io.ReaderAt, end int64, most int) *Window {
	return &Window{r: r, end: end, most: most}
}

// Bytes is the piece of n bytes at an offset. It is valid until the next call. Errors are those of the reader underneath.
func (w *Window) Bytes(at int64, n int) ([]byte, error) {
	if at < 0 || n < 0 || int64(n) > w.end-at {
		return nil, errOutside
	}
	if at < w.at || at+int64(n) > w.at+int64(len(w.buf)) {
		if err := w.fill(at, n); err != nil {
			return nil, err
		}
	}
	from := int(at - w.at)
	return w.buf[from : from+n], nil
}

func (w *Window) fill(at int64, n int) error {
	if at >= w.at && at <= w.at+int64(len(w.buf)) && len(w.buf) > 0 {
		w.forward = min(2*w.forward, w.most)
	} else {
		w.forward = min(minForward, w.most)
	}
	read := int(min(int64(max(n, w.forward)), w.end-at))
	if cap(w.buf) < read {
		w.buf = make([]byte, max(read, int(min(int64(w.most), w.end))))
	}
	w.buf = w.buf[:read]
	w.at = at
	if got, err := w.r.ReadAt(w.buf, at); got < read {
		w.buf = w.buf[:0]
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// keptReader has a part of a file in memory.
type keptReader struct {
	io.ReaderAt
	at   int64
	kept []byte
}

// ReadAt implements io.ReaderAt.
func (r *keptReader) ReadAt(p []byte, off int64) (int, error) {
	if from := off - r.at; from >= 0 && from+int64(len(p)) <= int64(len(r.kept)) {
		return copy(p, r.kept[from:]), nil
	}
	return r.ReaderAt.ReadAt(p, off)
}
