package probe

import (
	"bytes"
	"encoding/csv"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// handed is one row of testdata/cases.tsv: a file, what it truly holds, and the answers that are acceptable.
type handed struct {
	name, format string
	truth        float64   // seconds; NaN where nothing can be decoded
	answer       string    // the best one
	also         []string  // others
	accept       []float64 // seconds that may be accepted; none: never
}

// answers maps codes to the words of cases.tsv.
var answers = map[aviary.Code]string{
	"":                              "accept",
	aviary.CodeAudioTooLong:         "413_too_long",
	aviary.CodeDurationUnknown:      "413_unknown",
	aviary.CodeAudioBroken:          "400_broken",
	aviary.CodeMediaTypeUnsupported: "415_not_audio",
}

func handedCases(t testing.TB) []handed {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", "cases.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	table := csv.NewReader(file)
	table.Comma, table.LazyQuotes = '\t', true
	rows, err := table.ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	column := func(name string) int { return slices.Index(rows[0], name) }
	var all []handed
	for _, row := range rows[1:] {
		h := handed{name: row[column("name")], format: row[column("format")], answer: row[column("answer")], truth: math.NaN()}
		if v, err := strconv.ParseFloat(row[column("true_duration_s")], 64); err == nil {
			h.truth = v
		}
		h.also = strings.Split(row[column("also_ok")], ",")
		for _, s := range strings.Split(row[column("accept_s")], ";") {
			if v, err := strconv.ParseFloat(s, 64); err == nil {
				h.accept = append(h.accept, v)
			}
		}
		all = append(all, h)
	}
	return all
}

func (h handed) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", h.name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// judge fails the test unless err, or the duration when it is nil, is acceptable.
func (h handed) judge(t *testing.T, d time.Duration, err error) {
	t.Helper()
	got := answers[aviary.CodeOf(err)]
	var e *aviary.Error
	switch {
	case err != nil && !errors.As(err, &e):
		t.Errorf("%v is not a refusal", err)
	case err != nil && (e.Detail == "" || !strings.HasSuffix(e.Detail, ".")):
		t.Errorf("the detail %q is no sentence", e.Detail)
	case got == "415_not_audio" && strings.Contains(e.Detail, "not supported yet"):
	case got == "accept":
		near := func(s float64) bool { return math.Abs(d.Seconds()-s) <= 0.05 }
		if !slices.ContainsFunc(h.accept, near) {
			t.Errorf("accepted as %v; want %s or, as an accepted length, one of %v", d, h.answer, h.accept)
		}
	case got != h.answer && !slices.Contains(h.also, got):
		t.Errorf("%s (%v), want %s or one of %v", got, err, h.answer, h.also)
	}
}

func TestHandedCases(t *testing.T) {
	t.Parallel()
	const guard = time.Hour
	p := New(Config{MaxDuration: guard})
	for _, h := range handedCases(t) {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			b := h.bytes(t)
			audio, err := p.Probe(t.Context(), bytes.NewReader(b), int64(len(b)))
			if err == nil {
				err = aviary.CheckDuration("test", audio.Duration, guard)
			}
			h.judge(t, audio.Duration, err)

			limit := guard
			if h.truth > 60 {
				limit = 10 * time.Second // a file that is long is refused by its length or for its lies, and here sooner
			}
			pcm, err := p.Decode(t.Context(), bytes.NewReader(b), int64(len(b)), limit)
			if h.truth > 60 && aviary.CodeOf(err) == aviary.CodeAudioTooLong {
				return
			}
			h.judge(t, pcm.Duration(), err)
			checkClean(t, pcm)
		})
	}
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
	p := New(Config{MaxDuration: time.Hour})
	for _, h := range handedCases(t) {
		b := h.bytes(t)
		for _, part := range []int{1, 2, 3, 4, 8, 11, 12, 16, 20, 21, 27, 35, 36, 38, 40, 43, 44, 45, 46, 58, 60, 68, 80, 100, len(b) / 3, len(b) - 1} {
			if part < 0 || part > len(b) {
				continue
			}
			_, err := p.Probe(t.Context(), bytes.NewReader(b[:part]), int64(part))
			if _, known := answers[aviary.CodeOf(err)]; !known {
				t.Errorf("%s cut at %d: %v", h.name, part, err)
			}
		}
	}
}

func TestFailuresOfTheReaderAreNotFaultsOfTheFile(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk on fire")
	for _, name := range []string{"wav_bext_junk.wav", "flac_named_mp3.mp3", "wav_8k_alaw.wav"} {
		b := handed{name: name}.bytes(t)
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
