package aviary

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// settle records the end of the attempt. cause says why the run was stopped from outside, if it was; a result that came first wins. It returns
// ErrDeviceLost if the device failed.
func (a *attempt) settle(ctx context.Context, t Transcript, err, cause error) error {
	end := AttemptEnd{Device: a.device.Name(), Audio: a.job.Audio.Duration, Took: time.Since(a.began)}
	a.note(&end, a.record(ctx, &end, t, err, cause))
	if CodeOf(err) == CodeDeviceFailed {
		return fmt.Errorf("%w: %w", ErrDeviceLost, err)
	}
	return nil
}

// note tells the observer and the log how the attempt ended. err says that it was not recorded.
func (a *attempt) note(end *AttemptEnd, err error) {
	switch {
	case fenced(err):
		a.log.Warn("the attempt's end was refused: the job has moved on", "outcome", end.Outcome, "err", err)
		end.Outcome, end.Fenced = OutcomeLost, true
	case err != nil:
		// The lease runs out and the sweeper gives the job to another worker: nothing is lost.
		a.log.Warn("the attempt's end was not recorded", "outcome", end.Outcome, "err", err)
		end.Outcome, end.Unrecorded = OutcomeLost, true
	case end.Quarantined:
		a.log.Error("the job is quarantined: it has lost too many workers", "job", a.job.ID, "attempts", a.job.Attempt, "lost", a.job.Lost+1, "code", end.Code)
	}
	a.Observer.AttemptEnded(*end)
	a.log.Info("attempt ended", "outcome", end.Outcome, "took_s", end.Took.Seconds(), "rtfx", end.RTFx)
}

// fenced says whether the store refused a write because the job belongs to another attempt, or is no more.
func fenced(err error) bool {
	code := CodeOf(err)
	return errors.Is(err, ErrStale) || code == CodeNotFound || code == CodeJobExpired
}

// record writes how the attempt ended, and describes it in end.
func (a *attempt) record(ctx context.Context, end *AttemptEnd, t Transcript, err, cause error) error {
	if err == nil {
		end.Outcome, end.Model = OutcomeSucceeded, t.Engine.Model
		end.Attention, end.RTFx = t.Engine.Attention.Mode, t.Usage.RTFx
		err = a.persist(ctx, func(ctx context.Context) error { return a.Store.FinishAttempt(ctx, a.ref, t) })
		if err == nil || fenced(err) || transient(err) {
			return err
		}
		cause = nil // the transcript itself was refused: that is a failure, whatever else happened
	}
	switch {
	case errors.Is(cause, ErrStale):
		return ErrStale
	case errors.Is(cause, errCanceled):
		end.Outcome = OutcomeCanceled
		return a.persist(ctx, func(ctx context.Context) error { return a.Store.CancelAttempt(ctx, a.ref) })
	case errors.Is(cause, ErrOverdue):
		err = Errorf(CodeAttemptTimeout, "attempt.run", "The attempt reached its run limit.")
	case cause != nil && CodeOf(err) != CodeDeviceFailed: // a device that failed is no matter of a drain
		end.Outcome = OutcomeReleased
		return a.persist(ctx, func(ctx context.Context) error { return a.Store.ReleaseAttempt(ctx, a.ref) })
	}
	f := a.failure(err)
	a.log.Warn("attempt failed", "code", f.Problem.Code, "retry", f.Retry, "lost", f.Lost, "err", err)
	state, err := a.fail(ctx, f)
	end.describe(f, state)
	return err
}

// fail records a failure, and says what became of the job.
func (a *attempt) fail(ctx context.Context, f Failure) (state State, err error) {
	err = a.persist(ctx, func(ctx context.Context) (err error) {
		state, err = a.Store.FailAttempt(ctx, a.ref, f)
		return err
	})
	return state, err
}

// describe says what a failure was, by what became of the job: the tries may be used up, and a cancel comes first. Without a state, which is to say
// unrecorded, it says what was meant.
func (e *AttemptEnd) describe(f Failure, state State) {
	e.Code = f.Problem.Code
	switch {
	case state == StateCanceled:
		e.Outcome = OutcomeCanceled
	case f.Lost:
		e.Outcome, e.Quarantined = OutcomeLost, state == StateFailed
	case state == StateFailed || !f.Retry:
		e.Outcome = OutcomeFailed
	default:
		e.Outcome = OutcomeRetried
	}
}

