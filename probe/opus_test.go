package probe

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/aviary-asr/aviary"
)

// Packets as RFC 6716, section 3.2, draws them, and each way in which they can be wrong (its rules R1 to R7).
func TestOpusPackets(t *testing.T) {
	t.Parallel()
	data := func(start []byte, n int) []byte { return append(slices.Clip(start), make([]byte, n)...) }
	for _, c := range []struct {
		what   string
		packet []byte
		want   int64 // negative: broken
	}{
		{"nothing", nil, -1},
		{"SILK, 10 ms", []byte{0 << 3}, 480},
		{"SILK, 60 ms", data([]byte{11 << 3}, 100), 2880},
		{"hybrid, 10 ms", data([]byte{12 << 3}, 100), 480},
		{"hybrid, 20 ms", data([]byte{15 << 3}, 100), 960},
		{"CELT, 2.5 ms", data([]byte{16 << 3}, 100), 120},
		{"CELT, 20 ms", data([]byte{31 << 3}, 1275), 960},
		{"a frame of 1,276 bytes", data([]byte{31 << 3}, 1276), -1},
		{"two equal frames", data([]byte{31<<3 | 1}, 200), 1920},
		{"two frames that are not equal", data([]byte{31<<3 | 1}, 201), -1},
		{"two frames of 1,275 bytes", data([]byte{31<<3 | 1}, 2550), 1920},
		{"two frames of 1,276 bytes", data([]byte{31<<3 | 1}, 2552), -1},
		{"two frames of 60 ms without bytes", []byte{11<<3 | 1}, 5760},
		{"two different frames", data([]byte{31<<3 | 2, 10}, 60), 1920},
		{"two different frames, the first of 1,275 bytes", data([]byte{31<<3 | 2, 255, 255}, 1300), 1920},
		{"two frames, the first longer than all", data([]byte{31<<3 | 2, 61}, 60), -1},
		{"two frames, the length cut off", []byte{31<<3 | 2}, -1},
		{"two frames, a length of two bytes cut off", []byte{31<<3 | 2, 252}, -1},
		{"no count", []byte{31<<3 | 3}, -1},
		{"no frames", data([]byte{31<<3 | 3, 0}, 10), -1},
		{"six frames of 20 ms", data([]byte{31<<3 | 3, 6}, 60), 5760},
		{"seven frames of 20 ms", data([]byte{31<<3 | 3, 7}, 70), -1},
		{"48 frames of 2.5 ms", data([]byte{16<<3 | 3, 48}, 48), 5760},
		{"49 frames of 2.5 ms", data([]byte{16<<3 | 3, 49}, 49), -1},
		{"bytes that do not divide", data([]byte{31<<3 | 3, 6}, 61), -1},
		{"padding", data([]byte{31<<3 | 3, 0x40 | 6, 5}, 65), 5760},
		{"padding of 254 and more", data([]byte{31<<3 | 3, 0x40 | 6, 255, 6}, 320), 5760},
		{"padding that does not fit", data([]byte{31<<3 | 3, 0x40 | 6, 61}, 60), -1},
		{"padding without its length", []byte{31<<3 | 3, 0x40 | 6}, -1},
		{"padding without end", []byte{31<<3 | 3, 0x40 | 6, 255, 255}, -1},
		{"three frames of any length", data([]byte{31<<3 | 3, 0x80 | 3, 10, 20}, 50), 2880},
		{"three frames, the last empty", data([]byte{31<<3 | 3, 0x80 | 3, 10, 20}, 30), 2880},
		{"three frames, too long", data([]byte{31<<3 | 3, 0x80 | 3, 10, 20}, 29), -1},
		{"three frames, lengths cut off", []byte{31<<3 | 3, 0x80 | 3, 10}, -1},
		{"three frames, a last one of 1,276 bytes", data([]byte{31<<3 | 3, 0x80 | 3, 1, 1}, 1278), -1},
		{"three frames and padding", data([]byte{31<<3 | 3, 0xC0 | 3, 7, 10, 20}, 57), 2880},
	} {
		got, err := opusPacketFrames(c.packet)
		if want := c.want; err == nil && got != want || (err == nil) != (want >= 0) || err != nil && aviary.CodeOf(err) != aviary.CodeAudioBroken {
			t.Errorf("%s: %d frames, %v; want %d", c.what, got, err, want)
		}
		if err != nil {
			continue
		}
		d, err := newOpusDecoder(stream{setup: opusHeadPacket(2, 0)})
		if err != nil {
			t.Fatal(err)
		}
		if samples, err := d.decode(nil, c.packet); err != nil || int64(len(samples)) != 2*c.want {
			t.Errorf("%s: decodes to %d samples, %v", c.what, len(samples), err)
		}
	}
}

