package aviary_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// shelf is Blobs in memory.
type shelf struct {
	blobs  map[string][]byte
	staged int
	free   int64
	err    error // of Commit
	only   int   // commits that go well before err counts
	full   error // of Write
	room   int   // writes that go well before full counts
}

type book struct {
	*bytes.Reader
	shelf *shelf
	buf   bytes.Buffer
	ended bool
}

func (s *shelf) Stage(context.Context) (aviary.Staged, error) {
	s.staged++
	return &book{shelf: s}, nil
}
func (s *shelf) Open(_ context.Context, key string) (aviary.Blob, error) {
	b, ok := s.blobs[key]
	if !ok {
		return nil, aviary.Errorf(aviary.CodeNotFound, "shelf", "no blob %q", key)
	}
	return &book{Reader: bytes.NewReader(b), shelf: s}, nil
}
func (s *shelf) Delete(_ context.Context, key string) error { delete(s.blobs, key); return nil }
func (s *shelf) FreeBytes(context.Context) (int64, error)   { return s.free, nil }
func (s *shelf) List(context.Context, string, int) ([]aviary.BlobInfo, error) {
	panic("an intake lists nothing")
}
func (b *book) Write(p []byte) (int, error) {
	if b.shelf.full != nil && b.shelf.room == 0 {
		return 0, b.shelf.full
	}
	b.shelf.room--
	return b.buf.Write(p)
}
func (b *book) WriteAt(p []byte, off int64) (int, error) { return copy(b.buf.Bytes()[off:], p), nil }
func (b *book) Close() error                             { return nil }
func (b *book) Size() int64                              { return max(int64(b.buf.Len()), b.len()) }
func (b *book) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(b.buf.Bytes()).ReadAt(p, off)
}
func (b *book) len() int64 {
	if b.Reader == nil {
		return 0
	}
	return b.Reader.Size()
}
func (b *book) Commit(_ context.Context, key string) error {
	if b.shelf.err != nil && b.shelf.only == 0 {
		return b.shelf.err
	}
	b.shelf.only--
	b.shelf.blobs[key] = b.buf.Bytes()
	return b.Discard()
}
func (b *book) Discard() error {
	if !b.ended {
		b.ended = true
		b.shelf.staged--
	}
	return nil
}

// hearing is a Prober that takes everything for audio of a fixed duration.
type hearing struct {
	audio aviary.Audio
	err   error
	peek  func(received int64) error
	enter func(aviary.Normalizing) // called within Normalize
	pcm   aviary.PCM               // what Decode gives
}

func (h hearing) Peek(_ context.Context, _ io.ReaderAt, received int64) error {
	if h.peek == nil {
		return nil
	}
	return h.peek(received)
}

func (h hearing) Normalize(_ context.Context, _ io.ReaderAt, size int64, n aviary.Normalizing, w aviary.RecordingWriter) (aviary.Audio, error) {
	if h.enter != nil {
		h.enter(n)
	}
	if _, err := fmt.Fprintf(w, "____ of %d bytes", size); err != nil {
		return aviary.Audio{}, err
	}
	if _, err := w.WriteAt([]byte("mono"), 0); err != nil {
		return aviary.Audio{}, err
	}
	return h.audio, h.err
}

func (h hearing) Decode(context.Context, io.ReaderAt, int64, time.Duration) (aviary.PCM, error) {
	return h.pcm, h.err
}

// rows is the part of a Store that Intake uses.
type rows struct {
	aviary.Store
	mu      sync.Mutex
	jobs    map[string]aviary.Job
	err     error
	lost    bool // the row is made, but the answer is lost
	backlog aviary.Backlog
	open    map[string]aviary.Amount                     // by tenant
	away    error                                        // of every read
	looked  func(key string, jobs map[string]aviary.Job) // runs before Requested answers
}

func (r *rows) CreateJob(_ context.Context, j aviary.Job, _ aviary.QueueLimits) (aviary.Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.requested(j.Tenant, j.RequestKey); taken {
		return j, aviary.ErrRequestKeyTaken
	}
	if r.err == nil || r.lost {
		r.jobs[j.ID] = j
	}
	return j, r.err
}

func (r *rows) requested(tenant, key string) (aviary.Job, bool) {
	for _, j := range r.jobs {
		if key != "" && j.Tenant == tenant && j.RequestKey == key {
			return j, true
		}
	}
	return aviary.Job{}, false
}

