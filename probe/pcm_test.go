package probe

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// addGolden adds golden files to the seeds of a fuzz target.
func addGolden(f *testing.F, names ...string) {
	f.Helper()
	for _, name := range names {
		f.Add(handedFile(f, filepath.Join("golden", name)))
	}
}

// Each codec and byte order of each container gives the samples that other decoders give (tools/probe-golden).
func TestGoldenContainers(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob(filepath.Join("testdata", "golden", "*pcm_[imsfua]*.*"))
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { // others have tests of their own
		return !slices.Contains([]string{".wav", ".w64", ".aiff", ".aifc", ".au", ".caf"}, filepath.Ext(name))
	})
	if len(names) < 40 {
		t.Fatalf("%d golden files", len(names))
	}
	for _, name := range names {
		file, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		base := filepath.Base(name)
		codec, container, _ := strings.Cut(base, ".")
		want := goldenSamples(t, base+".f32")
		rep, err := New(Config{}).Inspect(t.Context(), bytes.NewReader(file), int64(len(file)))
		if err != nil || rep.Container != container || rep.Codec != codec || rep.SampleRate != 16000 || rep.Channels != 1 ||
			rep.Duration != durationOf(int64(len(want)), 16000) || !rep.HasClaim || rep.Claimed != rep.Duration {
			t.Errorf("%s: %+v, %v", base, rep, err)
		}
		got, err := New(Config{}).Decode(t.Context(), bytes.NewReader(file), int64(len(file)), 0)
		if err != nil || len(got) != len(want) {
			t.Errorf("%s: %d samples, want %d, %v", base, len(got), len(want), err)
			continue
		}
		if d := difference(got, want); d > -140 {
			t.Errorf("%s: differs from the golden samples by %.1f dB", base, d)
		}
	}
}

// Codecs in blocks and packets, at their own rates. Those that only ffmpeg decodes show that it is told what they are.
func TestGoldenCoded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, codec string
		ffmpeg      bool
		claimed     int64 // unknown: nothing is claimed
		most        float64
	}{
		{"gsm_ms.wav", "gsm_ms", true, 2560, -120},
		{"adpcm_g726.wav", "adpcm_g726", true, 2400, -120},
		{"adpcm_g722.wav", "adpcm_g722", true, 4800, -120},
		{"adpcm_yamaha.wav", "adpcm_yamaha", true, 6144, -120},
		{"alac.caf", "alac", true, 8192, -120}, // ffmpeg counts the last packet as a whole one
		{"mp3.wav", "mp3", false, unknown, -80},
		{"mp3.caf", "mp3", false, 16128, -80},
		{"opus.caf", "opus", false, 15360, -40},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := New(Config{})
			if c.ffmpeg {
				p = New(Config{FFmpeg: needFFmpeg(t)})
			}
			file := handedFile(t, filepath.Join("golden", c.name))
			tr, err := p.open(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil {
				t.Fatal(err)
			}
			defer tr.close()
			want := goldenSamples(t, c.name+".f32")
			counted, err := tr.count(t.Context(), math.MaxInt64)
			if a := tr.about(); err != nil || counted != int64(len(want)) || a.claimed != c.claimed || a.codec != c.codec || "."+a.container != filepath.Ext(c.name) {
				t.Errorf("%d frames, want %d, %+v, %v", counted, len(want), a, err)
			}
			got, err := readAll(t, tr)
			if err != nil || len(got) != len(want) {
				t.Fatalf("%d samples, want %d, %v", len(got), len(want), err)
			}
			if d := difference(got, want); d > c.most {
				t.Errorf("differs from the golden samples by %.1f dB", d)
			}
			rep, err := p.Inspect(t.Context(), bytes.NewReader(file), int64(len(file)))
			if err != nil || (rep.Duration-durationOf(counted, rep.SampleRate)).Abs() > slack {
				t.Errorf("%+v, %v", rep, err)
			}
		})
	}
}

// readAll gives the samples of a mono track.
func readAll(t *testing.T, tr track) ([]float32, error) {
	t.Helper()
	var all []float32
	buf := make([]float32, 1000)
	for {
		n, err := tr.read(t.Context(), buf)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, buf[:n]...)
	}
}

