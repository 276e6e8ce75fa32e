package probe

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/probetest"
)

// Fuzzing holds the package to its promises for any bytes: see examine. Seeds are the small handed files whose name starts with one of the
// prefixes, all of them if none is given, and files of our own.
func seeds(f *testing.F, prefixes ...string) {
	f.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", "*"))
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || len(b) > 12<<10 {
			b = b[:min(len(b), 4<<10)]
		}
		for _, p := range append(prefixes, "") {
			if strings.HasPrefix(filepath.Base(name), p) && (p != "" || len(prefixes) == 0) {
				f.Add(b)
			}
		}
	}
}

// examine probes and decodes a file and fails the test where a promise is broken.
func examine(t *testing.T, file []byte) {
	t.Helper()
	const guard, limit = time.Minute, 5 * time.Second
	p := New(Config{MaxDuration: guard})
	var audio aviary.Audio
	var err error
	if n := allocates(func() { audio, err = p.Probe(context.Background(), bytes.NewReader(file), int64(len(file))) }); n > probeBytes+(256<<10) {
		t.Fatalf("Probe of %d bytes allocates %d", len(file), n) // the fuzzer allocates a little itself
	}
	refused(t, err)
	if err == nil && (audio.Duration <= 0 || audio.SampleRate < minRate || audio.SampleRate > maxRate || audio.Channels < 1 || audio.Channels > maxChannels ||
		audio.Container == "" || audio.Codec == "") {
		t.Fatalf("accepted as %+v", audio)
	}
	var pcm aviary.PCM
	var decodeErr error
	most := uint64(8<<20) + 16*uint64(limit.Seconds()*aviary.SampleRate) + 16*uint64(len(file))
	if n := allocates(func() {
		pcm, decodeErr = p.Decode(context.Background(), bytes.NewReader(file), int64(len(file)), limit)
	}); n > most {
		t.Fatalf("Decode of %d bytes allocates %d", len(file), n)
	}
	refused(t, decodeErr)
	checkClean(t, pcm)
	switch {
	case err == nil && audio.Duration > limit+slack:
		if aviary.CodeOf(decodeErr) != aviary.CodeAudioTooLong && (audio.Duration <= guard || decodeErr == nil) {
			t.Fatalf("probed as %v, but Decode up to %v: %v", audio.Duration, limit, decodeErr)
		}
	case err == nil && decodeErr == nil:
		if (pcm.Duration() - audio.Duration).Abs() > slack+time.Millisecond {
			t.Fatalf("probed as %v, decoded to %v", audio.Duration, pcm.Duration())
		}
	case err == nil && audio.Duration <= limit && !strings.Contains(decodeErr.Error(), "not numbers") && !strings.Contains(decodeErr.Error(), "frames are damaged") &&
		!strings.Contains(decodeErr.Error(), "blocks are damaged"):
		t.Fatalf("probed as %v, but Decode: %v", audio.Duration, decodeErr)
	case err != nil && decodeErr == nil:
		t.Fatalf("probed as %v, but decoded to %v", err, pcm.Duration())
	}
}

// refused fails the test unless err is nil or about the file.
func refused(t *testing.T, err error) {
	t.Helper()
	var e *aviary.Error
	if err != nil && (!errors.As(err, &e) || probetest.Word(e.Code) == "" || e.Detail == "") {
		t.Fatalf("%v is not a refusal", err)
	}
}

func FuzzProbe(f *testing.F) {
	seeds(f)
	f.Fuzz(examine)
}

func FuzzWAV(f *testing.F) {
	seeds(f, "wav_", "rf64_")
	f.Add(plainWAV(100))
	f.Add(riff(le, "RIFF", extensible(tagFloat, 2, 44100, 32, 32), chunk(le, "LIST", []byte("abc")), chunk(le, "data", make([]byte, 800)), chunk(le, "id3 ", nil)))
	f.Add(riff(be, "RIFX", fmtChunk(be, tagPCM, 3, 8000, 24), chunk(be, "data", make([]byte, 900))))
	f.Add(riff(le, "RF64", chunk(le, "ds64", put(le, uint64(0), uint64(800), uint64(0), uint32(0))), fmtChunk(le, tagALaw, 1, 8000, 8), put(le, "data", uint32(1<<32-1), make([]byte, 800))))
	f.Fuzz(func(t *testing.T, file []byte) {
		if file = bytes.Clone(file); len(file) >= 12 { // spend no time on other containers
			copy(file[8:], "WAVE")
			if _, ok := wavContainers[string(file[:4])]; !ok {
				copy(file, "RIFF")
			}
		}
		examine(t, file)
	})
}

func FuzzFLAC(f *testing.F) {
	seeds(f, "flac_")
	f.Add(append(streamInfo(16000, 1, 16, 0, true), bytes.Repeat(flacFrame(600, 1, 16, 5), 3)...))
	f.Add(append(streamInfo(44100, 2, 24, 1000, true), flacFrame(1000, 2, 24, 5)...))
	f.Fuzz(func(t *testing.T, file []byte) {
		file = bytes.Clone(file)
		copy(file, "fLaC")
		examine(t, file)
	})
}

func BenchmarkProbe(b *testing.B) {
	for name, file := range benchmarkFiles() {
		b.Run(name, func(b *testing.B) {
			p := New(Config{MaxDuration: time.Hour})
			for b.Loop() {
				if _, err := p.Probe(b.Context(), file, file.size); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for name, file := range benchmarkFiles() {
		b.Run(name, func(b *testing.B) {
			var pcm aviary.PCM
			for b.Loop() {
				var err error
				if pcm, err = New(Config{}).Decode(b.Context(), file, file.size, time.Hour); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*pcm.Duration().Seconds()/b.Elapsed().Seconds(), "audio_s/s")
		})
	}
}

// benchmarkFiles are a minute each. Frames of FLAC are not compressed, which costs less than real ones: see the benchmark of probe/flac.
func benchmarkFiles() map[string]tiled {
	verbatim := longFLAC(16000, 0, 16, 0, 60*16000)
	verbatim.tile = verbatimFrame(16000)
	verbatim.size = int64(len(verbatim.head)) + 60*int64(len(verbatim.tile))
	file := func(b []byte) tiled { return tiled{head: b, size: int64(len(b))} }
	return map[string]tiled{
		"wav_u8_8k":       longWAV(8000, 60*8000),
		"wav_s16_16k":     file(plainWAV(60 * 16000)),
		"wav_s16_44k1_x2": file(riff(le, "RIFF", fmtChunk(le, tagPCM, 2, 44100, 16), chunk(le, "data", tone16(60*2*44100)))),
		"wav_f32_48k_x2":  file(riff(le, "RIFF", fmtChunk(le, tagFloat, 2, 48000, 32), chunk(le, "data", make([]byte, 60*8*48000)))),
		"flac_16k":        verbatim,
	}
}
