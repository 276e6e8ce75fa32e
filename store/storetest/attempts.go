package storetest

import (
	"math"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testAttempts(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"a claim":                          testClaim,
		"a heartbeat":                      testHeartbeat,
		"a finish keeps the transcript":    testFinish,
		"a finish beats a cancel":          testFinishBeatsCancel,
		"charged failures use up attempts": testCharges,
		"failures without charge do not":   testUncharged,
		"a release is not charged":         testRelease,
		"a retry allows one more attempt":  testRetry,
		"a delete fences off the attempt":  testExpireFences,
		"a transcript that is none":        testNoTranscript,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f)
			checkInvariants(t, f.Store)
		})
	}
}

func testClaim(t *testing.T, f *fixture) {
	ctx := t.Context()
	want := f.create(bulk)
	ticket := f.dispatch(want)
	same(t, "ticket", ticket, aviary.Ticket{JobID: want.ID, Generation: 1, Priority: bulk})
	f.clock.Advance(time.Minute)
	job := got(f.StartAttempt(ctx, ticket, aviary.Claim{Worker: "w", Device: "cuda:0", Lease: lease}))(t)
	now := f.clock.Now()
	want.State, want.Phase, want.Attempt, want.Generation, want.Version = aviary.StateRunning, aviary.PhaseDecoding, 1, 1, 2
	want.Worker, want.Device, want.StartedAt, want.LeaseUntil = "w", "cuda:0", now, now.Add(lease)
	same(t, "claimed job", job, want)
	same(t, "claimed job read back", f.job(job.ID), want)
	same(t, "attempts", got(f.Attempts(ctx, job.ID))(t), []aviary.Attempt{
		{AttemptRef: aviary.AttemptRef{JobID: job.ID, Attempt: 1}, Worker: "w", Device: "cuda:0", StartedAt: now}})
	_, err := f.StartAttempt(ctx, ticket, aviary.Claim{Worker: "v", Device: "cpu", Lease: lease})
	same(t, "second claim with the same ticket", kind(err), "unclaimable")
	same(t, "the job after it", f.job(job.ID), want)
}

func testHeartbeat(t *testing.T, f *fixture) {
	ctx := t.Context()
	job, ref := f.start(f.create(bulk))
	beat := func(b aviary.Beat) bool {
		t.Helper()
		f.clock.Advance(time.Second)
		return got(f.Heartbeat(ctx, ref, b))(t)
	}
	want := job
	check := func(what string) {
		t.Helper()
		want.LeaseUntil = f.clock.Now().Add(lease)
		same(t, what, f.job(job.ID), want)
	}
	same(t, "asked to stop", beat(aviary.Beat{Lease: lease, Phase: aviary.PhaseDecoding}), false)
	check("nothing new to see: the version stays")
	beat(aviary.Beat{Lease: lease, Phase: aviary.PhaseTranscribing, Progress: 400 * time.Millisecond})
	want.Phase, want.Progress, want.Version = aviary.PhaseTranscribing, 400*time.Millisecond, want.Version+1
	check("phase and progress")
	beat(aviary.Beat{Lease: lease, Progress: 500 * time.Millisecond})
	want.Progress, want.Version = 500*time.Millisecond, want.Version+1
	check("no phase leaves the phase")
	want = got(f.Cancel(ctx, job.ID))(t)
	same(t, "asked to stop after a cancel", beat(aviary.Beat{Lease: lease, Progress: 500 * time.Millisecond}), true)
	check("a cancel is asked for")
}

func testFinish(t *testing.T, f *fixture) {
	ctx := t.Context()
	want, ref := f.start(f.create(interactive))
	f.clock.Advance(time.Second)
	written := transcript(1)
	f.must(f.FinishAttempt(ctx, ref, written))
	want.State, want.Phase, want.FinishedAt, want.LeaseUntil = aviary.StateSucceeded, "", f.clock.Now(), time.Time{}
	want.Progress, want.Attention, want.Version = want.Audio.Duration, &written.Engine.Attention, want.Version+1
	same(t, "job", f.job(want.ID), want)
	same(t, "transcript", got(f.Transcript(ctx, want.ID))(t), written)
	attempts := got(f.Attempts(ctx, want.ID))(t)
	same(t, "outcome", attempts[0].Outcome, aviary.OutcomeSucceeded)
	same(t, "end", attempts[0].EndedAt, f.clock.Now())
	f.must(f.FinishAttempt(ctx, ref, transcript(2))) // as after an answer that was lost
	same(t, "the job after doing it twice", f.job(want.ID), want)
	same(t, "transcript after that", got(f.Transcript(ctx, want.ID))(t), written)
}

func testFinishBeatsCancel(t *testing.T, f *fixture) {
	ctx := t.Context()
	job, ref := f.start(f.create(bulk))
	got(f.Cancel(ctx, job.ID))(t)
	f.must(f.FinishAttempt(ctx, ref, transcript(1)))
	job = f.job(job.ID)
	same(t, "state", job.State, aviary.StateSucceeded)
	same(t, "cancel still asked for", job.CancelRequested, false)
	same(t, "a cancel after that", got(f.Cancel(ctx, job.ID))(t), job)
}

