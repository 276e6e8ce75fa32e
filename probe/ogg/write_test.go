package ogg

import (
	"encoding/binary"
	"slices"
)

// pageWriter makes pages of packets.
type pageWriter struct {
	serial, number uint32
	most           int // segments on a page
	out            []byte

	lacing, body []byte
	continued    bool
	ended        bool // a packet ended on the page
	granule      int64
}

// packet adds a packet that ends at the given position.
func (w *pageWriter) packet(data []byte, granule int64) {
	for {
		if len(w.lacing) == w.most {
			w.flush(0, true)
		}
		n := min(len(data), 255)
		w.lacing = append(w.lacing, byte(n))
		w.body = append(w.body, data[:n]...)
		if data = data[n:]; n < 255 {
			w.granule, w.ended = granule, true
			return
		}
	}
}

// flush ends the page, perhaps within a packet.
func (w *pageWriter) flush(flags byte, within bool) {
	if w.continued {
		flags |= 1
	}
	if !w.ended {
		w.granule = -1
	}
	w.out = append(w.out, rawPage(flags, w.granule, w.serial, w.number, w.lacing, w.body)...)
	w.number++
	w.continued = within && len(w.lacing) > 0 && w.lacing[len(w.lacing)-1] == 255
	w.lacing, w.body, w.ended = nil, nil, false
}

func rawPage(flags byte, granule int64, serial, number uint32, lacing, body []byte) []byte {
	b := append([]byte(magic), flags)
	b = binary.LittleEndian.AppendUint64(b, uint64(granule))
	b = binary.LittleEndian.AppendUint32(b, serial)
	b = binary.LittleEndian.AppendUint32(b, number)
	b = slices.Concat(b, []byte{0, 0, 0, 0, byte(len(lacing))}, lacing, body)
	binary.LittleEndian.PutUint32(b[22:], slowChecksum(b))
	return b
}

// slowChecksum computes the checksum bit by bit.
func slowChecksum(page []byte) uint32 {
	var c uint32
	for i, v := range page {
		if i >= 22 && i < 26 {
			v = 0
		}
		for bit := 7; bit >= 0; bit-- {
			carry := c >> 31
			c = c<<1 ^ (carry^uint32(v>>bit&1))*0x04C11DB7
		}
	}
	return c
}
