package mp3

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

// A piece of a stream starts with frames that need data from before. They are silent, and then everything is as in the whole.
func TestPieceOfAStream(t *testing.T) {
	t.Parallel()
	all := frames(t, lameStream(t, "lame_44k_joint"), 0)
	whole := decodeAll(t, all)
	const each, from = 1152 * 2, 5
	d := NewDecoder()
	var piece []float32
	missing := 0
	for i, frame := range all[from:] {
		var err error
		if piece, err = d.Decode(piece, frame); err == nil {
			continue
		}
		if missing++; !errors.Is(err, ErrMissing) || errors.Is(err, ErrDamaged) || missing != i+1 {
			t.Errorf("frame %d: %v", i, err)
		}
	}
	if missing == 0 || missing > 3 {
		t.Fatalf("%d frames lack data: the stream does not test this", missing)
	}
	if n := loud(piece[:(missing-1)*each]); n > 0 {
		t.Errorf("%d samples are not silent", n)
	}
	rest := piece[(missing+2)*each:] // overlap and synthesis reach over one frame
	for i, want := range whole[(from+missing+2)*each:] {
		if rest[i] != want {
			t.Fatalf("sample %d is %v, want %v", i, rest[i], want)
		}
	}
}

func loud(samples []float32) (n int) {
	for _, v := range samples {
		if v != 0 {
			n++
		}
	}
	return n
}

// One damaged frame is silent, and the stream goes on.
func TestDamagedFrames(t *testing.T) {
	t.Parallel()
	all := frames(t, lameStream(t, "lame_44k_joint"), 0)
	whole := decodeAll(t, all)
	const each, at = 1152 * 2, 6
	set := func(from, n, value int) func([]byte) []byte { // bits of the side information
		return func(b []byte) []byte {
			for i := range n {
				bit := 8*HeaderBytes + from + i
				b[bit/8] = b[bit/8]&^(0x80>>(bit%8)) | byte(value>>(n-1-i)&1)<<(7-bit%8)
			}
			return b
		}
	}
	for name, damage := range map[string]func([]byte) []byte{
		"cut off in the data":             func(b []byte) []byte { return b[:len(b)/2] },
		"cut off in the side information": func(b []byte) []byte { return b[:20] },
		"only a header":                   func(b []byte) []byte { return b[:HeaderBytes] },
		"too many lines":                  set(20+12, 9, 289),
		"more data than there is":         set(20, 12, 4095),
		"fewer bits than its lines need":  set(20, 12, 100),
		"a code that does not exist":      set(20+12+9+8+4+1, 5, 4),
		"a window switched to itself":     set(20+12+9+8+4, 3, 4),
	} {
		d := NewDecoder()
		var got []float32
		for i, frame := range all {
			if i == at {
				frame = damage(bytes.Clone(frame))
			}
			before := len(got)
			var err error
			got, err = d.Decode(got, frame)
			switch {
			case len(got)-before != each:
				t.Errorf("%s: %d samples, want %d", name, len(got)-before, each)
			case i == at && !errors.Is(err, ErrDamaged):
				t.Errorf("%s: %v", name, err)
			case i < at && err != nil, i > at+2 && err != nil:
				t.Errorf("%s, frame %d: %v", name, i, err)
			}
		}
		end := (at + 5) * each
		for i := range whole {
			if got[i] != whole[i] && (i < (at-1)*each || i >= end) {
				t.Fatalf("%s: sample %d is %v, want %v", name, i, got[i], whole[i])
			}
		}
	}
}

func TestForeignBytes(t *testing.T) {
	t.Parallel()
	layer2 := Header{Layer: 2, Rate: 44100, Bitrate: 64000}.bytes()
	for _, b := range [][]byte{nil, {0xFF}, []byte("text"), append(layer2, make([]byte, 500)...), bytes.Repeat([]byte{0xFF}, 1000)} {
		got, err := NewDecoder().Decode([]float32{7}, b)
		if !errors.Is(err, ErrDamaged) || len(got) != 1 {
			t.Errorf("%.8x: %d samples, %v", b, len(got), err)
		}
	}
	long := append(Header{Layer: 3, Rate: 44100}.bytes(), make([]byte, MaxFrameBytes)...)
	if got, err := NewDecoder().Decode(nil, long); !errors.Is(err, ErrDamaged) || len(got) != 2304 || loud(got) > 0 {
		t.Errorf("a frame of %d bytes: %d samples, %v", len(long), len(got), err)
	}
}

// Another rate or number of channels starts afresh: nothing of the stream before can be heard.
func TestChangeOfStream(t *testing.T) {
	t.Parallel()
	a, b := frames(t, lameStream(t, "lame_44k_joint"), 0), frames(t, lameStream(t, "lame_22k_mono"), 0)
	d := NewDecoder()
	for _, frame := range a {
		if _, err := d.Decode(nil, frame); err != nil {
			t.Fatal(err)
		}
	}
	var got []float32
	for _, frame := range b {
		var err error
		if got, err = d.Decode(got, frame); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range decodeAll(t, b) {
		if got[i] != want {
			t.Fatalf("sample %d is %v, want %v", i, got[i], want)
		}
	}
}

// Whatever the bytes are: as many samples as the header says, all of them numbers, and no more than a frame can make.
func FuzzMP3Decoder(f *testing.F) {
	for _, name := range []string{"lame_44k_joint", "lame_48k_abr", "lame_12k_mono", "lame_8k_mono", "lame_free"} {
		f.Add(lameStream(f, name)[:500])
	}
	for _, h := range randomStreams {
		h.Layer = 3
		f.Add(randomStream(h)[:3*h.Bytes()])
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		d := NewDecoder()
		var samples []float32
		for len(stream) >= HeaderBytes {
			h, ok := ParseHeader(stream)
			n := h.Bytes()
			switch {
			case !ok:
				n = 1
			case n == 0:
				n = h.FreeBytes(300)
			}
			frame := stream[:min(n, len(stream))]
			stream = stream[len(frame):]
			var err error
			samples, err = d.Decode(samples[:0], frame)
			want := h.Samples() * h.Channels()
			if !ok || h.Layer != 3 {
				want = 0
			}
			if len(samples) != want || want == 0 && err == nil {
				t.Fatalf("%d samples, %v; want %d", len(samples), err, want)
			}
			for i, v := range samples {
				if math.IsNaN(float64(v)) || math.Abs(float64(v)) > 1e12 {
					t.Fatalf("sample %d is %v", i, v)
				}
			}
		}
	})
}
