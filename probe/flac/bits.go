package flac

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

const (
	windowBytes = 64 << 10 // of input held at once
	spareBytes  = 8        // zeros behind it, so that eight bytes can be loaded at any place
)

// bitReader reads bits, most significant first, through a window over its source. The first error sticks: from then on everything reads
// as zero, so that a parser need look only now and then. Each loop around it is bounded by a count that was read before.
type bitReader struct {
	src  io.Reader
	buf  []byte // windowBytes+spareBytes
	pos  int    // the next bit, from the start of buf
	end  int    // bits in buf
	base int64  // bytes of the source before buf
	eof  bool
	err  error

	crc     uint16
	crcFrom int // the byte in buf from which on bytes are not in crc yet
}

func newBitReader(src io.Reader) *bitReader {
	return &bitReader{src: src, buf: make([]byte, windowBytes+spareBytes)}
}

// offset is how many whole bytes of the source have been read.
func (r *bitReader) offset() int64 { return r.base + int64(r.pos/8) }

// fill moves what is unread to the start of the window and reads more, until at least need bits are there or the source ends.
func (r *bitReader) fill(need int) {
	if r.eof || r.err != nil {
		return
	}
	first := r.pos / 8
	r.crc = crc16(r.crc, r.buf[r.crcFrom:max(first, r.crcFrom)])
	r.crcFrom = max(r.crcFrom-first, 0)
	n := copy(r.buf, r.buf[first:r.end/8])
	r.base += int64(first)
	r.pos -= first * 8
	for n*8 < r.pos+need && !r.eof {
		m, err := r.src.Read(r.buf[n:windowBytes])
		n += m
		switch {
		case errors.Is(err, io.EOF):
			r.eof = true
		case err != nil:
			r.err = fmt.Errorf("flac: read: %w", err)
			r.pos, r.end, r.crcFrom = 0, 0, 0
			return
		}
	}
	r.end = n * 8
	clear(r.buf[n : n+spareBytes])
}

// have reports whether n bits can be read, at most as many as the window holds.
func (r *bitReader) have(n int) bool {
	if r.pos+n > r.end {
		r.fill(n)
	}
	return r.pos+n <= r.end
}

func (r *bitReader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.pos = r.end
}

// read gives the next n bits, n up to 56.
func (r *bitReader) read(n uint) uint64 {
	if !r.have(int(n)) {
		r.fail(errCut)
		return 0
	}
	v := binary.BigEndian.Uint64(r.buf[r.pos/8:]) << (r.pos % 8) >> (64 - n)
	r.pos += int(n)
	return v
}

// signed gives the next n bits as a two's complement number.
func (r *bitReader) signed(n uint) int64 {
	return int64(r.read(n)<<(64-n)) >> (64 - n)
}

// unary gives the number of zeros before the next one. More than most of them are damage.
func (r *bitReader) unary(most uint64) uint64 {
	zeros := uint64(0)
	for {
		if !r.have(1) {
			r.fail(errCut)
			return 0
		}
		here := min(64-r.pos%8, r.end-r.pos)
		n := min(bits.LeadingZeros64(binary.BigEndian.Uint64(r.buf[r.pos/8:])<<(r.pos%8)), here)
		zeros += uint64(n)
		r.pos += n
		if zeros > most {
			r.fail(damaged("a run of more than %d zeros", most))
			return 0
		}
		if n < here {
			r.pos++
			return zeros
		}
	}
}

// align skips to the next byte.
func (r *bitReader) align() { r.pos = (r.pos + 7) &^ 7 }

// startCRC begins a checksum at the next byte.
func (r *bitReader) startCRC() { r.crc, r.crcFrom = 0, r.pos/8 }

// sum is the checksum of all bytes since startCRC; the reader is aligned.
func (r *bitReader) sum() uint16 {
	at := r.pos / 8
	r.crc = crc16(r.crc, r.buf[r.crcFrom:at])
	r.crcFrom = at
	return r.crc
}
