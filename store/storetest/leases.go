package storetest

import (
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testLeases(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"a lease ends on time":              testLeaseEnds,
		"a heartbeat prolongs it":           testLeaseProlonged,
		"lost workers have their ceiling":   testMaxLost,
		"a lost job may be to be canceled":  testLostCanceled,
		"the reaper takes what ended first": testReapOrder,
		"a late finish still counts":        testLateFinish,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f)
			checkInvariants(t, f.Store)
		})
	}
}

func (f *fixture) reap(limit int) []aviary.Reaped {
	f.Helper()
	return got(f.ReapLost(f.Context(), limit))(f)
}

func testLeaseEnds(t *testing.T, f *fixture) {
	job, ref := f.start(f.create(bulk))
	f.clock.Advance(lease - time.Microsecond)
	same(t, "reaped just before the end", len(f.reap(10)), 0)
	f.clock.Advance(time.Microsecond)
	same(t, "reaped at the end", f.reap(10), []aviary.Reaped{{AttemptRef: ref, State: aviary.StateQueued}})
	same(t, "reaped once more", len(f.reap(10)), 0)
	job = f.job(job.ID)
	same(t, "lost workers", job.Lost, 1)
	same(t, "charged failures", job.Fails, 0)
	same(t, "not before", job.NotBefore, f.clock.Now().Add(5*time.Second))
	attempt := got(f.Attempts(t.Context(), job.ID))(t)[0]
	same(t, "outcome", attempt.Outcome, aviary.OutcomeLost)
	same(t, "problem", attempt.Problem.Code, aviary.CodeWorkerLost)
	same(t, "the worker coming back", kind(f.FinishAttempt(t.Context(), ref, transcript(1))), "stale")
}

func testLeaseProlonged(t *testing.T, f *fixture) {
	_, ref := f.start(f.create(bulk))
	for range 5 {
		f.clock.Advance(lease - time.Second)
		same(t, "reaped", len(f.reap(10)), 0)
		got(f.Heartbeat(t.Context(), ref, aviary.Beat{Lease: lease}))(t)
	}
	f.clock.Advance(2 * lease)
	got(f.Heartbeat(t.Context(), ref, aviary.Beat{Lease: lease}))(t) // late, but before the reaper
	same(t, "reaped after a late heartbeat", len(f.reap(10)), 0)
}

func testMaxLost(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := f.create(bulk)
	for n := 1; n < aviary.MaxLost; n++ {
		_, ref := f.start(f.job(job.ID))
		f.clock.Advance(lease)
		same(t, "reaped", f.reap(10), []aviary.Reaped{{AttemptRef: ref, State: aviary.StateQueued}})
		delay := 5 * time.Second << (n - 1)
		same(t, "not before", f.job(job.ID).NotBefore, f.clock.Now().Add(delay))
		f.clock.Advance(delay - time.Microsecond)
		same(t, "handed over too early", len(got(f.Dispatch(ctx, bulk, 10))(t)), 0)
		f.clock.Advance(time.Microsecond)
	}
	_, ref := f.start(f.job(job.ID))
	f.clock.Advance(lease)
	same(t, "reaped at the ceiling", f.reap(10), []aviary.Reaped{{AttemptRef: ref, State: aviary.StateFailed}})
	job = f.job(job.ID)
	same(t, "problem", job.Problem.Code, aviary.CodeWorkerLost)
	same(t, "lost workers", job.Lost, aviary.MaxLost)
	same(t, "charged failures", job.Fails, 0)

	got(f.Retry(ctx, job.ID))(t)
	_, ref = f.start(f.job(job.ID))
	f.clock.Advance(lease)
	same(t, "the one more attempt is lost too", f.reap(10), []aviary.Reaped{{AttemptRef: ref, State: aviary.StateFailed}})
}

func testLostCanceled(t *testing.T, f *fixture) {
	job, ref := f.start(f.create(bulk))
	got(f.Cancel(t.Context(), job.ID))(t)
	f.clock.Advance(lease)
	same(t, "reaped", f.reap(10), []aviary.Reaped{{AttemptRef: ref, State: aviary.StateCanceled}})
	job = f.job(job.ID)
	same(t, "problem", job.Problem.Code, aviary.CodeCanceled)
	same(t, "outcome", got(f.Attempts(t.Context(), job.ID))(t)[0].Outcome, aviary.OutcomeLost)
}

func testReapOrder(t *testing.T, f *fixture) {
	var refs []aviary.AttemptRef
	for range 3 {
		_, ref := f.start(f.create(bulk))
		refs = append(refs, ref)
		f.clock.Advance(time.Second)
	}
	got(f.Heartbeat(t.Context(), refs[0], aviary.Beat{Lease: lease}))(t)
	f.clock.Advance(2 * lease)
	same(t, "the first two", refsOf(f.reap(2)), refs[1:])
	same(t, "the rest", refsOf(f.reap(2)), refs[:1])
}

func refsOf(list []aviary.Reaped) []aviary.AttemptRef {
	refs := make([]aviary.AttemptRef, len(list))
	for i, r := range list {
		refs[i] = r.AttemptRef
	}
	return refs
}

// A worker that could not renew its lease, while the reaper was away too, has not lost the job.
func testLateFinish(t *testing.T, f *fixture) {
	job, ref := f.start(f.create(bulk))
	f.clock.Advance(time.Hour)
	f.must(f.FinishAttempt(t.Context(), ref, transcript(1)))
	same(t, "state", f.job(job.ID).State, aviary.StateSucceeded)
	same(t, "reaped", len(f.reap(10)), 0)
}
