package mp3

import "encoding/binary"

// bitReader reads bits, most significant first. Whoever uses it sees to it that at stays within the data and the spare bytes behind.
type bitReader struct {
	data *[reservoirBytes + MaxFrameBytes + spareBytes]byte
	at   int // bits
}

// peek has the next 57 bits at its top, or more.
func (r *bitReader) peek() uint64 {
	return binary.BigEndian.Uint64(r.data[r.at>>3:]) << (r.at & 7)
}

// read gives the next n bits, n up to 32.
func (r *bitReader) read(n uint) int {
	v := r.peek() >> (64 - n)
	r.at += int(n)
	return int(v)
}
