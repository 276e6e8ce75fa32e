package adpcm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// golden is what tools/probe-golden has made: blocks, and what other decoders make of them.
type golden struct {
	channels, block int
	blocks          []byte
	samples         []int16
}

var names = []string{"ms_mono", "ms_stereo", "ima_mono", "ima_stereo", "ima4_mono", "ima4_stereo"}

func load(t testing.TB, name string) golden {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("testdata", name+".coded"))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join("testdata", name+".s16"))
	if err != nil {
		t.Fatal(err)
	}
	g := golden{channels: 1, block: 256, blocks: file}
	if strings.HasSuffix(name, "stereo") {
		g.channels = 2
	}
	if strings.HasPrefix(name, "ima4") {
		g.block = quickTimeBytes * g.channels
	}
	for i := 0; i < len(raw); i += 2 {
		g.samples = append(g.samples, int16(binary.LittleEndian.Uint16(raw[i:])))
	}
	return g
}

// decoder is what both kinds have.
type decoder interface {
	Frames(bytes int) int
	Decode(dst []int16, block []byte) ([]int16, error)
}

func open(t testing.TB, name string, channels, blockBytes int) decoder {
	t.Helper()
	var d decoder
	var err error
	switch {
	case strings.HasPrefix(name, "ms"):
		d, err = NewMicrosoft(channels, blockBytes, StandardCoefficients)
	case strings.HasPrefix(name, "ima4"):
		d, err = NewQuickTime(channels)
	default:
		d, err = NewIMA(channels, blockBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for _, name := range names {
		g := load(t, name)
		d := open(t, name, g.channels, g.block)
		var got []int16
		for block := range slices.Chunk(g.blocks, g.block) {
			var err error
			if got, err = d.Decode(got, block); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if len(g.samples) < 800 || !slices.Equal(got, g.samples) {
			t.Errorf("%s: other samples, %d of %d", name, len(got), len(g.samples))
		}
	}
}

// A block that is cut gives the start of what the whole one gives, as many frames as it says.
func TestShortBlocks(t *testing.T) {
	t.Parallel()
	for _, name := range names {
		g := load(t, name)
		first := g.blocks[:g.block]
		whole, err := open(t, name, g.channels, g.block).Decode(nil, first)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for n := range first {
			d := open(t, name, g.channels, g.block)
			part, err := d.Decode(nil, first[:n])
			if frames := d.Frames(n); len(part) != frames*g.channels || !slices.Equal(part, whole[:len(part)]) || (err == nil) != (frames > 0) {
				t.Errorf("%s: %d bytes give %d samples and %v, want %d frames", name, n, len(part), err, frames)
			}
		}
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                      string
		channels, block, n, wants int
	}{
		{"ms", 1, 256, 256, 500}, {"ms", 2, 1024, 1024, 1012}, {"ms", 1, 256, 8, 4}, {"ms", 1, 256, 7, 2}, {"ms", 1, 256, 6, 0}, {"ms", 2, 1024, 15, 3}, {"ms", 1, 256, 300, 500},
		{"ima", 1, 256, 256, 505}, {"ima", 2, 2048, 2048, 2041}, {"ima", 1, 256, 4, 1}, {"ima", 1, 256, 7, 1}, {"ima", 1, 256, 8, 9}, {"ima", 1, 256, 3, 0}, {"ima", 6, 1024, 1024, 329},
		{"ima4", 1, 0, 34, 64}, {"ima4", 1, 0, 33, 0}, {"ima4", 2, 0, 68, 64}, {"ima4", 2, 0, 67, 0}, {"ima4", 2, 0, 100, 64},
	} {
		if got := open(t, c.name, c.channels, c.block).Frames(c.n); got != c.wants {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestWrongLayouts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ channels, block int }{{0, 256}, {-1, 256}, {1, 0}, {1, -5}, {3, 2}, {9, 1024}, {1, 65536}} {
		if _, err := NewMicrosoft(c.channels, c.block, StandardCoefficients); err == nil {
			t.Errorf("Microsoft: %+v is taken", c)
		}
		if _, err := NewIMA(c.channels, c.block); err == nil {
			t.Errorf("IMA: %+v is taken", c)
		}
	}
	for _, pairs := range [][][2]int16{nil, make([][2]int16, 257)} {
		if _, err := NewMicrosoft(1, 256, pairs); err == nil {
			t.Errorf("%d pairs of coefficients are taken", len(pairs))
		}
	}
	for _, n := range []int{-1, 0, 9} {
		if _, err := NewQuickTime(n); err == nil {
			t.Errorf("QuickTime: %d channels are taken", n)
		}
	}
	if _, err := NewMicrosoft(3, 256, StandardCoefficients); err == nil {
		t.Error("Microsoft: three channels are taken")
	}
}

func TestDamagedBlocks(t *testing.T) {
	t.Parallel()
	ms, ima, ima4 := open(t, "ms", 1, 256), open(t, "ima", 1, 256), open(t, "ima4", 1, 0)
	block := make([]byte, 256)
	block[0] = 7
	if _, err := ms.Decode(nil, block); !errors.Is(err, ErrDamaged) {
		t.Errorf("coefficients 7 of 7: %v", err)
	}
	block[0], block[2] = 0, 89
	if _, err := ima.Decode(nil, block); !errors.Is(err, ErrDamaged) {
		t.Errorf("step 89 of 89: %v", err)
	}
	if _, err := ima4.Decode(nil, append([]byte{0, 89}, block[:32]...)); !errors.Is(err, ErrDamaged) {
		t.Errorf("step 89 of 89: %v", err)
	}
	for _, d := range []decoder{ms, ima, ima4} {
		if _, err := d.Decode(nil, make([]byte, 257)); !errors.Is(err, ErrDamaged) {
			t.Errorf("a block that is too long: %v", err)
		}
	}
}

// Once there is room, a block allocates nothing.
func TestAllocations(t *testing.T) {
	g := load(t, "ima_mono")
	d := open(t, "ima_mono", 1, g.block)
	buf := make([]int16, 0, d.Frames(g.block))
	if n := testing.AllocsPerRun(10, func() { buf, _ = d.Decode(buf[:0], g.blocks[:g.block]) }); n > 0 || len(buf) != 505 {
		t.Errorf("%v allocations, %d samples", n, len(buf))
	}
}

// Any bytes decode to as many frames as they should, or are damaged.
func FuzzADPCM(f *testing.F) {
	for i, name := range names {
		g := load(f, name)
		f.Add(g.blocks[:g.block], byte(i/2), byte(g.channels), uint16(g.block), []byte{0, 1, 0, 0, 0, 2, 0, 255})
	}
	f.Add(bytes.Repeat([]byte{0x77}, 100), byte(0), byte(1), uint16(100), []byte{0xFF, 0x7F, 0xFF, 0x7F})
	f.Fuzz(func(t *testing.T, block []byte, kind, channels byte, blockBytes uint16, pairs []byte) {
		var d decoder
		var err error
		switch kind % 3 {
		case 0:
			coefficients := StandardCoefficients[:0:0]
			for ; len(pairs) >= 4; pairs = pairs[4:] {
				coefficients = append(coefficients, [2]int16{int16(binary.LittleEndian.Uint16(pairs)), int16(binary.LittleEndian.Uint16(pairs[2:]))})
			}
			d, err = NewMicrosoft(int(channels), int(blockBytes), coefficients)
		case 1:
			d, err = NewIMA(int(channels), int(blockBytes))
		case 2:
			d, err = NewQuickTime(int(channels))
		}
		if err != nil {
			return
		}
		for range 2 { // one kind has a state
			got, err := d.Decode(nil, block)
			switch want := d.Frames(len(block)) * int(channels); {
			case err != nil && !errors.Is(err, ErrDamaged):
				t.Fatal(err)
			case err == nil && (len(got) != want || want > 2*len(block)*int(channels)):
				t.Fatalf("%d samples of %d bytes, want %d", len(got), len(block), want)
			}
		}
	})
}
