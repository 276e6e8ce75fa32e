package storetest

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aviary-asr/aviary"
)

// Model is aviary.Store in memory and in the plainest code: lists that are walked, counts that are counted anew. It is the meaning of the
// interface, and the oracle that random operations on a real store are held against. It keeps nothing when the process ends.
type Model struct {
	mu        sync.Mutex
	now       func() time.Time
	jobs      []*modelJob // in the order of creation
	processed aviary.Totals
	leader    string
	leadsTill time.Time
	id, place string // of the system
}

type modelJob struct {
	aviary.Job
	dispatchedAt time.Time // zero while no ticket is out
	node         string
	deadline     time.Time // zero is none
	expiredAt    time.Time
	attempts     []aviary.Attempt
	transcript   *aviary.Transcript
}

var _ aviary.Store = (*Model)(nil)

// NewModel makes an empty model with a clock.
func NewModel(now func() time.Time) *Model { return &Model{now: now, id: rand.Text()} }

// Close implements io.Closer.
func (*Model) Close() error { return nil }

// SystemID implements aviary.Identity.
func (m *Model) SystemID(context.Context) (string, error) { return m.id, nil }

// BindPlace implements aviary.Identity.
func (m *Model) BindPlace(_ context.Context, marker string) (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.place == "" {
		m.place = marker
	}
	return m.place, nil
}

func (m *Model) find(id string) (*modelJob, error) {
	for _, j := range m.jobs {
		if j.ID == id {
			return j, nil
		}
	}
	return nil, aviary.Errorf(aviary.CodeNotFound, "model", "%s", id)
}

// with runs do on a job while nobody else is in the model.
func (m *Model) with(id string, do func(j *modelJob, now time.Time) error) (aviary.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	j, err := m.find(id)
	if err != nil {
		return aviary.Job{}, err
	}
	if err := do(j, m.now()); err != nil {
		return aviary.Job{}, err
	}
	return j.Job, nil
}

// attempt runs do on a job whose current attempt ref is.
func (m *Model) attempt(ref aviary.AttemptRef, do func(j *modelJob, now time.Time) error) error {
	_, err := m.with(ref.JobID, func(j *modelJob, now time.Time) error {
		if j.State != aviary.StateRunning || j.Attempt != ref.Attempt {
			return aviary.ErrStale
		}
		return do(j, now)
	})
	return err
}

// CreateJob implements aviary.Store.
func (m *Model) CreateJob(_ context.Context, job aviary.Job, limits aviary.QueueLimits) (aviary.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var waiting aviary.Amount
	for _, j := range m.jobs {
		if job.RequestKey != "" && j.RequestKey == job.RequestKey && j.Tenant == job.Tenant {
			return aviary.Job{}, aviary.ErrRequestKeyTaken
		}
		if j.State == aviary.StateQueued {
			waiting.Jobs++
			waiting.Audio += j.Audio.Duration
		}
	}
	open := m.open(job.Tenant)
	if limits.Jobs > 0 && waiting.Jobs+1 > limits.Jobs || limits.Audio > 0 && waiting.Audio+job.Audio.Duration > limits.Audio {
		return aviary.Job{}, aviary.Errorf(aviary.CodeQueueFull, "model", "")
	}
	if limits.TenantJobs > 0 && open.Jobs+1 > limits.TenantJobs || limits.TenantAudio > 0 && open.Audio+job.Audio.Duration > limits.TenantAudio {
		return aviary.Job{}, aviary.Errorf(aviary.CodeQuotaExceeded, "model", "")
	}
	job.State, job.Version, job.CreatedAt = aviary.StateQueued, 1, m.now()
	m.jobs = append(m.jobs, &modelJob{Job: job})
	return job, nil
}

// Job implements aviary.Store.
func (m *Model) Job(_ context.Context, id string) (aviary.Job, error) {
	return m.with(id, func(*modelJob, time.Time) error { return nil })
}

// open is what a tenant has waiting and running.
func (m *Model) open(tenant string) (open aviary.Amount) {
	for _, j := range m.jobs {
		if !j.State.Final() && j.Tenant == tenant {
			open.Jobs++
			open.Audio += j.Audio.Duration
		}
	}
	return open
}

// TenantOpen implements aviary.Store.
func (m *Model) TenantOpen(_ context.Context, tenant string) (aviary.Amount, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open(tenant), nil
}

// Requested implements aviary.Store.
func (m *Model) Requested(_ context.Context, tenant, key string) (aviary.Job, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, j := range m.jobs {
		if key != "" && j.Tenant == tenant && j.RequestKey == key {
			return j.Job, nil
		}
	}
	return aviary.Job{}, aviary.Errorf(aviary.CodeNotFound, "model", "")
}