func (r *rows) Requested(_ context.Context, tenant, key string) (aviary.Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away != nil {
		return aviary.Job{}, r.away
	}
	if r.looked != nil {
		r.looked(key, r.jobs)
	}
	j, ok := r.requested(tenant, key)
	if !ok {
		return j, aviary.Errorf(aviary.CodeNotFound, "rows", "no job")
	}
	return j, nil
}

func (r *rows) TenantOpen(_ context.Context, tenant string) (aviary.Amount, error) {
	return r.open[tenant], r.away
}

func (r *rows) Backlog(context.Context) (aviary.Backlog, error) { return r.backlog, r.away }
func (r *rows) Job(_ context.Context, id string) (aviary.Job, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	j, ok := r.jobs[id]
	if !ok {
		return j, aviary.Errorf(aviary.CodeNotFound, "rows", "no job")
	}
	return j, nil
}
func (r *rows) Expire(ctx context.Context, id string, _ bool) (aviary.Job, error) {
	return r.Job(ctx, id)
}

// witness is an Observer that remembers.
type witness struct {
	accepted int
	refused  []aviary.Code
	ends     []aviary.AttemptEnd
	woken    int
}

func (w *witness) JobAccepted(aviary.Audio, aviary.Priority) { w.accepted++ }
func (w *witness) JobRefused(c aviary.Code)                  { w.refused = append(w.refused, c) }
func (w *witness) AttemptStarted(string, time.Duration)      {}
func (w *witness) AttemptEnded(e aviary.AttemptEnd)          { w.ends = append(w.ends, e) }
func (w *witness) Wake()                                     { w.woken++ }

func newIntake(h hearing) (*aviary.Intake, *shelf, *rows, *witness) {
	s, r, w := &shelf{blobs: map[string][]byte{}, free: 1 << 40}, &rows{jobs: map[string]aviary.Job{}}, &witness{}
	return &aviary.Intake{Store: r, Blobs: s, Prober: h, Waker: w, Observer: w, Log: slog.New(slog.DiscardHandler),
		NewID:  func() string { return "job_1" },
		Limits: aviary.IntakeLimits{Duration: time.Hour, UploadBytes: 10, FreeBytes: 100, MaxAttempts: 3}}, s, r, w
}

func lasting(d time.Duration) hearing {
	return hearing{audio: aviary.Audio{Container: "wav", Duration: d}}
}

func TestSubmitAccepts(t *testing.T) {
	in, blobs, store, w := newIntake(lasting(time.Hour))
	job, _, err := in.Submit(t.Context(), strings.NewReader("0123456789"), aviary.Submission{Options: aviary.Options{Name: "a.wav", Attention: "FULL"}})
	if err != nil {
		t.Fatal(err)
	}
	if string(blobs.blobs[job.BlobKey]) != "0123456789" || string(blobs.blobs[job.AudioKey]) != "mono of 10 bytes" || blobs.staged != 0 || len(store.jobs) != 1 {
		t.Errorf("blobs %q, staged %d, rows %d", blobs.blobs, blobs.staged, len(store.jobs))
	}
	const sum = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882" // sha256sum of the ten digits
	if job.Audio.SHA256 != sum || job.Audio.Bytes != 10 {
		t.Errorf("audio %+v", job.Audio)
	}
	if job.Options.Priority != aviary.PriorityInteractive || job.Options.Attention != aviary.AttentionFull {
		t.Errorf("options %+v", job.Options)
	}
	if w.accepted != 1 || w.woken != 1 || len(w.refused) != 0 {
		t.Errorf("observed %+v", w)
	}
}

