package api_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aviary-asr/aviary"
)

// memStore is an aviary.Store in memory, as far as the API uses one. Tests move jobs on with set.
type memStore struct {
	aviary.Store // the workers' side is not used here
	mu           sync.Mutex
	jobs         map[string]aviary.Job
	order        []string
	transcripts  map[string]aviary.Transcript
	attempts     map[string][]aviary.Attempt
	backlog      aviary.Backlog
	err          error            // of every call
	createErr    error            // of CreateJob
	created      func(aviary.Job) // if not nil, told of each row
	lookups      atomic.Int64
}

func newMemStore() *memStore {
	return &memStore{jobs: map[string]aviary.Job{}, transcripts: map[string]aviary.Transcript{}, attempts: map[string][]aviary.Attempt{}}
}

func (s *memStore) set(id string, change func(*aviary.Job)) aviary.Job {
	s.mu.Lock()
	defer s.mu.Unlock()
	job := s.jobs[id]
	change(&job)
	job.Version++
	s.jobs[id] = job
	return job
}

func (s *memStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.jobs)
}

func (s *memStore) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *memStore) CreateJob(_ context.Context, job aviary.Job, limits aviary.QueueLimits) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.err, s.createErr); err != nil {
		return aviary.Job{}, err
	}
	if _, taken := s.requested(job.Tenant, job.RequestKey); taken {
		return aviary.Job{}, aviary.ErrRequestKeyTaken
	}
	own := s.open(job.Tenant).Jobs
	if limits.TenantJobs > 0 && own >= limits.TenantJobs {
		return aviary.Job{}, &aviary.Error{Code: aviary.CodeQuotaExceeded, Detail: "You have too much open.",
			Limit: float64(limits.TenantJobs), Actual: float64(own + 1), Unit: "jobs"}
	}
	if limits.Jobs > 0 && len(s.jobs) >= limits.Jobs {
		return aviary.Job{}, &aviary.Error{Code: aviary.CodeQueueFull, Detail: "Too many jobs wait.",
			Limit: float64(limits.Jobs), Actual: float64(len(s.jobs) + 1), Unit: "jobs"}
	}
	job.State, job.CreatedAt, job.Version = aviary.StateQueued, time.Now(), 1
	s.jobs[job.ID] = job
	s.order = append(s.order, job.ID)
	if s.created != nil {
		s.created(job)
	}
	return job, nil
}

func (s *memStore) open(tenant string) (open aviary.Amount) {
	for _, job := range s.jobs {
		if job.Tenant == tenant && !job.State.Final() {
			open.Jobs++
			open.Audio += job.Audio.Duration
		}
	}
	return open
}

func (s *memStore) TenantOpen(_ context.Context, tenant string) (aviary.Amount, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open(tenant), s.err
}

func (s *memStore) requested(tenant, key string) (aviary.Job, bool) {
	for _, job := range s.jobs {
		if key != "" && job.Tenant == tenant && job.RequestKey == key {
			return job, true
		}
	}
	return aviary.Job{}, false
}

func (s *memStore) Requested(_ context.Context, tenant, key string) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, ok := s.requested(tenant, key)
	if s.err == nil && !ok {
		return job, aviary.Errorf(aviary.CodeNotFound, "memstore", "There is no such job.")
	}
	return job, s.err
}

func (s *memStore) Job(_ context.Context, id string) (aviary.Job, error) {
	s.lookups.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return aviary.Job{}, s.err
	}
	return s.job(id)
}

func (s *memStore) job(id string) (aviary.Job, error) {
	job, ok := s.jobs[id]
	if !ok {
		return job, aviary.Errorf(aviary.CodeNotFound, "memstore", "There is no such job.")
	}
	return job, nil
}

func (s *memStore) Jobs(_ context.Context, q aviary.JobQuery) (aviary.JobPage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	order := slices.Clone(s.order)
	if !q.Ascending {
		slices.Reverse(order)
	}
	if at := slices.Index(order, q.After); at >= 0 {
		order = order[at+1:]
	}
	var page aviary.JobPage
	for _, id := range order {
		job := s.jobs[id]
		fits := len(q.States) == 0 || slices.Contains(q.States, job.State)
		for k, v := range q.Labels {
			fits = fits && job.Options.Labels[k] == v
		}
		if !fits || !q.CreatedAfter.IsZero() && !job.CreatedAt.After(q.CreatedAfter) {
			continue
		}
		if len(page.Jobs) == q.Limit {
			page.Next = page.Jobs[q.Limit-1].ID
			break
		}
		page.Jobs = append(page.Jobs, job)
	}
	return page, s.err
}

func (s *memStore) Attempts(_ context.Context, id string) ([]aviary.Attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attempts[id], s.err
}

func (s *memStore) Transcript(_ context.Context, id string) (aviary.Transcript, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.transcripts[id]
	if !ok {
		return t, aviary.Errorf(aviary.CodeNotFound, "memstore", "There is no transcript.")
	}
	return t, nil
}

func (s *memStore) QueueAhead(_ context.Context, job aviary.Job) (int, time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	jobs, audio := 0, time.Duration(0)
	for _, id := range s.order {
		if id == job.ID {
			break
		}
		if other := s.jobs[id]; other.State == aviary.StateQueued {
			jobs, audio = jobs+1, audio+other.Audio.Duration
		}
	}
	return jobs, audio, s.err
}

func (s *memStore) Processed(context.Context) (aviary.Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return aviary.Totals{}, s.err
}

func (s *memStore) Backlog(context.Context) (aviary.Backlog, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.backlog, s.err
}

func (s *memStore) Cancel(_ context.Context, id string) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, err := s.job(id)
	if err != nil || job.State.Final() {
		return job, err
	}
	job.Version++
	if job.State == aviary.StateQueued {
		job.State, job.FinishedAt = aviary.StateCanceled, time.Now()
	} else {
		job.CancelRequested = true
	}
	s.jobs[id] = job
	return job, nil
}

