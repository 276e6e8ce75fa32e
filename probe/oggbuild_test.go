package probe

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
)

// oggWriter writes the pages of a stream.
type oggWriter struct {
	serial, number uint32
	out            []byte
}

// Flags of pages.
const (
	oggContinued = 1
	oggFirst     = 2
	oggLast      = 4
)

// page writes whole packets.
func (w *oggWriter) page(flags byte, position int64, packets ...[]byte) *oggWriter {
	var lacing []byte
	for _, p := range packets {
		lacing = append(append(lacing, bytes.Repeat([]byte{255}, len(p)/255)...), byte(len(p)%255))
	}
	return w.raw(flags, position, lacing, slices.Concat(packets...))
}

// long writes a packet over as many pages as it takes.
func (w *oggWriter) long(position int64, packet []byte) *oggWriter {
	const most = 255 * 255
	flags := byte(0)
	for ; len(packet) >= most; packet = packet[most:] {
		w.raw(flags, unknown, bytes.Repeat([]byte{255}, 255), packet[:most])
		flags = oggContinued
	}
	return w.page(flags, position, packet)
}

func (w *oggWriter) raw(flags byte, position int64, lacing, body []byte) *oggWriter {
	w.out = append(w.out, oggPage(flags, position, w.serial, w.number, lacing, body)...)
	w.number++
	return w
}

func oggPage(flags byte, position int64, serial, number uint32, lacing, body []byte) []byte {
	b := put(le, "OggS", uint8(0), flags, position, serial, number, uint32(0), uint8(len(lacing)), lacing, body)
	return oggSigned(b)
}

// oggSigned sets the checksum of a page.
func oggSigned(page []byte) []byte {
	binary.LittleEndian.PutUint32(page[22:], 0)
	var c uint32
	for _, v := range page {
		c = c<<8 ^ oggTable[byte(c>>24)^v]
	}
	binary.LittleEndian.PutUint32(page[22:], c)
	return page
}

// oggTable has the checksum of each byte.
var oggTable = func() (t [256]uint32) {
	for i := range t {
		t[i] = slowCRC([]byte{byte(i)}, 32, 0x04C11DB7)
	}
	return t
}()

// oggRepaired sets the checksums of all pages, as far as there are any.
func oggRepaired(file []byte) []byte {
	file = bytes.Clone(file)
	for rest := file; len(rest) >= 27; {
		size := 27 + int(rest[26])
		for _, v := range rest[27:min(size, len(rest))] {
			size += int(v)
		}
		if size > len(rest) {
			break
		}
		oggSigned(rest[:size])
		rest = rest[size:]
	}
	return file
}

// oggPages splits a file, which is whole.
func oggPages(t testing.TB, file []byte) (pages [][]byte) {
	t.Helper()
	for len(file) > 0 {
		size := 27 + int(file[26])
		for _, v := range file[27:size] {
			size += int(v)
		}
		pages = append(pages, file[:size])
		file = file[size:]
	}
	return pages
}

const testPreSkip = 312

// opusHeadPacket is that of one or two channels.
func opusHeadPacket(channels, gain int) []byte {
	return put(le, opusMagic, uint8(1), uint8(channels), uint16(testPreSkip), uint32(16000), int16(gain), uint8(0))
}

var opusTags = put(le, "OpusTags", uint32(4), "test", uint32(0))

// opusStart are the header pages of a stream.
func opusStart(serial uint32, channels int) *oggWriter {
	w := &oggWriter{serial: serial}
	return w.page(oggFirst, 0, opusHeadPacket(channels, 0)).page(0, 0, opusTags)
}

// quiet are n Opus packets of 20 ms without sound.
func quiet(n int) [][]byte {
	return slices.Repeat([][]byte{{0x48, 0xFF, 0xFE}}, n)
}

// quietOpus is a stream of full seconds, a page each.
func quietOpus(serial uint32, channels, seconds int) []byte {
	w := opusStart(serial, channels)
	for i := range seconds {
		flags := byte(0)
		if i == seconds-1 {
			flags = oggLast
		}
		w.page(flags, int64(i+1)*opusRate, quiet(50)...)
	}
	return w.out
}

// bareOgg is the first page of a stream that is not decoded.
func bareOgg(serial uint32, packet string) []byte {
	return oggPage(oggFirst, 0, serial, 0, []byte{byte(len(packet))}, []byte(packet))
}

// oggFLACStart are the header packets of FLAC at 16 kHz: with other metadata, as many as extra, and a claim of how many there are.
func oggFLACStart(samples int64, extra, claimed int) *oggWriter {
	w := &oggWriter{serial: 5}
	w.page(oggFirst, 0, put(be, "\x7fFLAC\x01\x00", uint16(claimed), streamInfo(16000, 1, 16, samples, extra == 0)))
	for range extra {
		w.page(0, 0, []byte{0x04, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0})
	}
	return w
}
