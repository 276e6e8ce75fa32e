package queue

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// fakeBlobs holds nothing: a blob's content is its key, which is the job's id.
type fakeBlobs struct{ aviary.Blobs }

type fakeBlob struct{ *bytes.Reader }

func (fakeBlob) Close() error { return nil }

func (fakeBlobs) Open(_ context.Context, key string) (aviary.Blob, error) {
	return fakeBlob{bytes.NewReader([]byte(key))}, nil
}

// fakeProber decodes each byte to a sample, so that a device can tell whose audio it hears.
type fakeProber struct{ aviary.Prober }

func (fakeProber) Decode(_ context.Context, r io.ReaderAt, size int64, _ time.Duration) (aviary.PCM, error) {
	content, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	pcm := make(aviary.PCM, len(content))
	for i, b := range content {
		pcm[i] = float32(b)
	}
	return pcm, err
}

func jobOf(pcm aviary.PCM) string {
	id := make([]byte, len(pcm))
	for i, v := range pcm {
		id[i] = byte(v)
	}
	return string(id)
}

type fakeObserver struct{}

func (fakeObserver) JobAccepted(aviary.Audio, aviary.Priority) {}
func (fakeObserver) JobRefused(aviary.Code)                    {}
func (fakeObserver) AttemptStarted(string, time.Duration)      {}
func (fakeObserver) AttemptEnded(aviary.AttemptEnd)            {}

// fakeDevice records what runs on it, and notices when two jobs do at once.
type fakeDevice struct {
	name string
	// work is what a job does on it; nil returns at once.
	work func(ctx context.Context, job string) error

	mu      sync.Mutex
	running int
	overlap bool
	jobs    []string // in the order in which they started
}

func (d *fakeDevice) Name() string { return d.name }

func (d *fakeDevice) Transcribe(ctx context.Context, pcm aviary.PCM, _ aviary.AttentionMode, _ func(time.Duration)) (aviary.Transcript, error) {
	job := jobOf(pcm)
	d.mu.Lock()
	d.running++
	d.overlap = d.overlap || d.running > 1
	d.jobs = append(d.jobs, job)
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		d.running--
		d.mu.Unlock()
	}()
	if d.work != nil {
		if err := d.work(ctx, job); err != nil {
			return aviary.Transcript{}, err
		}
	}
	return aviary.Transcript{Text: job}, nil
}

func (d *fakeDevice) ran() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.jobs...)
}

func (d *fakeDevice) overlapped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.overlap
}

// recorder is a slog.Handler that counts messages and shows them when a test fails.
type recorder struct {
	mu     *sync.Mutex
	counts map[string]int
	inner  slog.Handler
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{mu: &sync.Mutex{}, counts: map[string]int{}, inner: slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo})}
}

func (r *recorder) Enabled(context.Context, slog.Level) bool { return true }

func (r *recorder) Handle(ctx context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[rec.Message]++
	if !r.inner.Enabled(ctx, rec.Level) {
		return nil
	}
	return r.inner.Handle(ctx, rec)
}

func (r *recorder) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &recorder{mu: r.mu, counts: r.counts, inner: r.inner.WithAttrs(attrs)}
}

func (r *recorder) WithGroup(name string) slog.Handler {
	return &recorder{mu: r.mu, counts: r.counts, inner: r.inner.WithGroup(name)}
}

func (r *recorder) count(message string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.counts[message]
}

func (r *recorder) logger() *slog.Logger { return slog.New(r) }