// Jobs implements aviary.Store.
func (m *Model) Jobs(_ context.Context, q aviary.JobQuery) (aviary.JobPage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := slices.Clone(m.jobs)
	if !q.Ascending {
		slices.Reverse(list)
	}
	if q.After != "" {
		at := slices.IndexFunc(list, func(j *modelJob) bool { return j.ID == q.After })
		if at < 0 {
			return aviary.JobPage{}, aviary.Errorf(aviary.CodeOptionInvalid, "model", "")
		}
		list = list[at+1:]
	}
	var page aviary.JobPage
	for _, j := range list {
		fits := len(q.States) == 0 || slices.Contains(q.States, j.State)
		for k, v := range q.Labels {
			have, ok := j.Options.Labels[k]
			fits = fits && ok && have == v
		}
		if !fits || !q.CreatedAfter.IsZero() && !j.CreatedAt.After(q.CreatedAfter) {
			continue
		}
		if len(page.Jobs) == q.Limit {
			page.Next = page.Jobs[q.Limit-1].ID
			break
		}
		page.Jobs = append(page.Jobs, j.Job)
	}
	return page, nil
}

// Attempts implements aviary.Store.
func (m *Model) Attempts(_ context.Context, jobID string) ([]aviary.Attempt, error) {
	var list []aviary.Attempt
	_, err := m.with(jobID, func(j *modelJob, _ time.Time) error {
		list = slices.Clone(j.attempts)
		return nil
	})
	return list, err
}

// Transcript implements aviary.Store.
func (m *Model) Transcript(_ context.Context, jobID string) (aviary.Transcript, error) {
	var t aviary.Transcript
	_, err := m.with(jobID, func(j *modelJob, _ time.Time) error {
		switch {
		case j.transcript != nil:
			t = *j.transcript
		case j.State == aviary.StateExpired:
			return aviary.Errorf(aviary.CodeJobExpired, "model", "")
		default:
			return aviary.Errorf(aviary.CodeTranscriptNotReady, "model", "")
		}
		return nil
	})
	return t, err
}

// QueueAhead implements aviary.Store.
func (m *Model) QueueAhead(_ context.Context, job aviary.Job) (jobs int, audio time.Duration, err error) {
	_, err = m.with(job.ID, func(self *modelJob, _ time.Time) error {
		if self.State != aviary.StateQueued {
			return nil
		}
		older := true
		for _, j := range m.jobs {
			if j == self {
				older = false
			}
			before := j != self && (j.Options.Priority == self.Options.Priority && older ||
				j.Options.Priority == aviary.PriorityInteractive && self.Options.Priority == aviary.PriorityBulk)
			if j.State == aviary.StateQueued && before {
				jobs++
				audio += j.Audio.Duration
			}
		}
		return nil
	})
	return jobs, audio, err
}

// Backlog implements aviary.Store.
func (m *Model) Backlog(context.Context) (aviary.Backlog, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := aviary.Backlog{Classes: map[aviary.Priority]aviary.ClassBacklog{}, States: map[aviary.State]int{}}
	for _, class := range aviary.Priorities() {
		b.Classes[class] = aviary.ClassBacklog{}
	}
	for _, state := range aviary.States() {
		b.States[state] = 0
	}
	for _, j := range m.jobs {
		b.States[j.State]++
		switch j.State {
		case aviary.StateQueued:
			c := b.Classes[j.Options.Priority]
			c.Jobs++
			c.Audio += j.Audio.Duration
			c.Oldest = max(c.Oldest, m.now().Sub(j.CreatedAt))
			b.Classes[j.Options.Priority] = c
			b.Oldest = max(b.Oldest, c.Oldest)
		case aviary.StateRunning:
			b.Running.Jobs++
			b.Running.Audio += j.Audio.Duration
		default: // neither waits nor runs
		}
	}
	return b, nil
}

// Processed implements aviary.Store.
func (m *Model) Processed(context.Context) (aviary.Totals, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processed, nil
}

// finish takes a job to a final state.
func (j *modelJob) finish(state aviary.State, now time.Time, p *aviary.Problem) {
	j.State, j.Phase, j.Problem, j.CancelRequested = state, "", p, false
	j.FinishedAt, j.LeaseUntil, j.NotBefore, j.dispatchedAt, j.deadline = now, time.Time{}, time.Time{}, time.Time{}, time.Time{}
	j.Version++
}

// requeue takes a job to queued.
func (j *modelJob) requeue(notBefore time.Time) {
	j.State, j.Phase, j.Problem, j.Progress, j.Worker, j.Device, j.node = aviary.StateQueued, "", nil, 0, "", "", ""
	j.StartedAt, j.FinishedAt, j.LeaseUntil, j.deadline = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	j.NotBefore, j.dispatchedAt = notBefore, time.Time{}
	j.Version++
}

// end records the end of the newest attempt.
func (j *modelJob) end(o aviary.Outcome, now time.Time, p *aviary.Problem) {
	a := &j.attempts[len(j.attempts)-1]
	a.Outcome, a.EndedAt, a.Problem = o, now, p
}

// Cancel implements aviary.Store.
func (m *Model) Cancel(_ context.Context, id string) (aviary.Job, error) {
	return m.with(id, func(j *modelJob, now time.Time) error {
		switch {
		case j.State == aviary.StateQueued:
			j.finish(aviary.StateCanceled, now, problemCanceled)
		case j.State == aviary.StateRunning && !j.CancelRequested:
			j.CancelRequested = true
			j.Version++
		}
		return nil
	})
}

