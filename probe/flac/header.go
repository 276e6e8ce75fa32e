package flac

import (
	"encoding/binary"
	"math/bits"
)

// StreamInfo is the first metadata block of a stream (RFC 9639, section 8.2).
type StreamInfo struct {
	MinBlock, MaxBlock int      // sample frames in a frame
	MinFrame, MaxFrame int      // bytes of a frame; 0 where the encoder did not know
	Rate               int      // Hz
	Channels           int      // 1 to 8
	Bits               int      // of a sample, 4 to 32
	Samples            int64    // sample frames in the stream; 0 where the encoder did not know. A claim: count them.
	MD5                [16]byte // of the samples; all zero where the encoder did not compute it
}

// StreamInfoBytes is the length of the block's body.
const StreamInfoBytes = 34

// ParseStreamInfo reads the body of the block.
func ParseStreamInfo(b [StreamInfoBytes]byte) (StreamInfo, error) {
	v := binary.BigEndian.Uint64(b[10:])
	s := StreamInfo{
		MinBlock: int(binary.BigEndian.Uint16(b[0:])),
		MaxBlock: int(binary.BigEndian.Uint16(b[2:])),
		MinFrame: int(b[4])<<16 | int(b[5])<<8 | int(b[6]),
		MaxFrame: int(b[7])<<16 | int(b[8])<<8 | int(b[9]),
		Rate:     int(v >> 44),
		Channels: int(v>>41&7) + 1,
		Bits:     int(v>>36&31) + 1,
		Samples:  int64(v & (1<<36 - 1)),
		MD5:      [16]byte(b[18:]),
	}
	switch {
	case s.Rate == 0:
		return s, damaged("a sample rate of 0")
	case s.Bits < 4:
		return s, damaged("%d bits per sample", s.Bits)
	}
	return s, nil
}

// Bytes is the body of the block. The fields must be within their ranges.
func (s StreamInfo) Bytes() (b [StreamInfoBytes]byte) {
	binary.BigEndian.PutUint16(b[0:], uint16(s.MinBlock))
	binary.BigEndian.PutUint16(b[2:], uint16(s.MaxBlock))
	b[4], b[5], b[6] = byte(s.MinFrame>>16), byte(s.MinFrame>>8), byte(s.MinFrame)
	b[7], b[8], b[9] = byte(s.MaxFrame>>16), byte(s.MaxFrame>>8), byte(s.MaxFrame)
	binary.BigEndian.PutUint64(b[10:], uint64(s.Rate)<<44|uint64(s.Channels-1)<<41|uint64(s.Bits-1)<<36|uint64(s.Samples))
	copy(b[18:], s.MD5[:])
	return b
}

// MaxHeaderBytes is the length of the longest frame header.
const MaxHeaderBytes = 16

// Header is the start of a frame (RFC 9639, section 9.1).
type Header struct {
	Block    int // sample frames in the frame, 1 to 65,536
	Rate     int // Hz
	Channels int
	Bits     int    // of a sample
	Number   uint64 // of the frame or, in streams of variable block size, of its first sample. It is not checked: some streams start anywhere
	Stereo   Stereo
}

// Stereo is how two channels are stored.
type Stereo uint8

// The ways to store two channels. Side is left minus right and has one bit more.
const (
	Independent Stereo = iota
	LeftSide
	SideRight
	MidSide
)

// ParseHeader reads a frame header at the start of b, which holds MaxHeaderBytes or all that there is. It takes rate and bits from info where
// the header refers to that. It reports the header's length, or false where no valid header is: the checksum (8 bits) is among what it checks.
func ParseHeader(b []byte, info StreamInfo) (h Header, length int, ok bool) {
	if len(b) < 6 || b[0] != 0xFF || b[1]&0xFE != 0xF8 {
		return h, 0, false
	}
	blockCode, rateCode, channelCode, bitsCode := b[2]>>4, b[2]&15, b[3]>>4, b[3]>>1&7
	if b[3]&1 != 0 || blockCode == 0 || rateCode == 15 || channelCode > 10 {
		return h, 0, false
	}
	if channelCode < 8 {
		h.Channels = int(channelCode) + 1
	} else {
		h.Channels, h.Stereo = 2, Stereo(channelCode-7)
	}
	if h.Bits = []int{info.Bits, 8, 12, 0, 16, 20, 24, 32}[bitsCode]; h.Bits == 0 {
		return h, 0, false
	}
	var n int
	if h.Number, n, ok = codedNumber(b[4:]); !ok {
		return h, 0, false
	}
	rest := tail{b: b, at: 4 + n}
	h.Block = rest.block(blockCode)
	h.Rate = rest.rate(rateCode, info.Rate)
	if rest.at >= len(b) || h.Rate == 0 || crc8(b[:rest.at]) != b[rest.at] {
		return h, 0, false
	}
	return h, rest.at + 1, true
}

// tail is the end of a header, where block size and rate stand that have no code of their own.
type tail struct {
	b  []byte
	at int
}

func (t *tail) uint(bytes int) int {
	v := 0
	for range bytes {
		if t.at < len(t.b) {
			v = v<<8 | int(t.b[t.at])
		}
		t.at++
	}
	return v
}

func (t *tail) block(code uint8) int {
	switch {
	case code == 1:
		return 192
	case code <= 5:
		return 144 << code
	case code == 6:
		return t.uint(1) + 1
	case code == 7:
		return t.uint(2) + 1
	}
	return 1 << code
}

func (t *tail) rate(code uint8, stream int) int {
	switch code {
	case 0:
		return stream
	case 12:
		return t.uint(1) * 1000
	case 13:
		return t.uint(2)
	case 14:
		return t.uint(2) * 10
	}
	return rates[code]
}

// rates are those that have a code of their own; 0 is that of STREAMINFO.
var rates = [12]int{0, 88200, 176400, 192000, 8000, 16000, 22050, 24000, 32000, 44100, 48000, 96000}

// codedNumber reads a number of up to 36 bits in the manner of UTF-8, and says how many bytes it has.
func codedNumber(b []byte) (v uint64, n int, ok bool) {
	ones := bits.LeadingZeros8(^b[0])
	if ones == 0 {
		return uint64(b[0]), 1, true
	}
	if ones == 1 || ones == 8 || len(b) < ones {
		return 0, 0, false
	}
	v = uint64(b[0] & (0x7F >> ones))
	for _, c := range b[1:ones] {
		if c&0xC0 != 0x80 {
			return 0, 0, false
		}
		v = v<<6 | uint64(c&0x3F)
	}
	return v, ones, true
}
