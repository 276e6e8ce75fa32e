package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// memStore is the queue's side of a store, in memory: the transitions of aviary.Dispatching and aviary.Attempting with their conditions.
type memStore struct {
	mu      sync.Mutex
	changed chan struct{} // closed and replaced at every change
	rows    map[string]*memRow
	order   []string

	away       error // every call fails with it while it is set
	dispatches int   // calls of Dispatch
	made       int   // tickets
}

type memRow struct {
	aviary.Job
	class      aviary.Priority
	dispatched time.Time // zero: not handed over
	attempts   []aviary.Attempt
	results    int
}

var errAway = errors.New("the store is away")

func newMemStore() *memStore {
	return &memStore{changed: make(chan struct{}), rows: map[string]*memRow{}}
}

// add queues jobs.
func (s *memStore) add(class aviary.Priority, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.rows[id] = &memRow{class: class, Job: aviary.Job{
			ID: id, State: aviary.StateQueued, BlobKey: id, MaxAttempts: 3, CreatedAt: time.Now(),
			Audio: aviary.Audio{Duration: time.Second},
		}}
		s.order = append(s.order, id)
	}
	s.signal()
}

func (s *memStore) signal() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// setAway makes every call fail, or work again with nil.
func (s *memStore) setAway(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
	s.signal()
}

// await waits until ok holds; it is asked after every change, with the store locked.
func (s *memStore) await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		done, changed := ok(), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("gave up waiting: %s; %s", what, s.summary())
		}
	}
}

// awaitDone waits until n jobs have succeeded.
func (s *memStore) awaitDone(t *testing.T, n int) {
	t.Helper()
	s.await(t, "jobs to succeed", func() bool { return s.count(aviary.StateSucceeded) >= n })
}

func (s *memStore) count(state aviary.State) (n int) {
	for _, r := range s.rows {
		if r.State == state {
			n++
		}
	}
	return n
}

func (s *memStore) summary() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[aviary.State]int{}
	for _, r := range s.rows {
		counts[r.State]++
	}
	return fmt.Sprint(counts)
}

// row is a copy of a job's row.
func (s *memStore) row(id string) memRow {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.rows[id]
}

func (s *memStore) outcomes(id string) (list []aviary.Outcome) {
	for _, a := range s.row(id).attempts {
		list = append(list, a.Outcome)
	}
	return list
}

func (s *memStore) Dispatch(_ context.Context, class aviary.Priority, limit int) ([]aviary.Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dispatches++
	if s.away != nil {
		return nil, s.away
	}
	var tickets []aviary.Ticket
	for _, id := range s.order {
		r := s.rows[id]
		if len(tickets) == limit {
			break
		}
		if r.class != class || r.State != aviary.StateQueued || !r.dispatched.IsZero() || time.Now().Before(r.NotBefore) {
			continue
		}
		r.Generation++
		r.dispatched = time.Now()
		tickets = append(tickets, aviary.Ticket{JobID: id, Generation: r.Generation, Priority: class})
	}
	s.made += len(tickets)
	s.signal()
	return tickets, nil
}

func (s *memStore) out(class aviary.Priority) (n int) {
	for _, r := range s.rows {
		if r.class == class && r.State == aviary.StateQueued && !r.dispatched.IsZero() {
			n++
		}
	}
	return n
}

func (s *memStore) Undispatch(_ context.Context, t aviary.Ticket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	if r := s.rows[t.JobID]; r != nil && r.State == aviary.StateQueued && r.Generation == t.Generation {
		r.dispatched = time.Time{}
	}
	s.signal()
	return nil
}

func (s *memStore) Dispatched(_ context.Context, class aviary.Priority) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out(class), s.away
}

func (s *memStore) Stranded(_ context.Context, age time.Duration, limit int) ([]aviary.Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var tickets []aviary.Ticket
	for _, id := range s.order {
		r := s.rows[id]
		if r.State == aviary.StateQueued && !r.dispatched.IsZero() && time.Since(r.dispatched) >= age && len(tickets) < limit {
			tickets = append(tickets, aviary.Ticket{JobID: id, Generation: r.Generation, Priority: r.class})
		}
	}
	return tickets, s.away
}

