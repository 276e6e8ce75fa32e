package storetest

import (
	"fmt"
	"strings"
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
		"jobs that are lost together":       testLostTogether,
		"a late finish still counts":        testLateFinish,
		"a hung worker is quarantined too":  testHung,
		"an attempt beyond its limit":       testOverdue,
		"losses are counted":                testLossesAreCounted,
		"attempts without a limit":          testNoLimit,
		"a device that is taken over":       testTakeOver,
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

// reaped is what a store says of an attempt of the fixture's worker.
func reaped(ref aviary.AttemptRef, state aviary.State) aviary.Reaped {
	return aviary.Reaped{AttemptRef: ref, Worker: claim.Worker, Device: claim.Device, Code: aviary.CodeWorkerLost, State: state}
}

// waits fails the test unless a job waits for a delay, or up to half as long again.
func (f *fixture) waits(id string, delay time.Duration) {
	f.Helper()
	if waits := f.job(id).NotBefore.Sub(f.clock.Now()); waits < delay || waits > delay*3/2 {
		f.Fatalf("%s has to wait for %v, want %v or up to half as long again", id, waits, delay)
	}
}

// quarantined fails the test unless a job has failed for its losses, and says so.
func (f *fixture) quarantined(job aviary.Job, code aviary.Code) {
	f.Helper()
	same(f, "state", job.State, aviary.StateFailed)
	same(f, "code", job.Problem.Code, code)
	same(f, "audio is gone", job.AudioGone, false)
	for _, word := range []string{"quarantined", fmt.Sprint(job.Lost, " workers"), "audio is kept"} {
		if !strings.Contains(job.Problem.Detail, word) {
			f.Fatalf("%q does not say %q", job.Problem.Detail, word)
		}
	}
}

func testLeaseEnds(t *testing.T, f *fixture) {
	job, ref := f.start(f.create(bulk))
	f.clock.Advance(lease - time.Microsecond)
	same(t, "reaped just before the end", len(f.reap(10)), 0)
	f.clock.Advance(time.Microsecond)
	same(t, "reaped at the end", f.reap(10), []aviary.Reaped{reaped(ref, aviary.StateQueued)})
	same(t, "reaped once more", len(f.reap(10)), 0)
	job = f.job(job.ID)
	same(t, "lost workers", job.Lost, 1)
	same(t, "charged failures", job.Fails, 0)
	f.waits(job.ID, 5*time.Second)
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
		same(t, "reaped", f.reap(10), []aviary.Reaped{reaped(ref, aviary.StateQueued)})
		delay := 5 * time.Second << (n - 1)
		f.waits(job.ID, delay)
		f.clock.Advance(f.job(job.ID).NotBefore.Sub(f.clock.Now()) - time.Microsecond)
		same(t, "handed over too early", len(got(handOver(ctx, f.Store, bulk, 10))(t)), 0)
		f.clock.Advance(time.Microsecond)
	}
	_, ref := f.start(f.job(job.ID))
	f.clock.Advance(lease)
	same(t, "reaped at the ceiling", f.reap(10), []aviary.Reaped{reaped(ref, aviary.StateFailed)})
	job = f.job(job.ID)
	same(t, "lost workers", job.Lost, aviary.MaxLost)
	same(t, "charged failures", job.Fails, 0)
	f.quarantined(job, aviary.CodeWorkerLost)
	same(t, "problem of its last attempt", strings.Contains(got(f.Attempts(ctx, job.ID))(t)[2].Problem.Detail, "quarantined"), false)

	got(f.Retry(ctx, job.ID))(t)
	_, ref = f.start(f.job(job.ID))
	f.clock.Advance(lease)
	same(t, "the one more attempt is lost too", f.reap(10), []aviary.Reaped{reaped(ref, aviary.StateFailed)})
	f.quarantined(f.job(job.ID), aviary.CodeWorkerLost)
}