// Several streams in a packet: all but the last say how long they are (appendix B).
func TestOpusMultistream(t *testing.T) {
	t.Parallel()
	h := opusHead{streams: 3}
	inner := [][]byte{
		append([]byte{31 << 3, 10}, make([]byte, 10)...),
		append([]byte{31 << 3, 252, 3}, make([]byte, 264)...),
	}
	last := append([]byte{31 << 3}, make([]byte, 30)...)
	if n, err := h.frames(slices.Concat(inner[0], inner[1], last)); err != nil || n != 960 {
		t.Errorf("%d frames, %v", n, err)
	}
	forms := [][]byte{
		append([]byte{23<<3 | 1, 10}, make([]byte, 20)...),                      // two equal frames of 20 ms
		append([]byte{23<<3 | 2, 10, 30}, make([]byte, 40)...),                  // two others
		append([]byte{22<<3 | 3, 4, 10}, make([]byte, 40)...),                   // four equal ones of 10 ms
		append([]byte{22<<3 | 3, 0x80 | 4, 1, 2, 3, 4}, make([]byte, 10)...),    // four others
		append([]byte{22<<3 | 3, 0xC0 | 4, 9, 1, 2, 3, 4}, make([]byte, 19)...), // and padding
	}
	for i, form := range forms {
		last := append([]byte{23<<3 | 1}, make([]byte, 8)...)
		h := opusHead{streams: 2}
		if n, err := h.frames(slices.Concat(form, last)); err != nil || n != 1920 {
			t.Errorf("form %d: %d frames, %v", i, n, err)
		}
		if n, err := h.frames(form); err == nil {
			t.Errorf("form %d without the second stream: %d frames", i, n)
		}
		if n, err := h.frames(slices.Concat(form, []byte{23 << 3, 0})); err == nil {
			t.Errorf("form %d with a second stream of 20 ms: %d frames", i, n)
		}
	}
}

func TestOpusHeads(t *testing.T) {
	t.Parallel()
	mapped := func(family, channels, streams, coupled int, mapping ...byte) []byte {
		b := opusHeadPacket(channels, 0)
		b[18] = byte(family)
		return append(b, append([]byte{byte(streams), byte(coupled)}, mapping...)...)
	}
	for _, c := range []struct {
		what  string
		head  []byte
		good  bool
		plain bool
	}{
		{"mono", opusHeadPacket(1, 0), true, true},
		{"stereo", opusHeadPacket(2, 0), true, true},
		{"more behind it", append(opusHeadPacket(2, 0), 1, 2, 3), true, true},
		{"cut off", opusHeadPacket(2, 0)[:18], false, false},
		{"0 channels", opusHeadPacket(0, 0), false, false},
		{"3 channels", opusHeadPacket(3, 0), false, false},
		{"mono as a layout", mapped(1, 1, 1, 0, 0), true, true},
		{"stereo as a layout", mapped(1, 2, 1, 1, 0, 1), true, true},
		{"swapped stereo", mapped(1, 2, 1, 1, 1, 0), true, false},
		{"two mono streams", mapped(1, 2, 2, 0, 0, 1), true, false},
		{"5.1", mapped(1, 6, 4, 2, 0, 4, 1, 2, 3, 5), true, false},
		{"5.1, cut off", mapped(1, 6, 4, 2, 0, 4, 1, 2, 3), false, false},
		{"silence", mapped(255, 1, 1, 0, 255), true, false},
		{"no streams", mapped(1, 1, 0, 0, 0), false, false},
		{"more coupled than streams", mapped(1, 2, 1, 2, 0, 1), false, false},
		{"a channel of no stream", mapped(1, 2, 1, 1, 0, 2), false, false},
		{"9 channels of a layout for 8", mapped(1, 9, 9, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8), false, false},
	} {
		h, err := parseOpusHead(c.head)
		if (err == nil) != c.good || err == nil && h.plain() != c.plain {
			t.Errorf("%s: %+v, %v", c.what, h, err)
		}
	}
	h, err := parseOpusHead(opusHeadPacket(2, -256))
	if err != nil || h.channels != 2 || h.preSkip != testPreSkip || h.rate != 16000 || h.gain != -256 {
		t.Errorf("%+v, %v", h, err)
	}
}

// The header's gain is applied (RFC 7845, section 5.1).
func TestOpusGain(t *testing.T) {
	t.Parallel()
	file := handedFile(t, "golden/opus_hybrid.opus")
	plain := decodeWhole(t, New(Config{}), file)
	loud := bytes.Clone(file)
	binary.LittleEndian.PutUint16(loud[28+16:], 6*256+5) // 6.02 dB
	got := decodeWhole(t, New(Config{}), oggRepaired(loud))
	for i, v := range plain {
		if math.Abs(float64(got[i]-2*v)) > 1e-3*math.Abs(float64(v)) {
			t.Fatalf("sample %d: %v, want twice %v", i, got[i], v)
		}
	}
}

// Random bytes are valid packets, as long as they are put together well: they decode to noise of the right length, never to an error.
func FuzzOpusDecoder(f *testing.F) {
	f.Add([]byte{0x48, 1, 2, 3}, []byte{0xFC, 1, 2, 3, 4, 5, 6})
	f.Add([]byte{0x6C, 0xFF, 2, 3}, []byte{0x0B, 2, 3, 4, 5, 6})
	f.Add([]byte{0x81}, []byte{0x58})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		d, err := newOpusDecoder(stream{setup: opusHeadPacket(2, 0)})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range [][]byte{first, second, first, second} {
			want, err := opusPacketFrames(p)
			got, decodeErr := d.decode(nil, p)
			if (err == nil) != (decodeErr == nil) && !bytes.HasPrefix(p, []byte(opusMagic)) || err == nil && int64(len(got)) != 2*want {
				t.Fatalf("%x: %d frames, %v; decoded to %d samples, %v", p, want, err, len(got), decodeErr)
			}
		}
	})
}
