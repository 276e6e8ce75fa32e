package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testRaces(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture, two [2]aviary.Store){
		"one ticket, many claims":       raceClaims,
		"one attempt, many ends":        raceEnds,
		"one place left in the queue":   raceLimits,
		"one place left for a tenant":   raceQuota,
		"one request, sent many times":  raceRequest,
		"one term, many leaders":        raceLead,
		"one waiting job, many tickets": raceDispatch,
		"a cancel and a release":        raceCancel,
		"a silent worker and a reaper":  raceReaper,
		"a whole day's work":            raceWork,
		"everything at once":            raceStorm,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f, [2]aviary.Store{f.Store, f.open(b)})
			checkInvariants(t, f.Store)
		})
	}
}

// together runs do n times at once and returns how often it succeeded, and how often it was refused by kind of error.
func together(n int, do func(n int) error) (won int, refused map[string]int) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = do(i)
		})
	}
	close(start)
	wg.Wait()
	refused = map[string]int{}
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			refused[kind(err)]++
		}
	}
	return won, refused
}

func raceClaims(t *testing.T, f *fixture, two [2]aviary.Store) {
	ticket := f.dispatch(f.create(bulk))
	won, refused := together(16, func(n int) error {
		return second(two[n%2].StartAttempt(t.Context(), ticket, aviary.Claim{Worker: fmt.Sprint(n), Lease: lease}))
	})
	same(t, "claims that won", won, 1)
	same(t, "claims that were refused", refused, map[string]int{"unclaimable": 15})
}

func raceEnds(t *testing.T, f *fixture, two [2]aviary.Store) {
	ctx := t.Context()
	for range 5 {
		job, ref := f.start(f.create(bulk))
		got(f.Cancel(ctx, job.ID))(t)
		ends := []func(s aviary.Store) error{
			func(s aviary.Store) error { return s.FinishAttempt(ctx, ref, transcript(1)) },
			func(s aviary.Store) error { return second(s.FailAttempt(ctx, ref, aviary.Failure{Problem: broken})) },
			func(s aviary.Store) error { return s.ReleaseAttempt(ctx, ref) },
			func(s aviary.Store) error { return s.CancelAttempt(ctx, ref) },
		}
		won, refused := together(8, func(n int) error { return ends[n%4](two[n/4]) })
		if won == 2 && f.job(job.ID).State == aviary.StateSucceeded { // the other one of the two that finish hears that it is done
			won, refused["stale"] = 1, refused["stale"]+1
		}
		same(t, "ends that won", won, 1)
		same(t, "ends that were refused", refused, map[string]int{"stale": 7})
		checkJob(t, f.Store, f.job(job.ID))
	}
}

func raceLimits(t *testing.T, _ *fixture, two [2]aviary.Store) {
	won, refused := together(16, func(n int) error {
		return second(two[n%2].CreateJob(t.Context(), draft(n+1, bulk), aviary.QueueLimits{Jobs: 5}))
	})
	same(t, "jobs accepted", won, 5)
	same(t, "jobs refused", refused, map[string]int{"queue_full": 11})
}

func raceDispatch(t *testing.T, f *fixture, two [2]aviary.Store) {
	var ids []string
	for range 20 {
		ids = append(ids, f.create(bulk).ID)
	}
	var all sync.Map
	var n atomic.Int64
	won, refused := together(8, func(i int) error {
		list, err := two[i%2].Dispatch(t.Context(), ids[i%3:])
		for _, ticket := range list {
			all.Store(ticket, true)
			n.Add(1)
		}
		return err
	})
	same(t, "dispatches", won, 8)
	same(t, "dispatches that failed", len(refused), 0)
	distinct := 0
	all.Range(func(any, any) bool { distinct++; return true })
	same(t, "tickets", int(n.Load()), 20)
	same(t, "different tickets", distinct, 20)
}