func testLostCanceled(t *testing.T, f *fixture) {
	job, ref := f.start(f.create(bulk))
	got(f.Cancel(t.Context(), job.ID))(t)
	f.clock.Advance(lease)
	same(t, "reaped", f.reap(10), []aviary.Reaped{reaped(ref, aviary.StateCanceled)})
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

// Jobs that are lost together, as with their host, do not come back together.
func testLostTogether(t *testing.T, f *fixture) {
	const n = 40
	for range n {
		f.start(f.create(bulk))
	}
	f.clock.Advance(lease)
	moments := map[time.Time]bool{}
	for _, r := range f.reap(n) {
		f.waits(r.JobID, 5*time.Second)
		moments[f.job(r.JobID).NotBefore] = true
	}
	if len(moments) < n/2 {
		t.Fatalf("%d jobs that were lost together come back at %d moments", n, len(moments))
	}
}

// A worker may say itself that a job hangs, or took its device down. That counts as a loss, and not as a failure of the job unless it says so too.
func testHung(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := f.create(bulk)
	problem := aviary.ProblemOf(aviary.Errorf(aviary.CodeDeviceFailed, "test", "Xid 79."))
	hung := aviary.Failure{Problem: problem, Retry: true, Lost: true, Delay: time.Minute}
	for n := 1; n <= aviary.MaxLost; n++ {
		_, ref := f.start(f.job(job.ID))
		f.must(second(f.FailAttempt(ctx, ref, hung)))
		now, attempt := f.job(job.ID), got(f.Attempts(ctx, job.ID))(t)[n-1]
		same(t, "outcome", attempt.Outcome, aviary.OutcomeLost)
		same(t, "problem of the attempt", attempt.Problem, problem)
		same(t, "lost and charged", [2]int{now.Lost, now.Fails}, [2]int{n, 0})
		if n == aviary.MaxLost {
			f.quarantined(now, aviary.CodeDeviceFailed)
			break
		}
		same(t, "not before", now.NotBefore, f.clock.Now().Add(time.Minute))
		f.clock.Advance(time.Minute)
	}
	_, ref := f.start(f.create(bulk))
	f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{Problem: problem, Lost: true})))
	same(t, "the problem, when it shall not be tried again", f.job(ref.JobID).Problem, problem)
	same(t, "lost workers of it", f.job(ref.JobID).Lost, 1)
	same(t, "an old attempt", kind(second(f.FailAttempt(ctx, ref, hung))), "stale")
}

// Lost attempts are counted whoever ends them, and for ever.
func testLossesAreCounted(t *testing.T, f *fixture) {
	ctx := t.Context()
	check := func(after string, lost, quarantined int) {
		t.Helper()
		same(t, "counted after "+after, got(f.Processed(ctx))(t), aviary.Totals{Lost: lost, Quarantined: quarantined})
		same(t, "drift after "+after, got(f.Recount(ctx))(t), []string(nil))
	}
	fail := func(ref aviary.AttemptRef, failure aviary.Failure, became aviary.State) {
		t.Helper()
		failure.Problem = broken
		same(t, "what became of the job", got(f.FailAttempt(ctx, ref, failure))(t), became)
	}
	hung := aviary.Failure{Retry: true, Lost: true}

	job, ref := f.start(f.create(bulk))
	fail(ref, aviary.Failure{Retry: true}, aviary.StateQueued)
	check("a failure that is no loss", 0, 0)
	_, ref = f.start(f.job(job.ID))
	fail(ref, hung, aviary.StateQueued)
	check("a hang that its worker recorded", 1, 0)
	same(t, "the same once more", kind(second(f.FailAttempt(ctx, ref, hung))), "stale")
	check("a record that was refused", 1, 0)

	f.start(f.job(job.ID))
	f.clock.Advance(lease)
	same(t, "silent ones", len(got(f.ReapLost(ctx, 9))(t)), 1)
	check("a worker that was silent", 2, 0)
	f.clock.Advance(time.Minute)
	_, ref = f.start(f.job(job.ID))
	fail(ref, hung, aviary.StateFailed)
	check("a hang that quarantines", 3, 1)

	canceled, ref := f.start(f.create(bulk))
	got(f.Cancel(ctx, canceled.ID))(t)
	fail(ref, hung, aviary.StateCanceled)
	check("a hang of a job that was to be canceled", 4, 1)

	f.start(f.create(bulk))
	f.clock.Advance(runLimit + time.Minute)
	same(t, "overdue ones", len(got(f.ReapOverdue(ctx, time.Minute, 9))(t)), 1)
	check("one that took too long", 5, 1)
	f.start(f.create(bulk))
	next := claim
	next.Worker = "the next one"
	same(t, "taken over", len(got(f.TakeOver(ctx, next))(t)), 1)
	check("a crash that the next worker found", 6, 1)

	got(f.Expire(ctx, job.ID, false))(t)
	got(f.DropTombstones(ctx, 0, 9))(t)
	check("the job is no more", 6, 1)
}

