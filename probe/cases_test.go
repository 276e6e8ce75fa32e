package probe

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/probe/ffmpeg"
	"github.com/aviary-asr/aviary/probe/probetest"
)

// handedCases are the rows of testdata/cases.tsv.
func handedCases(t testing.TB) []probetest.Case {
	t.Helper()
	return probetest.Cases(t, "testdata")
}

// handedFile is a file of testdata.
func handedFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// judge fails the test unless err, or the duration when it is nil, is acceptable. Without ffmpeg, what needs it may be refused for that.
func judge(t *testing.T, c probetest.Case, p *Prober, d time.Duration, err error) {
	t.Helper()
	var e *aviary.Error
	switch {
	case err != nil && !errors.As(err, &e):
		t.Errorf("%v is not a refusal", err)
		return
	case err != nil && (e.Detail == "" || !strings.HasSuffix(e.Detail, ".")):
		t.Errorf("the detail %q is no sentence", e.Detail)
	case p.cfg.FFmpeg == nil && err != nil && strings.Contains(e.Detail, "this server has none"):
		return
	}
	if wrong := c.Judge(aviary.CodeOf(err), d); wrong != nil {
		t.Errorf("%v (%v)", wrong, err)
	}
}

// Every handed file gets an acceptable answer from Probe, Decode and Normalize, with ffmpeg where there is one, and without.
func TestHandedCases(t *testing.T) {
	t.Parallel()
	for name, find := range map[string]func(testing.TB) *ffmpeg.Command{
		"with ffmpeg": needFFmpeg, "without": func(testing.TB) *ffmpeg.Command { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := New(Config{MaxDuration: guard, FFmpeg: find(t)})
			for _, c := range handedCases(t) {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					checkHanded(t, p, c)
				})
			}
		})
	}
}

// guard is the limit of the handed cases.
const guard = time.Hour

func checkHanded(t *testing.T, p *Prober, c probetest.Case) {
	t.Helper()
	b := handedFile(t, c.Name)
	audio, err := p.Probe(t.Context(), bytes.NewReader(b), int64(len(b)))
	if err == nil {
		err = aviary.CheckDuration("test", audio.Duration, guard)
	}
	judge(t, c, p, audio.Duration, err)

	limit := guard
	if c.Truth > 60 {
		limit = 10 * time.Second // a file that is long is refused by its length or for its lies, and here sooner
	}
	pcm, err := p.Decode(t.Context(), bytes.NewReader(b), int64(len(b)), limit)
	if c.Truth <= 60 || aviary.CodeOf(err) != aviary.CodeAudioTooLong {
		judge(t, c, p, pcm.Duration(), err)
		checkClean(t, pcm)
	}

	if c.Truth > 60 && len(c.Accept) > 0 && (underRace || p.cfg.FFmpeg == nil) {
		return // whole hours are normalized once
	}
	var rec tape
	audio, err = p.Normalize(t.Context(), bytes.NewReader(b), int64(len(b)), aviary.Normalizing{Limit: guard}, &rec)
	judge(t, c, p, audio.Duration, err)
	if err != nil {
		return
	}
	heard, err := p.Decode(t.Context(), bytes.NewReader(rec.b), int64(len(rec.b)), guard+time.Second)
	if err != nil || (heard.Duration()-audio.Duration).Abs() > time.Millisecond {
		t.Errorf("the device hears %v (%v), the answer said %v", heard.Duration(), err, audio.Duration)
	}
	checkClean(t, heard)
}

// checkClean fails the test for samples that must not reach an engine.
func checkClean(t *testing.T, pcm aviary.PCM) {
	t.Helper()
	for i, v := range pcm {
		if !(math.Abs(float64(v)) <= 2*maxSample) { // the resampler may overshoot
			t.Fatalf("sample %d is %v", i, v)
		}
	}
}

// Each handed file is also cut off at many places, and each must be refused or give what is there, without a panic.
func TestTruncatedFiles(t *testing.T) {
	t.Parallel()
	p := New(Config{MaxDuration: guard})
	for _, c := range handedCases(t) {
		b := handedFile(t, c.Name)
		for _, part := range []int{1, 2, 3, 4, 8, 11, 12, 16, 20, 21, 27, 35, 36, 38, 40, 43, 44, 45, 46, 58, 60, 68, 80, 100, len(b) / 3, len(b) - 1} {
			if part < 0 || part > len(b) {
				continue
			}
			_, err := p.Probe(t.Context(), bytes.NewReader(b[:part]), int64(part))
			if probetest.Word(aviary.CodeOf(err)) == "" {
				t.Errorf("%s cut at %d: %v", c.Name, part, err)
			}
		}
	}
}

func TestFailuresOfTheReaderAreNotFaultsOfTheFile(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for _, name := range []string{"wav_bext_junk.wav", "flac_named_mp3.mp3", "wav_8k_alaw.wav"} {
		b := handedFile(t, name)
		for _, good := range []int64{0, 100, 5000, int64(len(b)) - 1} {
			p := New(Config{})
			failing := func(err error) io.ReaderAt { return failingReader{bytes.NewReader(b), good, err} }
			for _, cause := range []error{broken, io.EOF} {
				_, err := p.Decode(t.Context(), failing(cause), int64(len(b)), 0)
				if aviary.CodeOf(err) != aviary.CodeInternal {
					t.Errorf("%s fails with %v after %d bytes: %v, want an internal error", name, cause, good, err)
				}
				if errors.Is(cause, broken) && !errors.Is(err, broken) {
					t.Errorf("%s after %d bytes: the cause is lost in %v", name, good, err)
				}
			}
		}
	}
}

// failingReader is an io.ReaderAt that fails beyond good bytes.
type failingReader struct {
	r    io.ReaderAt
	good int64
	err  error
}

func (f failingReader) ReadAt(p []byte, off int64) (int, error) {
	n := int64(len(p))
	if off+n <= f.good {
		return f.r.ReadAt(p, off)
	}
	m, _ := f.r.ReadAt(p[:max(f.good-off, 0)], off)
	return m, f.err
}