// raceWork has producers, a dispatcher and workers on two handles until every job is done, with tickets delivered twice and attempts that fail.
func raceWork(t *testing.T, f *fixture, two [2]aviary.Store) {
	const producers, each, workers = 3, 12, 4
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	defer time.AfterFunc(time.Minute, func() { cancel(errors.New("the work is not done after a minute")) }).Stop()
	queue := make(chan aviary.Ticket, 4*producers*each)
	var left atomic.Int64
	left.Store(producers * each)
	done := make(chan struct{})
	fail := func(err error) {
		if err != nil && ctx.Err() == nil {
			cancel(err)
		}
	}
	var wg sync.WaitGroup
	for p := range producers {
		wg.Go(func() {
			for n := range each {
				fail(second(two[p%2].CreateJob(ctx, draft(1+p*each+n, aviary.Priorities()[n%2]), aviary.QueueLimits{})))
			}
		})
	}
	wg.Go(func() { // the dispatcher: every ticket goes out twice
		for n := 0; ; n++ {
			select {
			case <-done:
				close(queue)
				return
			case <-ctx.Done():
				close(queue)
				return
			default:
			}
			for _, class := range aviary.Priorities() {
				list, err := handOver(ctx, two[n%2], class, 5)
				fail(err)
				for _, ticket := range list {
					queue <- ticket
					queue <- ticket
				}
			}
		}
	})
	for w := range workers {
		wg.Go(func() {
			for ticket := range queue {
				ended, err := work(ctx, two[w%2], ticket, fmt.Sprint("worker-", w))
				fail(err)
				if ended && left.Add(-1) == 0 {
					close(done)
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		t.Fatal(err)
	}
	b := got(f.Backlog(t.Context()))(t)
	same(t, "jobs that succeeded", b.States[aviary.StateSucceeded], producers*each)
}

// work is one attempt: the first of each job fails, the second succeeds. It reports whether the job is final.
func work(ctx context.Context, s aviary.Store, ticket aviary.Ticket, worker string) (final bool, err error) {
	job, err := s.StartAttempt(ctx, ticket, aviary.Claim{Worker: worker, Node: "n", Device: "cpu", Lease: lease, Limit: runLimit})
	if errors.Is(err, aviary.ErrNotClaimable) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	ref := aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}
	if _, err := s.Heartbeat(ctx, ref, aviary.Beat{Lease: lease}); err != nil {
		return false, err
	}
	if job.Attempt == 1 {
		return false, second(s.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true, Charge: true}))
	}
	return true, s.FinishAttempt(ctx, ref, transcript(1))
}

// testReopen closes a store and opens it again: all of it is there.
func testReopen(t *testing.T, b Backend) {
	t.Parallel()
	f := &fixture{TB: t, clock: NewClock(), url: b.New(t)}
	first := got(b.Open(f.url, f.clock.Now))(t)
	f.Store = first
	for _, stage := range []string{waiting, delayed, dispatched, running, stopping, silent, succeeded, failed, canceled, expired} {
		arrange(f, stage)
	}
	before := snapshot(t, f.Store)
	f.must(first.Close())
	if _, err := first.Backlog(t.Context()); err == nil {
		t.Fatal("a closed store answers")
	}
	f.must(first.Close()) // closing twice is harmless
	f.Store = f.open(b)
	same(t, "everything", snapshot(t, f.Store), before)
	f.start(f.create(interactive))
	checkInvariants(t, f.Store)
}

// snapshot is all that a store says.
func snapshot(t testing.TB, s aviary.Store) map[string]any {
	t.Helper()
	all := map[string]any{"backlog": got(s.Backlog(t.Context()))(t), "tickets": got(s.Stranded(t.Context(), 0, 1000))(t)}
	for _, j := range allJobs(t, s, aviary.JobQuery{Limit: 200}) {
		transcript, err := s.Transcript(t.Context(), j.ID)
		all[j.ID] = []any{j, got(s.Attempts(t.Context(), j.ID))(t), transcript, kind(err)}
	}
	return all
}