func testOverdue(t *testing.T, f *fixture) {
	ctx := t.Context()
	const grace = time.Minute
	job, ref := f.start(f.create(bulk))
	f.clock.Advance(runLimit + grace - time.Microsecond)
	got(f.Heartbeat(ctx, ref, aviary.Beat{Lease: lease}))(t)
	same(t, "reaped just before the end", len(got(f.ReapOverdue(ctx, grace, 9))(t)), 0)
	f.clock.Advance(time.Microsecond)
	want := reaped(ref, aviary.StateQueued)
	want.Code = aviary.CodeAttemptTimeout
	same(t, "reaped at no limit", len(got(f.ReapOverdue(ctx, grace, 0))(t)), 0)
	same(t, "reaped at the end, with a fresh lease", got(f.ReapOverdue(ctx, grace, 9))(t), []aviary.Reaped{want})
	same(t, "reaped once more", len(got(f.ReapOverdue(ctx, grace, 9))(t)), 0)
	f.waits(job.ID, 5*time.Second)
	same(t, "lost workers", f.job(job.ID).Lost, 1)
	attempt := got(f.Attempts(ctx, job.ID))(t)[0]
	same(t, "outcome", attempt.Outcome, aviary.OutcomeLost)
	same(t, "problem", attempt.Problem.Code, aviary.CodeAttemptTimeout)
	same(t, "the worker coming back", kind(f.FinishAttempt(ctx, ref, transcript(1))), "stale")

	f.clock.Advance(time.Minute)
	_, ref = f.start(f.job(job.ID)) // a new attempt has a new limit
	f.clock.Advance(runLimit)
	got(f.Heartbeat(ctx, ref, aviary.Beat{Lease: lease}))(t)
	same(t, "the next attempt within its grace", len(got(f.ReapOverdue(ctx, grace, 9))(t)), 0)
	f.clock.Advance(grace)
	got(f.ReapOverdue(ctx, grace, 9))(t)
	f.clock.Advance(time.Minute)
	f.start(f.job(job.ID))
	f.clock.Advance(runLimit + grace)
	want.Attempt, want.State = 3, aviary.StateFailed
	same(t, "reaped at the ceiling", got(f.ReapOverdue(ctx, grace, 9))(t), []aviary.Reaped{want})
	f.quarantined(f.job(job.ID), aviary.CodeAttemptTimeout)
}

func testNoLimit(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := f.create(bulk)
	free := claim
	free.Limit = 0
	started := got(f.StartAttempt(ctx, f.dispatch(job), free))(t)
	f.clock.Advance(1000 * time.Hour)
	same(t, "reaped as overdue", len(got(f.ReapOverdue(ctx, 0, 9))(t)), 0)
	f.must(f.ReleaseAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: started.Attempt}))

	_, ref := f.start(f.job(job.ID)) // with a limit, and ended before it: nothing of that is left with the job
	f.must(f.ReleaseAttempt(ctx, ref))
	got(f.StartAttempt(ctx, f.dispatch(f.job(job.ID)), free))(t)
	f.clock.Advance(2 * runLimit)
	same(t, "reaped by the limit of an attempt before", len(got(f.ReapOverdue(ctx, 0, 9))(t)), 0)
}

func testTakeOver(t *testing.T, f *fixture) {
	ctx := t.Context()
	start := func(c aviary.Claim) aviary.AttemptRef {
		t.Helper()
		c.Lease, c.Limit = lease, runLimit
		ticket := f.dispatch(f.create(bulk))
		job := got(f.StartAttempt(f.Context(), ticket, c))(t)
		f.clock.Advance(time.Second)
		return aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}
	}
	dead := start(aviary.Claim{Worker: "dead", Node: "n", Device: "cuda:0"})
	gone := start(aviary.Claim{Worker: "gone", Node: "n", Device: "cuda:0"})
	left := []aviary.AttemptRef{
		start(aviary.Claim{Worker: "new", Node: "n", Device: "cuda:0"}),
		start(aviary.Claim{Worker: "dead", Node: "n", Device: "cuda:1"}),
		start(aviary.Claim{Worker: "dead", Node: "m", Device: "cuda:0"}),
		start(aviary.Claim{Worker: "dead", Node: "", Device: "cuda:0"}),
	}
	released := start(aviary.Claim{Worker: "dead", Node: "n", Device: "cuda:0"})
	f.must(f.ReleaseAttempt(ctx, released))
	got(f.Cancel(ctx, gone.JobID))(t)

	same(t, "of no node", len(got(f.TakeOver(ctx, aviary.Claim{Worker: "new", Device: "cuda:0"}))(t)), 0)
	mine := aviary.Claim{Worker: "new", Node: "n", Device: "cuda:0"}
	same(t, "taken over", got(f.TakeOver(ctx, mine))(t), []aviary.Reaped{
		{AttemptRef: dead, Worker: "dead", Device: "cuda:0", Code: aviary.CodeWorkerLost, State: aviary.StateQueued},
		{AttemptRef: gone, Worker: "gone", Device: "cuda:0", Code: aviary.CodeWorkerLost, State: aviary.StateCanceled},
	})
	same(t, "once more", len(got(f.TakeOver(ctx, mine))(t)), 0)
	f.waits(dead.JobID, 5*time.Second)
	same(t, "lost workers", f.job(dead.JobID).Lost, 1)
	same(t, "the dead one coming back", kind(f.FinishAttempt(ctx, dead, transcript(1))), "stale")
	for _, ref := range left {
		got(f.Heartbeat(ctx, ref, aviary.Beat{Lease: lease}))(t)
	}
}