func testCharges(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := f.create(bulk)
	for n := 1; n <= job.MaxAttempts; n++ {
		_, ref := f.start(f.job(job.ID))
		problem := aviary.ProblemOf(aviary.Errorf(aviary.CodeDeviceFailed, "test", "Device %d.", n))
		f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{Problem: problem, Retry: true, Delay: time.Minute, Charge: true})))
		now := f.job(job.ID)
		same(t, "charged", now.Fails, n)
		if n == job.MaxAttempts {
			same(t, "state when they are used up", now.State, aviary.StateFailed)
			same(t, "problem of the job", now.Problem, problem)
			same(t, "last outcome", got(f.Attempts(ctx, job.ID))(t)[n-1].Outcome, aviary.OutcomeFailed)
			break
		}
		same(t, "state", now.State, aviary.StateQueued)
		same(t, "not before", now.NotBefore, f.clock.Now().Add(time.Minute))
		attempt := got(f.Attempts(ctx, job.ID))(t)[n-1]
		same(t, "outcome", attempt.Outcome, aviary.OutcomeRetried)
		same(t, "problem of the attempt", attempt.Problem, problem)
		f.clock.Advance(time.Minute)
	}
}

func testUncharged(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := f.create(bulk)
	for range job.MaxAttempts + 2 {
		_, ref := f.start(f.job(job.ID))
		f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true})))
	}
	now := f.job(job.ID)
	same(t, "state", now.State, aviary.StateQueued)
	same(t, "charged", now.Fails, 0)
	_, ref := f.start(now)
	f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{})))
	same(t, "a failure without a problem", f.job(job.ID).Problem.Code, aviary.CodeInternal)
}

func testRelease(t *testing.T, f *fixture) {
	ctx := t.Context()
	created := f.create(bulk)
	job, ref := f.start(created)
	got(f.Heartbeat(ctx, ref, aviary.Beat{Lease: lease, Phase: aviary.PhaseTranscribing, Progress: time.Second}))(t)
	f.must(f.ReleaseAttempt(ctx, ref))
	want := created
	want.Attempt, want.Generation, want.Version = 1, 1, f.job(job.ID).Version
	same(t, "released job", f.job(job.ID), want)
	same(t, "outcome", got(f.Attempts(ctx, job.ID))(t)[0].Outcome, aviary.OutcomeReleased)
	again, newRef := f.start(f.job(job.ID))
	same(t, "number of the next attempt", again.Attempt, 2)
	same(t, "the old attempt's finish", kind(f.FinishAttempt(ctx, ref, transcript(1))), "stale")
	f.must(f.FinishAttempt(ctx, newRef, transcript(2)))
}

func testRetry(t *testing.T, f *fixture) {
	ctx := t.Context()
	created := draft(1, bulk)
	created.MaxAttempts = 1
	created = got(f.CreateJob(ctx, created, aviary.QueueLimits{}))(t)
	for n := 1; n <= 3; n++ {
		_, ref := f.start(f.job(created.ID))
		f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true, Charge: true})))
		same(t, "state after the only attempt", f.job(created.ID).State, aviary.StateFailed)
		version := f.job(created.ID).Version
		want := created
		want.MaxAttempts, want.Fails, want.Attempt, want.Generation, want.Version = n+1, n, n, n, version+1
		same(t, "retried job", got(f.Retry(ctx, created.ID))(t), want)
		same(t, "retried job read back", f.job(created.ID), want)
	}
}

func testExpireFences(t *testing.T, f *fixture) {
	ctx := t.Context()
	job, ref := f.start(f.create(bulk))
	same(t, "what a delete returns", got(f.Expire(ctx, job.ID, true))(t), job)
	_, err := f.Heartbeat(ctx, ref, aviary.Beat{Lease: lease})
	same(t, "heartbeat", kind(err), "stale")
	same(t, "finish", kind(f.FinishAttempt(ctx, ref, transcript(1))), "stale")
	tombstone := f.job(job.ID)
	same(t, "state", tombstone.State, aviary.StateExpired)
	same(t, "blob to delete", tombstone.BlobKey, job.BlobKey)
	same(t, "deleting it again", got(f.Expire(ctx, job.ID, false))(t), tombstone)
}

func testNoTranscript(t *testing.T, f *fixture) {
	ctx := t.Context()
	job, ref := f.start(f.create(bulk))
	bad := transcript(1)
	bad.Usage.RTFx = math.Inf(1)
	same(t, "a transcript with an infinite number", kind(f.FinishAttempt(ctx, ref, bad)), string(aviary.CodeEngineFailed))
	same(t, "the job after that", f.job(job.ID), job)
	f.must(f.FinishAttempt(ctx, ref, transcript(1)))
}