var problemCanceled = &aviary.Problem{Code: aviary.CodeCanceled, Title: aviary.CodeCanceled.Title()}

// Retry implements aviary.Store.
func (m *Model) Retry(_ context.Context, id string) (aviary.Job, error) {
	return m.with(id, func(j *modelJob, _ time.Time) error {
		switch j.State {
		case aviary.StateFailed, aviary.StateCanceled:
			if j.AudioGone {
				return aviary.Errorf(aviary.CodeJobExpired, "model", "")
			}
			j.MaxAttempts++
			j.requeue(time.Time{})
			return nil
		case aviary.StateExpired:
			return aviary.Errorf(aviary.CodeJobExpired, "model", "")
		default:
			return aviary.Errorf(aviary.CodeStateConflict, "model", "")
		}
	})
}

// Expire implements aviary.Store.
func (m *Model) Expire(_ context.Context, id string, force bool) (was aviary.Job, err error) {
	_, err = m.with(id, func(j *modelJob, now time.Time) error {
		was = j.Job
		switch {
		case j.State == aviary.StateExpired:
			return nil
		case !j.State.Final() && !force:
			return aviary.Errorf(aviary.CodeJobActive, "model", "")
		case j.State == aviary.StateRunning:
			j.end(aviary.OutcomeCanceled, now, nil)
		}
		j.expire(now)
		return nil
	})
	if err != nil {
		return aviary.Job{}, err
	}
	return was, nil
}

// expire makes a tombstone of a job.
func (j *modelJob) expire(now time.Time) {
	finished := j.FinishedAt
	if finished.IsZero() {
		finished = now
	}
	j.finish(aviary.StateExpired, finished, j.Problem)
	j.transcript, j.AudioGone, j.expiredAt = nil, true, now
}

func (j *modelJob) ready(now time.Time) bool {
	return j.State == aviary.StateQueued && j.dispatchedAt.IsZero() && !j.NotBefore.After(now)
}

// Waiting implements aviary.Dispatching.
func (m *Model) Waiting(_ context.Context, class aviary.Priority, perTenant int) ([]aviary.Candidate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	byTenant := map[string][]aviary.Candidate{}
	for _, j := range m.jobs {
		if j.Options.Priority == class && j.ready(m.now()) && len(byTenant[j.Tenant]) < perTenant {
			byTenant[j.Tenant] = append(byTenant[j.Tenant], aviary.Candidate{JobID: j.ID, Tenant: j.Tenant, Audio: j.Audio.Duration})
		}
	}
	var list []aviary.Candidate
	for _, tenant := range slices.Sorted(maps.Keys(byTenant)) {
		list = append(list, byTenant[tenant]...)
	}
	return list, nil
}

// Dispatch implements aviary.Dispatching.
func (m *Model) Dispatch(_ context.Context, ids []string) ([]aviary.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []aviary.Ticket
	for _, id := range ids {
		if j, err := m.find(id); err == nil && j.ready(m.now()) {
			j.NotBefore, j.dispatchedAt = time.Time{}, m.now()
			j.Generation++
			list = append(list, j.ticket())
		}
	}
	return list, nil
}

func (j *modelJob) ticket() aviary.Ticket {
	return aviary.Ticket{JobID: j.ID, Generation: j.Generation, Priority: j.Options.Priority}
}

// Undispatch implements aviary.Dispatching.
func (m *Model) Undispatch(_ context.Context, t aviary.Ticket) error {
	_, _ = m.with(t.JobID, func(j *modelJob, _ time.Time) error {
		if j.Generation == t.Generation {
			j.dispatchedAt = time.Time{}
		}
		return nil
	})
	return nil
}

// Dispatched implements aviary.Dispatching.
func (m *Model) Dispatched(_ context.Context, class aviary.Priority) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, j := range m.jobs {
		if !j.dispatchedAt.IsZero() && j.Options.Priority == class {
			n++
		}
	}
	return n, nil
}

// Stranded implements aviary.Dispatching.
func (m *Model) Stranded(_ context.Context, age time.Duration, limit int) ([]aviary.Ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*modelJob
	for _, j := range m.jobs {
		if !j.dispatchedAt.IsZero() && m.now().Sub(j.dispatchedAt) >= age {
			out = append(out, j)
		}
	}
	slices.SortStableFunc(out, func(a, b *modelJob) int { return a.dispatchedAt.Compare(b.dispatchedAt) })
	var list []aviary.Ticket
	for _, j := range out[:min(limit, len(out))] {
		list = append(list, j.ticket())
	}
	return list, nil
}

// UndispatchAll implements aviary.Dispatching.
func (m *Model) UndispatchAll(context.Context) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, j := range m.jobs {
		if !j.dispatchedAt.IsZero() {
			j.dispatchedAt = time.Time{}
			n++
		}
	}
	return n, nil
}
