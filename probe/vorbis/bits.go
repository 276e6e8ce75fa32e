package vorbis

import "encoding/binary"

// bitReader reads bits of a packet, least significant first (Vorbis I, section 2.1). Beyond the packet's end everything reads as zero, and ended
// is set: what that means depends on where it happens (section 4.3.3: "end of packet").
type bitReader struct {
	b     []byte
	pos   int // the next bit
	ended bool
}

// left is how many bits there are.
func (r *bitReader) left() int { return 8*len(r.b) - r.pos }

// window is the next bits, at least 57 of them, and zeros behind the packet's end.
func (r *bitReader) window() uint64 {
	at := r.pos / 8
	if at+8 <= len(r.b) {
		return binary.LittleEndian.Uint64(r.b[at:]) >> (r.pos % 8)
	}
	var v uint64
	for i := len(r.b) - 1; i >= at; i-- {
		v = v<<8 | uint64(r.b[i])
	}
	return v >> (r.pos % 8)
}

// skip goes n bits on and reports whether they were there.
func (r *bitReader) skip(n int) bool {
	if n > r.left() {
		r.pos, r.ended = 8*len(r.b), true
		return false
	}
	r.pos += n
	return true
}

// read gives n bits as a number, n up to 56.
func (r *bitReader) read(n int) int {
	v := r.window() & (1<<n - 1)
	if !r.skip(n) {
		return 0
	}
	return int(v)
}

func (r *bitReader) flag() bool { return r.read(1) == 1 }