// Known bytes give known samples, and formats are named and known as they should be.
func TestPCMFormats(t *testing.T) {
	t.Parallel()
	third := math.Float32bits(1.0 / 3)
	huge := math.Float64bits(1e300)
	for _, c := range []struct {
		format pcmFormat
		name   string
		bits   int
		bytes  []byte
		want   []float32
	}{
		{pcmFormat{bytes: 1}, "pcm_s8", 0, []byte{0x80, 0xFF, 0, 0x40}, []float32{-1, -1.0 / 128, 0, 0.5}},
		{pcmFormat{kind: pcmUnsigned, bytes: 1}, "pcm_u8", 0, []byte{0, 0x7F, 0x80, 0xC0}, []float32{-1, -1.0 / 128, 0, 0.5}},
		{pcmFormat{bytes: 2}, "pcm_s16le", 0, []byte{0, 0x80, 0xFF, 0xFF, 0, 0x40, 7}, []float32{-1, -1.0 / 32768, 0.5}},
		{pcmFormat{bytes: 2, bigEndian: true}, "pcm_s16be", 0, []byte{0x80, 0, 0xFF, 0xFF, 0x40, 0}, []float32{-1, -1.0 / 32768, 0.5}},
		{pcmFormat{kind: pcmUnsigned, bytes: 2, bigEndian: true}, "pcm_u16be", 0, []byte{0, 0, 0x7F, 0xFF, 0xC0, 0}, []float32{-1, -1.0 / 32768, 0.5}},
		{pcmFormat{bytes: 3}, "pcm_s24le", 24, []byte{0, 0, 0x80, 1, 0, 0}, []float32{-1, 1.0 / (1 << 23)}},
		{pcmFormat{bytes: 3, bigEndian: true}, "pcm_s24be", 24, []byte{0x80, 0, 0, 0, 0, 1}, []float32{-1, 1.0 / (1 << 23)}},
		{pcmFormat{bytes: 4}, "pcm_s32le", 32, []byte{0, 0, 0, 0x80, 0, 0, 0, 0x20}, []float32{-1, 0.25}},
		{pcmFormat{bytes: 4, bigEndian: true}, "pcm_s32be", 32, []byte{0x80, 0, 0, 0, 0x20, 0, 0, 0}, []float32{-1, 0.25}},
		{pcmFormat{bytes: 4, above: 8}, "pcm_s24le", 24, []byte{0, 0, 0x80, 0xFF, 0, 0, 0x80, 0, 0, 0, 0x20, 0}, []float32{-1, -1, 0.25}},
		{pcmFormat{bytes: 4, above: 12, bigEndian: true}, "pcm_s24be", 20, []byte{0, 0x04, 0, 0}, []float32{0.5}},
		{pcmFormat{bytes: 2, above: 4}, "pcm_s16le", 0, []byte{0, 0x04}, []float32{0.5}},
		{pcmFormat{bytes: 8}, "pcm_s64le", 64, []byte{0, 0, 0, 0, 0, 0, 0, 0xC0}, []float32{-0.5}},
		{pcmFormat{kind: pcmFloat, bytes: 4}, "pcm_f32le", 32, put(le, third), []float32{1.0 / 3}},
		{pcmFormat{kind: pcmFloat, bytes: 4, bigEndian: true}, "pcm_f32be", 32, put(be, third), []float32{1.0 / 3}},
		{pcmFormat{kind: pcmFloat, bytes: 8}, "pcm_f64le", 64, put(le, huge), []float32{math.MaxFloat32}},
		{pcmFormat{kind: pcmFloat, bytes: 8, bigEndian: true}, "pcm_f64be", 64, put(be, huge), []float32{math.MaxFloat32}},
		{pcmFormat{kind: pcmALaw, bytes: 1}, "pcm_alaw", 0, []byte{0xD5, 0x55}, []float32{1.0 / 4096, -1.0 / 4096}},
		{pcmFormat{kind: pcmMuLaw, bytes: 1}, "pcm_mulaw", 0, []byte{0xFF, 0x00}, []float32{0, -8031.0 / 8192}},
	} {
		if got := c.format.decode([]float32{9}, c.bytes); got[0] != 9 || !slices.Equal(got[1:], c.want) {
			t.Errorf("%s: %x gives %v, want %v", c.name, c.bytes, got[1:], c.want)
		}
		if c.format.name() != c.name || c.format.bits() != c.bits || !c.format.known() {
			t.Errorf("%+v is %s with %d bits, known: %v", c.format, c.format.name(), c.format.bits(), c.format.known())
		}
	}
	for _, f := range []pcmFormat{{}, {bytes: 5}, {bytes: 9}, {bytes: -1}, {bytes: 2, above: 9}, {bytes: 2, above: -1}, {kind: pcmFloat, bytes: 2}, {kind: pcmFloat, bytes: 4, above: 8}, {kind: pcmALaw, bytes: 2}} {
		if f.known() {
			t.Errorf("%+v is known", f)
		}
	}
}

// PCM in packets: whole frames, with what the format says of the samples.
func TestPCMPackets(t *testing.T) {
	t.Parallel()
	c := pcmCodec(pcmFormat{kind: pcmFloat, bytes: 4})
	d, err := c.inside(stream{channels: 2})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.decode(nil, make([]byte, 16)); err != nil || len(got) != 4 {
		t.Errorf("two frames: %v, %v", got, err)
	}
	if _, err := d.decode(nil, make([]byte, 12)); aviary.CodeOf(err) != aviary.CodeAudioBroken {
		t.Errorf("a frame and a half: %v", err)
	}
	s, err := newSource(bytes.NewReader(nil), 0)
	if err != nil {
		t.Fatal(err)
	}
	track, err := newCodedTrack(s, stream{container: "test", codec: c, rate: 8000, channels: 2, claimed: unknown, keep: unknown})
	if err != nil {
		t.Fatal(err)
	}
	if a := track.about(); a.codec != "pcm_f32le" || a.bits != 32 || !a.anyScale {
		t.Errorf("%+v", a)
	}
}

