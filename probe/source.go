package probe

import (
	"errors"
	"fmt"
	"io"

	"github.com/aviary-asr/aviary/probe/ffmpeg"
)

// source is an upload to parse: random access below size, with its first bytes in memory, so that a parser of headers need not think
// about the number of its reads.
type source struct {
	r    io.ReaderAt
	size int64
	head []byte

	ffmpeg  *ffmpeg.Command // decodes what is not decoded here; nil where there is none
	peeking bool            // it is the start of an upload, and not worth a process
}

// headBytes is how much of a file is read to tell what it is. It covers the headers of most files.
const headBytes = 4096

var (
	// errOutside is returned for bytes beyond the end: parsers check before, so that it reaches nobody unless they are wrong.
	errOutside = errors.New("read beyond the end of the file")
	// errShort is a failure of the storage.
	errShort = errors.New("the reader ends before its size")
)

// newSource reads the head.
func newSource(r io.ReaderAt, size int64) (*source, error) {
	s := &source{r: r, size: max(size, 0)}
	head := make([]byte, min(s.size, headBytes))
	if _, err := s.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	s.head = head
	return s, nil
}

// from is the part of the source behind the first n bytes.
func (s *source) from(n int64) (*source, error) {
	rest, err := newSource(io.NewSectionReader(s, n, s.size-n), s.size-n)
	if err == nil {
		rest.ffmpeg, rest.peeking = s.ffmpeg, s.peeking
	}
	return rest, err
}

// bytes fills p from offset off, all of which must exist.
func (s *source) bytes(p []byte, off int64) error {
	if off < 0 || int64(len(p)) > s.size-off {
		return errOutside
	}
	if off+int64(len(p)) <= int64(len(s.head)) {
		copy(p, s.head[off:])
		return nil
	}
	_, err := s.ReadAt(p, off)
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// section reads n bytes from off on.
func (s *source) section(off, n int64) io.Reader {
	return io.NewSectionReader(s, off, n)
}

// ReadAt implements io.ReaderAt. A reader underneath that ends before its size is a failure of the storage, not of the file.
func (s *source) ReadAt(p []byte, off int64) (int, error) {
	if off >= s.size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), s.size-off)]
	n, err := s.r.ReadAt(want, off)
	if n < len(want) {
		if err == nil || errors.Is(err, io.EOF) {
			err = errShort
		}
		return n, fmt.Errorf("read %d bytes at %d of %d: %w", len(want), off, s.size, err)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
