// Package ogg reads the pages of an Ogg file, and the packets of one of its streams (RFC 3533). It knows no codecs.
//
// It is written for bytes from strangers. A Reader holds 96 kB, of which a page takes at most 65,307 bytes; packets are read as they come, whatever
// their length, so that nothing is allocated for them. Every page is held against its checksum, and the pages of a stream against their numbers.
// Nothing is skipped to find the next page: what to do about bytes that are none is up to the caller. The cost is linear in the bytes.
package ogg

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The ways in which a file ends, besides io.EOF behind a whole page and errors of the reader underneath.
var (
	// ErrNoPage says that what follows the last page does not start like one. It is not consumed.
	ErrNoPage = errors.New("ogg: no page here")
	// ErrCut says that the file ends within a page, or a stream within a packet.
	ErrCut = errors.New("ogg: cut off")
	// ErrDamaged says that a page started and was wrong.
	ErrDamaged = errors.New("ogg: damaged page")
	// ErrLost says that pages of a stream are missing, or stand twice.
	ErrLost = errors.New("ogg: pages are missing")
)

const (
	headerBytes  = 27
	maxPageBytes = headerBytes + 255 + 255*255
	bufferBytes  = 96 << 10

	magic = "OggS\x00" // with the version
)

// Page is one page (section 6).
type Page struct {
	At        int64 // where it starts in the file
	Continued bool  // it starts within a packet
	First     bool  // it begins a stream
	Last      bool  // it ends a stream
	Granule   int64 // where its last whole packet ends, in the unit of the codec; negative where no packet ends
	Serial    uint32
	Number    uint32 // within the stream

	lacing, body []byte
}

// Packets is how many packets end on the page.
func (p *Page) Packets() int {
	n := 0
	for _, v := range p.lacing {
		if v < 255 {
			n++
		}
	}
	return n
}

// Body is the content of all packets on the page.
func (p *Page) Body() []byte { return p.body }

// Reader reads page after page. It is not safe for concurrent use.
type Reader struct {
	src        io.Reader
	buf        []byte
	start, end int   // of what was read and not given yet
	base       int64 // bytes of the file before buf
	err        error // of src
	page       Page
}

// NewReader reads the file r from its start.
func NewReader(r io.Reader) *Reader {
	return &Reader{src: r, buf: make([]byte, bufferBytes)}
}

// Offset is the number of bytes read as whole pages.
func (r *Reader) Offset() int64 { return r.base + int64(r.start) }

// have reads until n bytes are there, and says how many are: fewer at the end of the file.
func (r *Reader) have(n int) (int, error) {
	if r.end-r.start < n && r.err == nil {
		r.base += int64(r.start)
		r.end = copy(r.buf, r.buf[r.start:r.end])
		r.start = 0
		for empty := 0; r.end < n && r.err == nil; {
			var m int
			m, r.err = r.src.Read(r.buf[r.end:])
			r.end += m
			if empty++; m > 0 {
				empty = 0
			} else if empty == 100 && r.err == nil {
				r.err = io.ErrNoProgress
			}
		}
	}
	if r.end-r.start < n && !errors.Is(r.err, io.EOF) {
		return 0, fmt.Errorf("ogg: read: %w", r.err)
	}
	return min(r.end-r.start, n), nil
}

// Next reads a page, which is valid until the next call.
func (r *Reader) Next() (*Page, error) {
	n, err := r.have(headerBytes)
	if err != nil {
		return nil, err
	}
	b := r.buf[r.start:r.end]
	switch {
	case n == 0:
		return nil, io.EOF
	case !bytes.HasPrefix(b, []byte(magic[:min(n, len(magic))])):
		return nil, ErrNoPage
	case n < headerBytes:
		return nil, ErrCut
	}
	size := headerBytes + int(b[26])
	if n, err = r.have(size); err != nil || n < size {
		return nil, cut(err)
	}
	lacing := size
	for _, v := range r.buf[r.start+headerBytes : r.start+lacing] {
		size += int(v)
	}
	if n, err = r.have(size); err != nil || n < size {
		return nil, cut(err)
	}
	b = r.buf[r.start : r.start+size]
	if sum := checksum(b); sum != binary.LittleEndian.Uint32(b[22:]) {
		return nil, fmt.Errorf("%w: checksum %08x instead of %08x", ErrDamaged, sum, binary.LittleEndian.Uint32(b[22:]))
	}
	r.page = Page{
		At: r.Offset(), Continued: b[5]&1 != 0, First: b[5]&2 != 0, Last: b[5]&4 != 0,
		Granule: int64(binary.LittleEndian.Uint64(b[6:])), Serial: binary.LittleEndian.Uint32(b[14:]),
		Number: binary.LittleEndian.Uint32(b[18:]), lacing: b[headerBytes:lacing], body: b[lacing:],
	}
	r.start += size
	return &r.page, nil
}

func cut(err error) error {
	if err == nil {
		err = ErrCut
	}
	return err
}

// Find looks for something that starts like a page, from Offset on, and moves there. It reports false where the rest of the file has none.
func (r *Reader) Find() (bool, error) {
	for {
		n, err := r.have(bufferBytes)
		if err != nil {
			return false, err
		}
		if i := bytes.Index(r.buf[r.start:r.end], []byte(magic)); i >= 0 {
			r.start += i
			return true, nil
		}
		if n < bufferBytes {
			return false, nil
		}
		r.start = r.end - len(magic) + 1
	}
}
