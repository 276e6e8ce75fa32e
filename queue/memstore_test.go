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

	away       error         // every call fails with it while it is set
	hang       chan struct{} // Lead waits for it, whatever its context says
	dispatches int           // calls of Dispatch
	made       int           // tickets

	lost, quarantined int // attempts and jobs, ever

	leader string
	until  time.Time // of its term
}

type memRow struct {
	aviary.Job
	class      aviary.Priority
	dispatched time.Time     // zero: not handed over
	limit      time.Duration // of the running attempt
	attempts   []aviary.Attempt
	results    int
}

var errAway = errors.New("the store is away")

func newMemStore() *memStore {
	return &memStore{changed: make(chan struct{}), rows: map[string]*memRow{}}
}

// add queues jobs of one tenant, a second of audio each.
func (s *memStore) add(class aviary.Priority, ids ...string) {
	s.addFor(aviary.DefaultTenant, class, time.Second, ids...)
}

// addFor queues jobs of a tenant.
func (s *memStore) addFor(tenant string, class aviary.Priority, audio time.Duration, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.rows[id] = &memRow{class: class, Job: aviary.Job{
			ID: id, Tenant: tenant, State: aviary.StateQueued, BlobKey: id, MaxAttempts: 3, CreatedAt: time.Now(),
			Audio: aviary.Audio{Duration: audio},
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

func (s *memStore) Lead(_ context.Context, holder string, term time.Duration) (bool, error) {
	s.mu.Lock()
	hang := s.hang
	s.mu.Unlock()
	if hang != nil {
		<-hang
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return false, s.away
	}
	if s.leader != holder && time.Now().Before(s.until) {
		return false, nil
	}
	s.leader, s.until = holder, time.Now().Add(term)
	s.signal()
	return true, nil
}

func (s *memStore) Resign(_ context.Context, holder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader == holder {
		s.leader, s.until = "", time.Time{}
		s.signal()
	}
	return s.away
}

func (r *memRow) waits() bool {
	return r.State == aviary.StateQueued && r.dispatched.IsZero() && !time.Now().Before(r.NotBefore)
}

func (s *memStore) Waiting(_ context.Context, class aviary.Priority, perTenant int) ([]aviary.Candidate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	var list []aviary.Candidate
	count := map[string]int{}
	for _, id := range s.order {
		if r := s.rows[id]; r.class == class && r.waits() && count[r.Tenant] < perTenant {
			count[r.Tenant]++
			list = append(list, aviary.Candidate{JobID: id, Tenant: r.Tenant, Audio: r.Audio.Duration})
		}
	}
	return list, nil
}

func (s *memStore) Dispatch(_ context.Context, ids []string) ([]aviary.Ticket, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dispatches++
	if s.away != nil {
		return nil, s.away
	}
	var tickets []aviary.Ticket
	for _, id := range ids {
		if r := s.rows[id]; r.waits() {
			r.Generation++
			r.dispatched = time.Now()
			tickets = append(tickets, aviary.Ticket{JobID: id, Generation: r.Generation, Priority: r.class})
		}
	}
	s.made += len(tickets)
	s.signal()
	return tickets, nil
}

// tickets makes the tickets of jobs, as the dispatcher does.
func (s *memStore) tickets(t *testing.T, ids ...string) []aviary.Ticket {
	t.Helper()
	made, err := s.Dispatch(context.Background(), ids)
	if err != nil || len(made) != len(ids) {
		t.Fatalf("%d tickets for %d jobs, %v", len(made), len(ids), err)
	}
	return made
}

// Processed implements Store.
func (s *memStore) Processed(context.Context) (aviary.Totals, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.count(aviary.StateSucceeded)
	done := aviary.Amount{Jobs: n, Audio: time.Duration(n) * time.Second}
	return aviary.Totals{Amount: done, Lost: s.lost, Quarantined: s.quarantined}, s.away
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
	return s.reap(limit, aviary.CodeWorkerLost, func(r *memRow) bool { return time.Now().After(r.LeaseUntil) })
}

func (s *memStore) ReapOverdue(_ context.Context, grace time.Duration, limit int) ([]aviary.Reaped, error) {
	return s.reap(limit, aviary.CodeAttemptTimeout, func(r *memRow) bool { return r.limit > 0 && time.Since(r.StartedAt) > r.limit+grace })
}

func (s *memStore) TakeOver(context.Context, aviary.Claim) ([]aviary.Reaped, error) { return nil, nil }

func (s *memStore) reap(limit int, code aviary.Code, dead func(*memRow) bool) ([]aviary.Reaped, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return nil, s.away
	}
	var reaped []aviary.Reaped
	for _, id := range s.order {
		r := s.rows[id]
		if r.State != aviary.StateRunning || !dead(r) || len(reaped) == limit {
			continue
		}
		s.lose(r)
		reaped = append(reaped, aviary.Reaped{
			AttemptRef: aviary.AttemptRef{JobID: id, Attempt: r.Attempt}, Worker: r.Worker, Device: r.Device, Code: code, State: r.State,
		})
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
	r.State, r.Worker, r.Device, r.limit = aviary.StateRunning, c.Worker, c.Device, c.Limit
	r.Attempt++
	r.StartedAt, r.LeaseUntil = time.Now(), time.Now().Add(c.Lease)
	r.attempts = append(r.attempts, aviary.Attempt{
		AttemptRef: aviary.AttemptRef{JobID: t.JobID, Attempt: r.Attempt}, Worker: c.Worker, Device: c.Device, StartedAt: r.StartedAt,
	})
	s.signal()
	return r.Job, nil
}

// lose ends the running attempt as lost.
func (s *memStore) lose(r *memRow) {
	r.Lost++
	s.lost++
	state := aviary.StateQueued
	if r.Lost >= aviary.MaxLost {
		state = aviary.StateFailed
		s.quarantined++
	}
	s.end(r, aviary.OutcomeLost, state)
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

func (s *memStore) FailAttempt(_ context.Context, ref aviary.AttemptRef, f aviary.Failure) (state aviary.State, err error) {
	err = s.fenced(ref, func(r *memRow) {
		if f.Charge {
			r.Fails++
		}
		switch {
		case f.Lost:
			s.lose(r)
		case f.Retry && r.Fails < r.MaxAttempts:
			s.end(r, aviary.OutcomeRetried, aviary.StateQueued)
		default:
			s.end(r, aviary.OutcomeFailed, aviary.StateFailed)
		}
		state = r.State
	})
	return state, err
}

func (s *memStore) ReleaseAttempt(_ context.Context, ref aviary.AttemptRef) error {
	return s.fenced(ref, func(r *memRow) { s.end(r, aviary.OutcomeReleased, aviary.StateQueued) })
}

func (s *memStore) CancelAttempt(_ context.Context, ref aviary.AttemptRef) error {
	return s.fenced(ref, func(r *memRow) { s.end(r, aviary.OutcomeCanceled, aviary.StateCanceled) })
}

// Job implements aviary.AttemptStore.
func (s *memStore) Job(_ context.Context, id string) (aviary.Job, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rows[id]
	if r == nil {
		return aviary.Job{}, aviary.Errorf(aviary.CodeNotFound, "memStore.Job", "There is no job %s.", id)
	}
	return r.Job, s.away
}
