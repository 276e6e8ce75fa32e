package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// raceCancel gives a job back while it is being canceled: whichever comes first, the cancel is not lost.
func raceCancel(t *testing.T, f *fixture, two [2]aviary.Store) {
	ctx := t.Context()
	for round := range 12 {
		job, ref := f.start(f.create(bulk))
		back := []func(s aviary.Store) error{
			func(s aviary.Store) error { return s.ReleaseAttempt(ctx, ref) },
			func(s aviary.Store) error {
				return second(s.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true, Delay: time.Duration(round%2) * time.Hour}))
			},
		}[round%2]
		won, refused := together(2, func(n int) error {
			if n == 0 {
				return back(two[0])
			}
			return second(two[1].Cancel(ctx, job.ID))
		})
		same(t, "calls that were refused", refused, map[string]int{})
		same(t, "calls that succeeded", won, 2)
		same(t, "state", f.job(job.ID).State, aviary.StateCanceled)
		checkJob(t, f.Store, f.job(job.ID))
	}
}

// raceReaper has two reapers on attempts whose lease has passed, while their workers wake up. Each attempt ends once, and for one reason.
func raceReaper(t *testing.T, f *fixture, two [2]aviary.Store) {
	ctx := t.Context()
	var refs []aviary.AttemptRef
	for range 12 {
		_, ref := f.start(f.create(bulk))
		refs = append(refs, ref)
	}
	f.clock.Advance(lease)
	var mu sync.Mutex
	ends := map[aviary.AttemptRef][]string{}
	note := func(ref aviary.AttemptRef, how string) {
		mu.Lock()
		defer mu.Unlock()
		ends[ref] = append(ends[ref], how)
	}
	_, refused := together(4+len(refs), func(n int) error {
		s := two[n%2]
		if n < 4 {
			list, err := s.ReapLost(ctx, 5)
			for _, r := range list {
				note(r.AttemptRef, "lost")
			}
			return err
		}
		ref := refs[n-4]
		if n%3 == 0 { // this one only gives a sign of life
			return second(s.Heartbeat(ctx, ref, aviary.Beat{Lease: lease}))
		}
		err := s.FinishAttempt(ctx, ref, transcript(n))
		if err == nil {
			note(ref, "finished")
		}
		return err
	})
	if refused["stale"] != total(refused) {
		t.Errorf("refusals: %v, want none but stale", refused)
	}
	for _, r := range f.reap(100) {
		note(r.AttemptRef, "lost")
	}
	for _, ref := range refs {
		job := f.job(ref.JobID)
		how := ends[ref]
		switch {
		case len(how) > 1:
			t.Errorf("attempt %+v ended %v", ref, how)
		case len(how) == 0:
			same(t, "state after a heartbeat in time", job.State, aviary.StateRunning)
		case how[0] == "finished":
			same(t, "state after a finish in time", job.State, aviary.StateSucceeded)
		default:
			same(t, "lost workers", job.Lost, 1)
			same(t, "state after a loss", job.State, aviary.StateQueued)
		}
	}
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// storm is a few jobs, and everything that can be done to them, from several goroutines on two handles.
type storm struct {
	*fixture
	jobs []string

	mu      sync.Mutex
	tickets []aviary.Ticket
	refs    []aviary.AttemptRef
}

// raceStorm does everything at once to a few jobs, with tickets and attempts good and stale, while somebody reads. No call fails for any reason
// but that it comes too late; what is read is whole at all times, and in the end everything fits together.
func raceStorm(t *testing.T, f *fixture, two [2]aviary.Store) {
	const goroutines, steps, jobs = 6, 120, 8
	s := &storm{fixture: f}
	for range jobs {
		s.jobs = append(s.jobs, f.create(aviary.Priorities()[f.ids%2]).ID)
	}
	f.clock.Advance(time.Second)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var writers, reader sync.WaitGroup
	for g := range goroutines {
		writers.Go(func() {
			dice := rand.New(rand.NewPCG(uint64(g), 7))
			for n := range steps {
				if what, err := s.deed(ctx, two[(g+n)%2], dice); ctx.Err() != nil {
					return
				} else if err != nil && !tooLate[kind(err)] {
					cancel(fmt.Errorf("%s: %w", what, err))
				}
			}
		})
	}
	done := make(chan struct{})
	reader.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			default:
			}
			b, err := two[n%2].Backlog(ctx)
			if sum := sumOf(b.States); err == nil && sum != jobs {
				err = fmt.Errorf("there are %d jobs, and %d are counted: %v", jobs, sum, b.States)
			}
			for class, c := range b.Classes {
				if err == nil && (c.Jobs > 0) != (c.Oldest > 0) {
					err = fmt.Errorf("%d %s jobs wait, the oldest for %v", c.Jobs, class, c.Oldest)
				}
			}
			if err != nil && ctx.Err() == nil {
				cancel(err)
			}
		}
	})
	writers.Wait()
	close(done)
	reader.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
}