func (s *memStore) Retry(_ context.Context, id string) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, err := s.job(id)
	if err != nil {
		return job, err
	}
	if job.State != aviary.StateFailed && job.State != aviary.StateCanceled {
		return job, aviary.Errorf(aviary.CodeStateConflict, "memstore", "The job is %s.", job.State)
	}
	job.State, job.Version, job.MaxAttempts = aviary.StateQueued, job.Version+1, job.MaxAttempts+1
	s.jobs[id] = job
	return job, nil
}

func (s *memStore) Expire(_ context.Context, id string, force bool) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	job, err := s.job(id)
	if err != nil {
		return job, err
	}
	if !job.State.Final() && !force {
		return job, aviary.Errorf(aviary.CodeJobActive, "memstore", "The job is %s.", job.State)
	}
	before := job
	job.State, job.Version = aviary.StateExpired, job.Version+1
	s.jobs[id] = job
	delete(s.transcripts, id)
	return before, nil
}

// memBlobs keeps uploads in memory, or only their number where sink is set.
type memBlobs struct {
	mu     sync.Mutex
	blobs  map[string][]byte
	open   int // staged and not ended
	bytes  atomic.Int64
	sink   func(total int64) // keeps nothing of a blob but its beginning
	free   int64
	staged chan struct{} // if not nil, told when a stage opens
}

func newMemBlobs() *memBlobs { return &memBlobs{blobs: map[string][]byte{}, free: -1} }

func (b *memBlobs) state() (open int, keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open, slices.Collect(maps.Keys(b.blobs))
}

func (b *memBlobs) Stage(context.Context) (aviary.Staged, error) {
	b.mu.Lock()
	b.open++
	b.mu.Unlock()
	if b.staged != nil {
		b.staged <- struct{}{}
	}
	return &memStaged{blobs: b}, nil
}

func (b *memBlobs) Open(_ context.Context, key string) (aviary.Blob, error) {
	return nil, aviary.Errorf(aviary.CodeNotFound, "memblobs", "There is no blob %q.", key)
}

func (b *memBlobs) Delete(_ context.Context, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.blobs, key)
	return nil
}

func (b *memBlobs) List(context.Context, string, int) ([]aviary.BlobInfo, error) {
	panic("the API lists no blobs")
}

func (b *memBlobs) FreeBytes(context.Context) (int64, error) { return b.free, nil }

type memStaged struct {
	blobs *memBlobs
	data  []byte
	size  int64
	ended bool
}

func (s *memStaged) Write(p []byte) (int, error) {
	s.size += int64(len(p))
	s.blobs.bytes.Add(int64(len(p)))
	if s.blobs.sink != nil {
		s.blobs.sink(s.size)
		if len(s.data) > 0 {
			return len(p), nil
		}
	}
	s.data = append(s.data, p...)
	return len(p), nil
}

func (s *memStaged) ReadAt(p []byte, at int64) (int, error) {
	return bytes.NewReader(s.data).ReadAt(p, at)
}
func (s *memStaged) Size() int64 { return s.size }

func (s *memStaged) WriteAt(p []byte, at int64) (int, error) { return copy(s.data[at:], p), nil }

func (s *memStaged) end() {
	if !s.ended {
		s.ended = true
		s.blobs.open--
	}
}

func (s *memStaged) Commit(_ context.Context, key string) error {
	s.blobs.mu.Lock()
	defer s.blobs.mu.Unlock()
	s.end()
	s.blobs.blobs[key] = s.data
	return nil
}

func (s *memStaged) Discard() error {
	s.blobs.mu.Lock()
	defer s.blobs.mu.Unlock()
	s.end()
	return nil
}

// scriptProber reads what to say from the upload itself: "AUDIO 12.5" lasts 12.5 s, a name of a code is that refusal.
type scriptProber struct{}

func (scriptProber) Peek(context.Context, io.ReaderAt, int64) error { return nil }

func (scriptProber) Normalize(_ context.Context, r io.ReaderAt, size int64, n aviary.Normalizing, _ aviary.RecordingWriter) (aviary.Audio, error) {
	head := make([]byte, min(size, 64))
	if _, err := r.ReadAt(head, 0); err != nil && !errors.Is(err, io.EOF) {
		return aviary.Audio{}, err
	}
	line, _, _ := strings.Cut(string(head), "\n")
	if slices.Contains(aviary.Codes(), aviary.Code(line)) {
		return aviary.Audio{}, aviary.Errorf(aviary.Code(line), "probe", "The prober says so.")
	}
	var warnings []string
	if n.Channel > 0 {
		warnings = []string{"One channel was taken."}
	}
	number, err := strconv.ParseFloat(strings.TrimPrefix(line, "AUDIO "), 64)
	d, ok := aviary.Seconds(number)
	if err != nil || !ok {
		return aviary.Audio{}, aviary.Errorf(aviary.CodeMediaTypeUnsupported, "probe", "The bytes look like text.")
	}
	return aviary.Audio{Container: "wav", Codec: "pcm_s16le", SampleRate: 44100, Channels: 2, Duration: d, Warnings: warnings}, nil
}

func (scriptProber) Decode(context.Context, io.ReaderAt, int64, time.Duration) (aviary.PCM, error) {
	panic("the API decodes nothing")
}

// bell counts wakes.
type bell struct{ rings atomic.Int64 }

func (b *bell) Wake() { b.rings.Add(1) }

// numberedIDs makes ids in order.
func numberedIDs() func() string {
	var n atomic.Int64
	return func() string { return fmt.Sprintf("job_%026d", n.Add(1)) }
}
