package mp3

import (
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// frames splits a stream. free is the length of its frames without padding where it is of free format.
func frames(t testing.TB, stream []byte, free int) (all [][]byte) {
	t.Helper()
	for len(stream) > 0 {
		h, ok := ParseHeader(stream)
		n := h.Bytes()
		if n == 0 {
			n = h.FreeBytes(free)
		}
		if !ok || n == 0 || n > len(stream) {
			t.Fatalf("the stream is not whole: %+v, %d bytes of %d", h, len(stream), n)
		}
		all = append(all, stream[:n])
		stream = stream[n:]
	}
	return all
}

func lameStream(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".mp3"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// decodeAll decodes a stream that is not damaged.
func decodeAll(t testing.TB, all [][]byte) (samples []float32) {
	t.Helper()
	d := NewDecoder()
	for i, frame := range all {
		h, _ := ParseHeader(frame)
		before := len(samples)
		var err error
		if samples, err = d.Decode(samples, frame); err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if got := len(samples) - before; got != h.Samples()*h.Channels() {
			t.Fatalf("frame %d: %d samples, want %d x %d", i, got, h.Samples(), h.Channels())
		}
	}
	return samples
}

// Other decoders' samples: see tools/probe-golden. Each stretch must be as close as the whole.
func TestGolden(t *testing.T) {
	t.Parallel()
	streams := map[string][][]byte{}
	files, err := filepath.Glob("testdata/lame_*.mp3")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".mp3")
		streams[name] = frames(t, lameStream(t, name), 675) // 150 kbit/s at 32 kHz
	}
	for name, h := range randomStreams {
		h.Layer = 3
		streams[name] = frames(t, randomStream(h), 0)
	}
	for name, all := range streams {
		got := decodeAll(t, all)
		b, err := os.ReadFile(filepath.Join("testdata", name+".f32"))
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, len(b)/4)
		for i := range want {
			want[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
		const step, stretch = 29, 100
		if len(want) != len(got)/step {
			t.Errorf("%s: %d samples, want %d", name, len(got)/step, len(want))
			continue
		}
		var all, most [2]float64 // power of the signal and of the difference
		most[0] = 1
		for i := range want {
			w := float64(want[i])
			d := float64(got[i*step]) - w
			all[0], all[1] = all[0]+w*w, all[1]+d*d
		}
		for from := 0; from+stretch <= len(want); from += stretch {
			var here [2]float64
			for i := from; i < from+stretch; i++ {
				w := float64(want[i])
				d := float64(got[i*step]) - w
				here[0], here[1] = here[0]+w*w, here[1]+d*d
			}
			if here[0] > 1e-9*stretch && here[1]*most[0] > most[1]*here[0] {
				most = here
			}
		}
		decibels := func(p [2]float64) float64 { return 10 * math.Log10(p[0]/(p[1]+1e-30)) }
		t.Logf("%s: %.0f dB, %.0f dB where they differ most", name, decibels(all), decibels(most))
		if decibels(all) < 100 || decibels(most) < 85 {
			t.Errorf("%s: the golden samples are only %.1f dB above the difference, %.1f dB in the worst stretch; want 100 and 85", name, decibels(all), decibels(most))
		}
	}
}

func TestDecodeAllocatesNothing(t *testing.T) {
	all := frames(t, lameStream(t, "lame_44k_joint"), 0)
	d := NewDecoder()
	dst := make([]float32, 0, 1152*2)
	if n := testing.AllocsPerRun(3, func() {
		for _, frame := range all {
			if _, err := d.Decode(dst, frame); err != nil && !errors.Is(err, ErrMissing) {
				t.Error(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations in %d frames", n, len(all))
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"lame_44k_joint", "lame_44k_vbr", "lame_32k_crc", "lame_22k_mono", "lame_16k_joint", "lame_8k_mono"} {
		b.Run(name, func(b *testing.B) {
			all := frames(b, lameStream(b, name), 0)
			h, _ := ParseHeader(all[0])
			dst := make([]float32, 0, 1152*2)
			d := NewDecoder()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if _, err := d.Decode(dst, all[n%len(all)]); err != nil && n%len(all) > 0 {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n)*float64(h.Samples())/float64(h.Rate)/b.Elapsed().Seconds(), "audio_s/s")
		})
	}
}