func TestSubmitRefusesAndLeavesNothing(t *testing.T) {
	audio := func(code aviary.Code) hearing { return hearing{err: aviary.Errorf(code, "probe", "no")} }
	tests := []struct {
		name    string
		hearing hearing
		body    io.Reader
		opts    aviary.Options
		change  func(*aviary.Intake, *shelf, *rows)
		want    aviary.Code
	}{
		{"one millisecond too long", lasting(time.Hour + time.Millisecond), nil, aviary.Options{}, nil, aviary.CodeAudioTooLong},
		{"unknown duration", lasting(0), nil, aviary.Options{}, nil, aviary.CodeDurationUnknown},
		{"unprobeable", audio(aviary.CodeMediaTypeUnsupported), nil, aviary.Options{}, nil, aviary.CodeMediaTypeUnsupported},
		{"too many bytes", lasting(1), strings.NewReader("0123456789x"), aviary.Options{}, nil, aviary.CodeUploadTooLarge},
		{"a body that breaks off", lasting(1), iotest.ErrReader(aviary.Errorf(aviary.CodeUploadStalled, "", "")), aviary.Options{}, nil, aviary.CodeUploadStalled},
		{"attention", lasting(1), nil, aviary.Options{Attention: "most"}, nil, aviary.CodeOptionInvalid},
		{"priority", lasting(1), nil, aviary.Options{Priority: "high"}, nil, aviary.CodeOptionInvalid},
		{"an empty label", lasting(1), nil, aviary.Options{Labels: map[string]string{"": "x"}}, nil, aviary.CodeOptionInvalid},
		{"no room", lasting(1), nil, aviary.Options{}, func(_ *aviary.Intake, s *shelf, _ *rows) { s.free = 99 }, aviary.CodeStorageFull},
		{"disk full at commit", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, s *shelf, _ *rows) { s.err = aviary.Errorf(aviary.CodeStorageFull, "", "") }, aviary.CodeStorageFull},
		{"disk full at the second commit", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, s *shelf, _ *rows) {
				s.err, s.only = aviary.Errorf(aviary.CodeStorageFull, "", ""), 1
			}, aviary.CodeStorageFull},
		{"disk full while the upload is received", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, s *shelf, _ *rows) { s.full = aviary.Errorf(aviary.CodeStorageFull, "", "") }, aviary.CodeStorageFull},
		{"disk full while the recording is written", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, s *shelf, _ *rows) {
				s.full, s.room = aviary.Errorf(aviary.CodeStorageFull, "", ""), 1
			}, aviary.CodeStorageFull},
		{"disk full at the row", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, _ *shelf, r *rows) { r.err = aviary.Errorf(aviary.CodeStorageFull, "", "") }, aviary.CodeStorageFull},
		{"the store is away at the row", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, _ *shelf, r *rows) { r.err = errors.New("connection refused") }, aviary.CodeInternal},
		{"a channel before the first", lasting(1), nil, aviary.Options{Channel: -1}, nil, aviary.CodeOptionInvalid},
		{"queue full", lasting(1), nil, aviary.Options{},
			func(_ *aviary.Intake, _ *shelf, r *rows) { r.err = aviary.Errorf(aviary.CodeQueueFull, "", "") }, aviary.CodeQueueFull},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			in, blobs, store, w := newIntake(tt.hearing)
			if tt.change != nil {
				tt.change(in, blobs, store)
			}
			if tt.body == nil {
				tt.body = strings.NewReader("audio")
			}
			_, _, err := in.Submit(t.Context(), tt.body, aviary.Submission{Options: tt.opts})
			if aviary.CodeOf(err) != tt.want {
				t.Fatalf("got %v, want %s", err, tt.want)
			}
			if len(blobs.blobs) != 0 || blobs.staged != 0 || len(store.jobs) != 0 || w.woken != 0 || w.accepted != 0 {
				t.Errorf("left blobs %v, %d staged, rows %v, %+v", blobs.blobs, blobs.staged, store.jobs, w)
			}
			if len(w.refused) != 1 || w.refused[0] != tt.want {
				t.Errorf("observed refusals %v", w.refused)
			}
		})
	}
}

func TestSubmitKeepsTheBlobWhenTheRowIsInDoubt(t *testing.T) {
	in, blobs, store, _ := newIntake(lasting(time.Second))
	store.err, store.lost = errors.New("connection reset"), true
	if _, _, err := in.Submit(t.Context(), strings.NewReader("x"), aviary.Submission{}); err == nil {
		t.Fatal("no error")
	}
	if len(blobs.blobs) != 2 {
		t.Error("a blob is gone, but the row exists: the job would fail")
	}
}