// Widths and scales get through to what Normalize decides by.
func TestBitsAndScale(t *testing.T) {
	t.Parallel()
	golden := func(name string) []byte { return handedFile(t, filepath.Join("golden", name)) }
	for name, c := range map[string]struct {
		file     []byte
		bits     int
		anyScale bool
	}{
		"WAV, 16 bits":   {plainWAV(10), 0, false},
		"WAV, 24 bits":   {golden("s24_12k_mono.wav"), 24, false},
		"WAV, float":     {golden("f32_96k_mono.wav"), 32, true},
		"WAV, mu-law":    {golden("mulaw_8k_mono.wav"), 0, false},
		"FLAC, 16 bits":  {append(streamInfo(16000, 1, 16, 16, true), flacFrame(16, 1, 16, 1)...), 0, false},
		"FLAC, 24 bits":  {append(streamInfo(16000, 1, 24, 16, true), flacFrame(16, 1, 24, 1)...), 24, false},
		"AIFF, 32 bits":  {golden("pcm_s32be.aiff"), 32, false},
		"AU, 64 bits":    {golden("pcm_f64be.au"), 64, true},
		"Wave64, 8 bits": {golden("pcm_u8.w64"), 0, false},
		"ADPCM":          {golden("adpcm_ms.wav"), 0, false},
	} {
		tr, err := New(Config{}).open(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if a := tr.about(); a.bits != c.bits || a.anyScale != c.anyScale {
			t.Errorf("%s: %d bits, any scale: %v", name, a.bits, a.anyScale)
		}
	}
}

// fileCase is a file and what is to be made of it.
type fileCase struct {
	name   string
	file   []byte
	want   time.Duration // that is accepted
	code   aviary.Code   // or the refusal
	detail string        // which says this
}

// checkFiles probes and decodes files.
func checkFiles(t *testing.T, cases []fileCase) {
	t.Helper()
	p := New(Config{MaxDuration: time.Hour})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			audio, err := p.Probe(t.Context(), bytes.NewReader(c.file), int64(len(c.file)))
			if aviary.CodeOf(err) != c.code || audio.Duration != c.want {
				t.Errorf("Probe: %v, %v; want %v, %q", audio.Duration, err, c.want, c.code)
			}
			if err != nil && !strings.Contains(err.Error(), c.detail) {
				t.Errorf("%v does not say %q", err, c.detail)
			}
			pcm, err := p.Decode(t.Context(), bytes.NewReader(c.file), int64(len(c.file)), time.Hour)
			if aviary.CodeOf(err) != c.code || (pcm.Duration()-c.want).Abs() > slack {
				t.Errorf("Decode: %v, %v; want %v, %q", pcm.Duration(), err, c.want, c.code)
			}
			checkClean(t, pcm)
		})
	}
}

// Failures of the storage are no faults of the file, wherever they happen.
func TestFailuresOfTheReaderInContainers(t *testing.T) {
	t.Parallel()
	disk := errors.New("disk on fire")
	for _, name := range []string{"pcm_s16be.aiff", "adpcm_ima_qt.aifc", "pcm_s24be.au", "pcm_f32le.caf", "opus.caf", "mp3.caf", "adpcm_ms.w64", "adpcm_ima_wav.wav", "mp3.wav", "pcm_s64le.wav"} {
		file := handedFile(t, filepath.Join("golden", name))
		for _, good := range []int64{0, 40, 100, int64(len(file)) - 1} {
			for _, cause := range []error{disk, io.EOF} {
				r := failingReader{bytes.NewReader(file), good, cause}
				for op, run := range map[string]func() error{
					"Probe":  func() error { _, err := New(Config{}).Probe(t.Context(), r, int64(len(file))); return err },
					"Decode": func() error { _, err := New(Config{}).Decode(t.Context(), r, int64(len(file)), 0); return err },
				} {
					if err := run(); err != nil && aviary.CodeOf(err) != aviary.CodeInternal || err == nil && (op == "Decode" || good == 0) {
						t.Errorf("%s of %s that fails after %d bytes with %v: %v", op, name, good, cause, err)
					}
				}
			}
		}
	}
}

// Counting costs no more than the rules of the package allow.
func TestProbeOfContainersIsCheap(t *testing.T) {
	for _, name := range []string{"pcm_s16be.aiff", "adpcm_ima_qt.aifc", "pcm_s24be.au", "pcm_f32le.caf", "opus.caf", "mp3.caf", "adpcm_ms.w64", "adpcm_ima_wav.wav", "mp3.wav"} {
		file := handedFile(t, filepath.Join("golden", name))
		if n := allocates(func() { _, _ = New(Config{}).Probe(t.Context(), bytes.NewReader(file), int64(len(file))) }); n > probeBytes/2 {
			t.Errorf("%s: Probe allocates %d bytes", name, n)
		}
	}
}