func sumOf(states map[aviary.State]int) (n int) {
	for _, c := range states {
		n += c
	}
	return n
}

// tooLate are the refusals of what came too late, or too early.
var tooLate = map[string]bool{"stale": true, "unclaimable": true, "state_conflict": true, "job_active": true, "job_expired": true}

func (s *storm) deed(ctx context.Context, on aviary.Store, dice *rand.Rand) (what string, err error) {
	switch d := dice.IntN(100); {
	case d < 25:
		list, err := handOver(ctx, on, aviary.Priorities()[dice.IntN(2)], 1+dice.IntN(3))
		s.remember(list, nil)
		return "dispatch", err
	case d < 45:
		job, err := on.StartAttempt(ctx, latest(s, dice, &s.tickets), aviary.Claim{Worker: "w", Node: "n", Device: "cpu", Lease: time.Minute, Limit: 90 * time.Second})
		if err == nil {
			s.remember(nil, []aviary.AttemptRef{{JobID: job.ID, Attempt: job.Attempt}})
		}
		return "claim", missing(err)
	case d < 80:
		what, err := s.attemptDeed(ctx, on, latest(s, dice, &s.refs), dice.IntN(8))
		return what, missing(err)
	default:
		return s.otherDeed(ctx, on, dice)
	}
}

func (s *storm) attemptDeed(ctx context.Context, on aviary.Store, ref aviary.AttemptRef, d int) (string, error) {
	switch d {
	case 0, 1:
		return "beat", second(on.Heartbeat(ctx, ref, aviary.Beat{Lease: time.Minute, Progress: time.Second}))
	case 2:
		return "finish", on.FinishAttempt(ctx, ref, transcript(1))
	case 3:
		return "fail", second(on.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Charge: true}))
	case 4:
		return "fail, again", second(on.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true}))
	case 5:
		return "release", on.ReleaseAttempt(ctx, ref)
	case 6:
		return "fail, hung", second(on.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true, Lost: true}))
	default:
		return "stop", on.CancelAttempt(ctx, ref)
	}
}

func (s *storm) otherDeed(ctx context.Context, on aviary.Store, dice *rand.Rand) (string, error) {
	id := s.jobs[dice.IntN(len(s.jobs))]
	switch dice.IntN(12) {
	case 0:
		return "cancel", second(on.Cancel(ctx, id))
	case 1, 2:
		return "retry", second(on.Retry(ctx, id))
	case 3:
		if dice.IntN(8) > 0 { // seldom: nothing happens to a deleted job any more
			return "read", second(on.Jobs(ctx, aviary.JobQuery{Limit: 3, States: aviary.States()}))
		}
		return "delete", second(on.Expire(ctx, id, dice.IntN(2) == 0))
	case 4:
		return "take back", on.Undispatch(ctx, latest(s, dice, &s.tickets))
	case 5:
		return "wipe", second(on.UndispatchAll(ctx))
	case 6:
		s.clock.Advance(20 * time.Second)
		return "reap", second(on.ReapLost(ctx, 3))
	case 7:
		return "reap overdue", second(on.ReapOverdue(ctx, time.Second, 3))
	case 8:
		return "take over", second(on.TakeOver(ctx, aviary.Claim{Worker: "v", Node: "n", Device: "cpu"}))
	case 9:
		if dice.IntN(8) > 0 { // seldom too: without audio there are no retries
			drift, err := on.Recount(ctx)
			if err == nil && len(drift) > 0 {
				err = fmt.Errorf("counters drifted: %q", drift)
			}
			return "recount", err
		}
		return "drop audio", second(on.DropAudio(ctx, time.Minute, 2))
	case 10:
		if dice.IntN(16) > 0 {
			return "lead", second(on.Lead(ctx, fmt.Sprint(dice.IntN(3)), time.Second))
		}
		return "expire old", second(on.ExpireOld(ctx, time.Minute, 2))
	default:
		_, _, err := on.QueueAhead(ctx, aviary.Job{ID: id})
		return "queue ahead", err
	}
}

func (s *storm) remember(tickets []aviary.Ticket, refs []aviary.AttemptRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tickets, s.refs = append(s.tickets, tickets...), append(s.refs, refs...)
}

// latest is one of the newest entries of a list of the storm; a zero one of an empty list.
func latest[T any](s *storm, dice *rand.Rand, list *[]T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return pick(dice, *list)
}

// missing forgives that a job without a name was not found: nothing had been handed over yet.
func missing(err error) error {
	if kind(err) == string(aviary.CodeNotFound) {
		return nil
	}
	return err
}
