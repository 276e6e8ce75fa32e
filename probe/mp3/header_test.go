package mp3

import (
	"encoding/binary"
	"strings"
	"testing"
)

// Lengths and rates that other programs tell of real files, and the corners of the tables.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes                             uint32
		layer, rate, bitrate, channels, n int
		samples                           int
	}{
		{0xFFFB9064, 3, 44100, 128000, 2, 417, 1152},
		{0xFFFB9264, 3, 44100, 128000, 2, 418, 1152},
		{0xFFFBE404, 3, 48000, 320000, 2, 960, 1152},
		{0xFFFBE804, 3, 32000, 320000, 2, 1440, 1152},
		{0xFFFA10C4, 3, 44100, 32000, 1, 104, 1152},
		{0xFFF380C4, 3, 22050, 64000, 1, 208, 576},
		{0xFFF31444, 3, 24000, 8000, 2, 24, 576},
		{0xFFE318C4, 3, 8000, 8000, 1, 72, 576},
		{0xFFE3E8C4, 3, 8000, 160000, 1, 1440, 576},
		{0xFFFD9004, 2, 44100, 160000, 2, 522, 1152},
		{0xFFF58004, 2, 22050, 64000, 2, 417, 1152},
		{0xFFFFE004, 1, 44100, 448000, 2, 484, 384}, // 121 slots of four bytes
		{0xFFFFE204, 1, 44100, 448000, 2, 488, 384},
		{0xFFFB0064, 3, 44100, 0, 2, 0, 1152},
	} {
		b := binary.BigEndian.AppendUint32(nil, c.bytes)
		h, ok := ParseHeader(b)
		if !ok || h.Layer != c.layer || h.Rate != c.rate || h.Bitrate != c.bitrate || h.Channels() != c.channels || h.Bytes() != c.n || h.Samples() != c.samples {
			t.Errorf("%08x: %+v, %v: %d bytes, %d channels, %d samples; want %+v", c.bytes, h, ok, h.Bytes(), h.Channels(), h.Samples(), c)
		}
		if !h.Continues(h) || h.Continues(Header{}) {
			t.Errorf("%08x does not continue itself, or continues anything", c.bytes)
		}
	}
	for name, bytes := range map[string]uint32{
		"no sync": 0xFFDB9064, "reserved version": 0xFFEB9064, "ADTS": 0xFFF15080, "bit rate 15": 0xFFFBF064, "rate 3": 0xFFFB9C64, "emphasis 2": 0xFFFB9066,
	} {
		if h, ok := ParseHeader(binary.BigEndian.AppendUint32(nil, bytes)); ok {
			t.Errorf("%s: %+v", name, h)
		}
	}
	if _, ok := ParseHeader([]byte{0xFF, 0xFB, 0x90}); ok {
		t.Error("three bytes are a header")
	}
}

func TestTags(t *testing.T) {
	t.Parallel()
	h, _ := ParseHeader([]byte{0xFF, 0xFB, 0x90, 0x64})
	mono, _ := ParseHeader([]byte{0xFF, 0xE3, 0x18, 0xC4})
	protected, _ := ParseHeader([]byte{0xFF, 0xFA, 0x90, 0x64})
	at := func(n int, parts ...string) []byte {
		return []byte(strings.Repeat("\x00", n) + strings.Join(parts, ""))
	}
	lame := "LAME3.100" + "\x01\x7f" + string(make([]byte, 10)) + "\x24\x04\xAB"
	for _, c := range []struct {
		name  string
		h     Header
		frame []byte
		want  Tag
		ok    bool
	}{
		{"Info of LAME", h, at(36, "Info\x00\x00\x00\x0F", "\x00\x00\x01\x00", "1234", string(make([]byte, 100)), "1234", lame), Tag{256, 0x240, 0x4AB, true}, true},
		{"Xing of LAME without the rest", mono, at(13, "Xing\x00\x00\x00\x01", "\x00\x00\x01\x00", lame), Tag{256, 0x240, 0x4AB, true}, true},
		{"Xing by another", h, at(36, "Xing\x00\x00\x00\x01", "\x00\x00\x01\x00", "GOGO3.100"+lame[9:]), Tag{Frames: 256}, true},
		{"no frames", h, at(36, "Xing\x00\x00\x00\x00"), Tag{}, true},
		{"room for a checksum", protected, at(38, "Xing\x00\x00\x00\x01", "\xFF\xFF\xFF\xFF"), Tag{Frames: 1<<32 - 1}, true},
		{"cut off", h, at(36, "Xing\x00\x00\x00\x01", "\x00\x00"), Tag{}, true},
		{"VBRI", h, at(36, "VBRI\x00\x01\x00\x00\x00\x00", "1234", "\x00\x00\x00\x10"), Tag{Frames: 16}, true},
		{"VBRI cut off", h, at(36, "VBRI\x00\x01\x00\x00"), Tag{}, false},
		{"at another place", h, at(37, "Xing\x00\x00\x00\x01", "\x00\x00\x01\x00"), Tag{}, false},
		{"a frame of audio", h, at(400), Tag{}, false},
		{"a header", h, at(4), Tag{}, false},
		{"Layer II", Header{Layer: 2}, at(36, "Xing\x00\x00\x00\x01", "\x00\x00\x01\x00"), Tag{}, false},
	} {
		if got, ok := ParseTag(c.h, c.frame); got != c.want || ok != c.ok {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.name, got, ok, c.want, c.ok)
		}
		if len(c.frame) > TagBytes {
			if got, _ := ParseTag(c.h, c.frame[:TagBytes]); got != c.want {
				t.Errorf("%s: TagBytes are not enough", c.name)
			}
		}
	}
}