func (s *memStore) UndispatchAll(context.Context) (n int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return 0, s.away
	}
	for _, r := range s.rows {
		if r.State == aviary.StateQueued && !r.dispatched.IsZero() {
			r.dispatched = time.Time{}
			n++
		}
	}
	s.signal()
	return n, nil
}

func (s *memStore) ReapLost(_ context.Context, limit int) ([]aviary.Reaped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	var reaped []aviary.Reaped
	for _, id := range s.order {
		r := s.rows[id]
		if r.State == aviary.StateRunning && time.Now().After(r.LeaseUntil) && len(reaped) < limit {
			r.Lost++
			s.end(r, aviary.OutcomeLost, aviary.StateQueued)
			reaped = append(reaped, aviary.Reaped{AttemptRef: aviary.AttemptRef{JobID: id, Attempt: r.Attempt}, State: r.State})
		}
	}
	return reaped, nil
}

func (s *memStore) StartAttempt(_ context.Context, t aviary.Ticket, c aviary.Claim) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return aviary.Job{}, s.away
	}
	r := s.rows[t.JobID]
	if r == nil || r.State != aviary.StateQueued || r.Generation != t.Generation || r.dispatched.IsZero() {
		return aviary.Job{}, aviary.ErrNotClaimable
	}
	r.State, r.Worker, r.Device = aviary.StateRunning, c.Worker, c.Device
	r.Attempt++
	r.StartedAt, r.LeaseUntil = time.Now(), time.Now().Add(c.Lease)
	r.attempts = append(r.attempts, aviary.Attempt{
		AttemptRef: aviary.AttemptRef{JobID: t.JobID, Attempt: r.Attempt}, Worker: c.Worker, Device: c.Device, StartedAt: r.StartedAt,
	})
	s.signal()
	return r.Job, nil
}

// end closes the running attempt. A job that goes back to queued waits to be handed over again.
func (s *memStore) end(r *memRow, outcome aviary.Outcome, state aviary.State) {
	last := &r.attempts[len(r.attempts)-1]
	last.EndedAt, last.Outcome = time.Now(), outcome
	r.State, r.dispatched = state, time.Time{}
	s.signal()
}

// fenced runs write on the row if the attempt is the current one.
func (s *memStore) fenced(ref aviary.AttemptRef, write func(*memRow)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	r := s.rows[ref.JobID]
	if r == nil || r.State != aviary.StateRunning || r.Attempt != ref.Attempt {
		return aviary.ErrStale
	}
	write(r)
	return nil
}

func (s *memStore) Heartbeat(_ context.Context, ref aviary.AttemptRef, b aviary.Beat) (bool, error) {
	return false, s.fenced(ref, func(r *memRow) { r.LeaseUntil = time.Now().Add(b.Lease) })
}

func (s *memStore) FinishAttempt(_ context.Context, ref aviary.AttemptRef, _ aviary.Transcript) error {
	return s.fenced(ref, func(r *memRow) {
		r.results++
		s.end(r, aviary.OutcomeSucceeded, aviary.StateSucceeded)
	})
}

func (s *memStore) FailAttempt(_ context.Context, ref aviary.AttemptRef, f aviary.Failure) error {
	return s.fenced(ref, func(r *memRow) {
		r.Fails++
		if f.Retry && r.Fails < r.MaxAttempts {
			s.end(r, aviary.OutcomeRetried, aviary.StateQueued)
			return
		}
		s.end(r, aviary.OutcomeFailed, aviary.StateFailed)
	})
}

func (s *memStore) ReleaseAttempt(_ context.Context, ref aviary.AttemptRef) error {
	return s.fenced(ref, func(r *memRow) { s.end(r, aviary.OutcomeReleased, aviary.StateQueued) })
}

func (s *memStore) CancelAttempt(_ context.Context, ref aviary.AttemptRef) error {
	return s.fenced(ref, func(r *memRow) { s.end(r, aviary.OutcomeCanceled, aviary.StateCanceled) })
}
