package probe

import (
	"encoding/binary"
	"io"
	"math"
)

// What tests need to build files from: each part can lie.

var le, be binary.ByteOrder = binary.LittleEndian, binary.BigEndian

// put makes bytes of numbers and strings in the given order.
func put(order binary.ByteOrder, parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch v := p.(type) {
		case string:
			b = append(b, v...)
		case []byte:
			b = append(b, v...)
		default:
			var err error
			if b, err = binary.Append(b, order, v); err != nil {
				panic(err)
			}
		}
	}
	return b
}

// chunk is a RIFF chunk with its true size, and padded.
func chunk(order binary.ByteOrder, id string, body []byte) []byte {
	b := put(order, id, uint32(len(body)), body)
	if len(body)%2 == 1 {
		b = append(b, 0)
	}
	return b
}

// fmtChunk is that of a WAV whose numbers agree.
func fmtChunk(order binary.ByteOrder, tag, channels, rate, width int, extra ...byte) []byte {
	frame := channels * ((width + 7) / 8)
	body := put(order, uint16(tag), uint16(channels), uint32(rate), uint32(rate*frame), uint16(frame), uint16(width), extra)
	return chunk(order, "fmt ", body)
}

// riff puts chunks into a file.
func riff(order binary.ByteOrder, magic string, chunks ...[]byte) []byte {
	var body []byte
	for _, c := range chunks {
		body = append(body, c...)
	}
	return put(order, magic, uint32(len(body)+4), "WAVE", body)
}

// plainWAV is a mono 16-bit file at 16 kHz with n samples of a quiet tone, and the given bytes behind it.
func plainWAV(n int, behind ...byte) []byte {
	return append(riff(le, "RIFF", fmtChunk(le, tagPCM, 1, 16000, 16), chunk(le, "data", tone16(n))), behind...)
}

func tone16(n int) []byte {
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(int16(1000*math.Sin(float64(i)*0.1))))
	}
	return b
}

// streamInfo is the start of a FLAC file up to its first frame, or up to more metadata.
func streamInfo(rate, channels, width int, samples int64, last bool) []byte {
	kind := uint8(0)
	if last {
		kind = 0x80
	}
	packed := uint64(rate)<<44 | uint64(channels-1)<<41 | uint64(width-1)<<36 | uint64(samples)
	return put(be, "fLaC", kind, []byte{0, 0, 34}, uint16(16), uint16(65535), make([]byte, 6), packed, make([]byte, 16))
}

// flacFrame is a frame of n constant samples per channel, whose rate and width are those of STREAMINFO.
func flacFrame(n, channels, width, value int) []byte {
	return rawFrame(n, 0, channels-1, width, value)
}

// rawFrame is the same with other codes for the rate and the channels.
func rawFrame(n, rateCode, channelCode, width, value int) []byte {
	h := put(be, []byte{0xFF, 0xF8, byte(7<<4 | rateCode), byte(channelCode << 4), 0}, uint16(n-1))
	h = append(h, byte(slowCRC(h, 8, 0x07)))
	for range channelCode + 1 {
		h = append(h, 0) // constant
		for shift := width - 8; shift >= 0; shift -= 8 {
			h = append(h, byte(value>>shift))
		}
	}
	return put(be, h, uint16(slowCRC(h, 16, 0x8005)))
}

// verbatimFrame is a mono frame of n 16-bit samples that are not compressed.
func verbatimFrame(n int) []byte {
	b := flacFrame(n, 1, 16, 0)
	b = b[:len(b)-5] // without the subframe and the checksum
	b = append(b, 2)
	for i := range n {
		b = binary.BigEndian.AppendUint16(b, uint16(i))
	}
	return put(be, b, uint16(slowCRC(b, 16, 0x8005)))
}

// slowCRC computes a checksum bit by bit.
func slowCRC(b []byte, width int, polynomial uint32) uint32 {
	var c uint32
	for _, v := range b {
		for bit := 7; bit >= 0; bit-- {
			out := c>>(width-1)&1 ^ uint32(v>>bit&1)
			c = c << 1 & (1<<width - 1)
			if out != 0 {
				c ^= polynomial
			}
		}
	}
	return c
}

// tiled is a large file that is not there: a head, and then one tile again and again.
type tiled struct {
	head, tile []byte
	size       int64
	onRead     func() // nil or called for each read
}

func (f tiled) ReadAt(p []byte, off int64) (int, error) {
	if f.onRead != nil {
		f.onRead()
	}
	n := 0
	for n < len(p) && off < f.size {
		var from []byte
		if off < int64(len(f.head)) {
			from = f.head[off:]
		} else {
			from = f.tile[(off-int64(len(f.head)))%int64(len(f.tile)):]
		}
		m := copy(p[n:], from[:min(int64(len(from)), f.size-off)])
		n, off = n+m, off+int64(m)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// longWAV is a mono 8-bit WAV of any length.
func longWAV(rate int, frames int64) tiled {
	size := uint32(min(frames, math.MaxUint32))
	head := riff(le, "RIFF", fmtChunk(le, tagPCM, 1, rate, 8), put(le, "data", size))
	return tiled{head: head, tile: []byte{0x80, 0x81, 0x80, 0x7F}, size: int64(len(head)) + frames}
}

// longFLAC is a FLAC with n frames of the given block size behind a shorter first one (0: none), which claims what it is told to.
func longFLAC(rate int, first, block int, n, claim int64) tiled {
	head := streamInfo(rate, 1, 16, claim, true)
	if first > 0 {
		head = append(head, flacFrame(first, 1, 16, 100)...)
	}
	tile := flacFrame(block, 1, 16, 100)
	return tiled{head: head, tile: tile, size: int64(len(head)) + n*int64(len(tile))}
}