func TestSubmitStopsWhenTheClientGoesAway(t *testing.T) {
	in, blobs, _, _ := newIntake(lasting(time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := in.Submit(ctx, strings.NewReader("x"), aviary.Submission{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if blobs.staged != 0 || len(blobs.blobs) != 0 {
		t.Error("something is left")
	}
}

func TestDurationGuardAtItsBoundary(t *testing.T) {
	for d, pass := range map[time.Duration]bool{time.Hour: true, time.Hour + time.Millisecond: false, time.Hour + 1: false, time.Second: true} {
		if err := aviary.CheckDuration("test", d, time.Hour); (err == nil) != pass {
			t.Errorf("%v: %v", d, err)
		}
		if err := aviary.CheckDuration("test", d, 0); err != nil {
			t.Errorf("%v without a guard: %v", d, err)
		}
	}
}

func TestDeletePurgesTheBlob(t *testing.T) {
	in, blobs, _, _ := newIntake(lasting(time.Second))
	job, _, err := in.Submit(t.Context(), strings.NewReader("x"), aviary.Submission{})
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Delete(t.Context(), job.ID, false); err != nil || len(blobs.blobs) != 0 {
		t.Errorf("%v, %d blobs left", err, len(blobs.blobs))
	}
}

// A refusal that is certain early does not wait for the rest of the upload.
func TestSubmitLooksAtWhatHasArrived(t *testing.T) {
	var peeks []int64
	h := lasting(time.Second)
	h.peek = func(received int64) error {
		if peeks = append(peeks, received); len(peeks) == 3 {
			return aviary.Errorf(aviary.CodeAudioTooLong, "peek", "too long")
		}
		return nil
	}
	in, blobs, store, _ := newIntake(h)
	in.Limits.UploadBytes = 1 << 40
	body := &endless{}
	if _, _, err := in.Submit(t.Context(), body, aviary.Submission{}); aviary.CodeOf(err) != aviary.CodeAudioTooLong {
		t.Fatalf("got %v", err)
	}
	if len(peeks) != 3 || peeks[0] < 64<<10 || peeks[1] < 2*peeks[0] || peeks[2] < 2*peeks[1] || body.read > peeks[2] {
		t.Errorf("looked at %v bytes of %d", peeks, body.read)
	}
	if len(blobs.blobs) != 0 || blobs.staged != 0 || len(store.jobs) != 0 {
		t.Error("something is left")
	}
}

// endless is a body that never ends.
type endless struct{ read int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read += int64(len(p))
	return len(p), nil
}

// Uploads are decoded one after the other where there is room for one. Who waits too long hears that it is the server, and when to come back.
func TestSubmitBoundsHowManyDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside, most := 0, 0
		h := lasting(time.Second)
		h.enter = func(aviary.Normalizing) {
			inside++
			most = max(most, inside)
			time.Sleep(50 * time.Second)
			inside--
		}
		in, _, _, _ := newIntake(h)
		in.Decoding, in.Blobs, in.Observer = make(chan struct{}, 1), patient{}, deaf{}
		done := make(chan error)
		submit := func(ctx context.Context) {
			_, _, err := in.Submit(ctx, strings.NewReader("x"), aviary.Submission{})
			done <- err
		}
		for range 4 { // done after 50, 100 and 150 s; the fourth has given up by then
			go submit(t.Context())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		synctest.Wait()
		go submit(ctx)
		gone, full := 0, 0
		for range 5 {
			err := <-done
			var e *aviary.Error
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				gone++
			case errors.As(err, &e) && e.Code == aviary.CodeQueueFull && e.Wait > 0:
				full++
			}
		}
		if most != 1 || gone != 1 || full != 1 {
			t.Errorf("%d uploads were decoded at once, want 1; %d went away, %d were told to come back, want 1 and 1", most, gone, full)
		}
	})
}

// deaf is an Observer for many goroutines.
type deaf struct{}

func (deaf) JobAccepted(aviary.Audio, aviary.Priority) {}
func (deaf) JobRefused(aviary.Code)                    {}
func (deaf) AttemptStarted(string, time.Duration)      {}
func (deaf) AttemptEnded(aviary.AttemptEnd)            {}
func (deaf) Wake()                                     {}

// patient is Blobs that refuses every commit, so that jobs end before their row.
type patient struct{ aviary.Blobs }

func (patient) FreeBytes(context.Context) (int64, error) { return -1, nil }
func (patient) Stage(context.Context) (aviary.Staged, error) {
	return &book{shelf: &shelf{err: errors.New("no")}}, nil
}

func TestSubmitHandsOnTheGuardAndTheChannel(t *testing.T) {
	h := lasting(time.Second)
	var got aviary.Normalizing
	h.enter = func(n aviary.Normalizing) { got = n }
	in, _, _, _ := newIntake(h)
	job, _, err := in.Submit(t.Context(), strings.NewReader("x"), aviary.Submission{Options: aviary.Options{Channel: 2}})
	if err != nil || got != (aviary.Normalizing{Limit: time.Hour, Channel: 2}) || job.Options.Channel != 2 {
		t.Errorf("%+v, %+v, %v", got, job, err)
	}
}