// hang ends an attempt whose work does not come back, and with it, as a rule, the process. It waits for nothing without a bound. What is recorded comes first: the
// stacks of all goroutines can only be had when all of them can be stopped.
func (a *attempt) hang(ctx context.Context, why, cause error) {
	end := AttemptEnd{Device: a.device.Name(), Audio: a.job.Audio.Duration, Took: time.Since(a.began)}
	phase, _ := a.phase.Load().(Phase)
	a.log.Error("the attempt hangs", "why", why, "phase", phase)
	f := a.failure(a.hangError(phase, why))
	end.describe(f, "")
	type became struct {
		state State
		err   error
	}
	recorded := make(chan became, 1)
	if errors.Is(cause, ErrStale) {
		recorded <- became{err: ErrStale}
	} else {
		ending, cancel := context.WithCancel(ctx)
		cancel() // in no more time than a drain has; then the lease runs out
		go func() {
			state, err := a.fail(ending, f)
			recorded <- became{state, err}
		}()
	}
	select {
	case job := <-recorded:
		end.describe(f, job.state)
		a.note(&end, job.err)
	case <-time.After(persistDraining + time.Second): // a store that does not even look at its context
		a.note(&end, context.DeadlineExceeded)
	}
	a.log.Error("what all goroutines do", "stacks", stacks())
	if a.Hung != nil {
		a.Hung(Hang{Device: a.device.Name(), JobID: a.job.ID, InDevice: phase == PhaseTranscribing, Why: why})
	}
}

// hangError says whose fault a hang is: a storage that does not answer is none of the recording's, and costs it what any other failure of the storage does.
func (a *attempt) hangError(phase Phase, why error) error {
	if phase == PhaseDecoding && a.reading.Load() > 0 {
		return awayError("attempt.decode", why)
	}
	return Errorf(CodeAttemptTimeout, "attempt.run", "The attempt hung: it gave no sign of life, or did not stop at its run limit.")
}

// Times of persist. The second bounds a drain.
const (
	persistFor      = 10 * time.Minute
	persistDraining = 5 * time.Second
	persistPause    = 2 * time.Second // at most, between two tries: when the store is back the lease has passed, and a sweeper may be next
)

// persist tries a write until it is done, refused as stale, or out of time: a result outlives a store that is away for a while. It goes on
// for a moment after ctx ends, since that is when releases are written.
func (a *attempt) persist(ctx context.Context, write func(context.Context) error) error {
	trying, giveUp := context.WithTimeout(context.WithoutCancel(ctx), persistFor)
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(persistDraining, giveUp) })()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, persistPause) {
		err := write(trying)
		if err == nil || fenced(err) || !transient(err) {
			return err
		}
		a.log.Warn("the store refused the attempt's end; trying again", "err", err, "pause", pause)
		select {
		case <-trying.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// transient says whether the store may take the same write later.
func transient(err error) bool {
	code := CodeOf(err)
	return code == CodeInternal || code == CodeStorageFull || code == CodeStoreUnavailable
}

// retries lists the codes after which another attempt may do better. Everything else is about the file or its options and fails at once.
var retries = map[Code]bool{
	CodeInternal: true, CodeStorageFull: true, CodeStoreUnavailable: true, CodeDeviceFailed: true, CodeEngineFailed: true, CodeAttemptTimeout: true,
}

// losses lists the codes that tell of a lost device or a hung call rather than of the recording. The job is not charged with an attempt, but a recording that does
// that to each device is quarantined.
var losses = map[Code]bool{CodeDeviceFailed: true, CodeAttemptTimeout: true}

// awayTries is how many attempts may end with a recording that cannot be read before they are charged: about 15 minutes. While the whole storage is away
// (ErrStorageAway) none is: a worker that has the wrong place would use them up, beside one that has the right one.
const awayTries = 8

// backoff is the wait before the next attempt: 5 s, doubled for each such attempt before, at most 5 minutes.
func backoff(before int) time.Duration { return min(5*time.Second<<min(before, 10), 5*time.Minute) }

// LossDelay is how long a job waits after a lost attempt, for those lost before it: up to half as long again as it has to, at random. Jobs that were lost
// together, as with a host, do not come back together.
func LossDelay(before int) time.Duration {
	d := backoff(before)
	return d + rand.N(d/2)
}

// failure classifies an error and says when to try again.
func (a *attempt) failure(err error) Failure {
	p := ProblemOf(err)
	f := Failure{Problem: p, Retry: retries[p.Code], Charge: true}
	before := a.job.Fails
	switch {
	case losses[p.Code]:
		f.Lost, f.Charge, f.Delay = true, false, LossDelay(a.job.Lost)
		return f
	case errors.Is(err, ErrStorageAway), errors.Is(err, errUnreadable) && a.job.Attempt <= awayTries:
		f.Charge, before = false, a.job.Attempt-1
	}
	f.Delay = backoff(before)
	return f
}
