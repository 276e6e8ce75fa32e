package aviary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// Runner runs attempts: one call of Run is one attempt at one job on one device. The caller holds the device.
type Runner struct {
	Store    Attempting
	Blobs    Blobs
	Prober   Prober
	Observer Observer
	Log      *slog.Logger

	Worker      string        // this process, unique among all that share the store
	Lease       time.Duration // how long a silent worker is believed alive
	Beat        time.Duration // between heartbeats; well below Lease
	MaxDuration time.Duration // the duration guard, held again while decoding
}

// The reasons for which a run is stopped from outside. They are causes of the run's context.
var (
	// ErrDrain stops a run because its process ends; the job goes back to the queue uncharged.
	ErrDrain    = errors.New("the worker is draining")
	errCanceled = errors.New("the job is to be canceled")
)

// Run claims the ticket's job, transcribes it, and records how that ended. It returns an error only when the store could not be
// reached before the claim: then nothing happened and the ticket can be tried again. A ticket that is no longer good is no error.
// When ctx is canceled with the cause ErrDrain, the job is released.
func (r *Runner) Run(ctx context.Context, t Ticket, d Device) error {
	job, err := r.Store.StartAttempt(ctx, t, Claim{Worker: r.Worker, Device: d.Name(), Lease: r.Lease})
	if errors.Is(err, ErrNotClaimable) || CodeOf(err) == CodeNotFound {
		r.Log.Debug("dropped a stale ticket", "job", t.JobID, "generation", t.Generation)
		return nil
	}
	if err != nil {
		return fmt.Errorf("start attempt: %w", err)
	}
	a := &attempt{Runner: r, job: job, device: d, ref: AttemptRef{job.ID, job.Attempt}, began: time.Now()}
	a.log = r.Log.With("job", job.ID, "attempt", job.Attempt, "device", d.Name())
	queued := job.StartedAt.Sub(job.CreatedAt)
	r.Observer.AttemptStarted(d.Name(), queued)
	a.log.Info("attempt started", "audio_s", job.Audio.Duration.Seconds(), "queued_s", queued.Seconds())

	run, stop := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		a.beat(run, stop)
	}()
	transcript, err := a.work(run)
	cause := context.Cause(run)
	stop(nil)
	<-beating
	a.settle(ctx, transcript, err, cause)
	return nil
}

// attempt is one run in progress.
type attempt struct {
	*Runner
	job    Job
	device Device
	ref    AttemptRef
	log    *slog.Logger
	began  time.Time

	phase atomic.Value // Phase
	done  atomic.Int64 // audio done, as a time.Duration
}

// work is the part that uses the device: decode, transcribe. A panic in either fails this job and no other.
func (a *attempt) work(ctx context.Context) (t Transcript, err error) {
	const op = "attempt.work"
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("attempt panicked", "panic", p, "stack", string(debug.Stack()))
			err = WrapError(CodeEngineFailed, op, fmt.Errorf("panic: %v", p), "The engine failed on this audio.")
		}
	}()
	a.phase.Store(PhaseDecoding)
	pcm, err := a.decode(ctx)
	if err != nil {
		return Transcript{}, err
	}
	a.phase.Store(PhaseTranscribing)
	if t, err = a.transcribe(ctx, pcm); err != nil {
		return Transcript{}, err
	}
	a.phase.Store(PhaseFinalizing)
	t.Warnings = append(slices.Clone(a.job.Audio.Warnings), t.Warnings...)
	t.Usage.QueueSeconds = a.job.StartedAt.Sub(a.job.CreatedAt).Seconds()
	return t, nil
}

// transcribe runs the device. Memory is predicted before a job starts, so that running out of it means that somebody else took some, or that the
// prediction is wrong: then local attention, which needs far less, is tried once.
func (a *attempt) transcribe(ctx context.Context, pcm PCM) (Transcript, error) {
	progress := func(d time.Duration) { a.done.Store(int64(d)) }
	t, err := a.device.Transcribe(ctx, pcm, a.job.Options.Attention, progress)
	if CodeOf(err) != CodeDeviceOutOfMemory || a.job.Options.Attention == AttentionLocal {
		return t, err
	}
	a.log.Warn("the device ran out of memory; trying again with local attention", "err", err)
	a.done.Store(0)
	t, err = a.device.Transcribe(ctx, pcm, AttentionLocal, progress)
	if err == nil {
		t.Warnings = append(t.Warnings, "The device ran out of memory, so that local attention was used.")
	}
	return t, err
}

// decode reads what the device hears. What was measured at intake must be what runs: audio that is not as long as it was is not transcribed.
func (a *attempt) decode(ctx context.Context) (PCM, error) {
	const op = "attempt.decode"
	key := a.job.AudioKey
	if key == "" {
		key = a.job.BlobKey
	}
	blob, err := a.Blobs.Open(ctx, key)
	if CodeOf(err) == CodeNotFound { // a client would take it for the job
		return nil, WrapError(CodeInternal, op, err, "The audio of this job is no longer stored.")
	}
	if err != nil {
		return nil, err
	}
	defer blob.Close() //nolint:errcheck // read only
	pcm, err := a.Prober.Decode(ctx, blob, blob.Size(), a.MaxDuration)
	if a.job.AudioKey == "" {
		return pcm, err
	}
	if code := CodeOf(err); err != nil && code != CodeCanceled && code != CodeAudioTooLong { // the file is ours: it is no fault of the user's
		return nil, WrapError(CodeInternal, op, err, "The stored audio of this job cannot be read.")
	}
	if difference := pcm.Duration() - a.job.Audio.Duration; err == nil && difference.Abs() > storedWithin {
		return nil, WrapError(CodeInternal, op, fmt.Errorf("stored %v, measured %v", pcm.Duration(), a.job.Audio.Duration),
			"The stored audio of this job is not as long as it was measured.")
	}
	return pcm, err
}

// storedWithin is how far the stored audio's duration may be from the job's: rounding to samples and to the store's microseconds.
const storedWithin = time.Millisecond

// beat renews the lease until ctx ends. It stops the run when the job is to be canceled or belongs to somebody else by now. While the
// store is away the run goes on: if nobody claims the job meanwhile, its result is still accepted.
func (a *attempt) beat(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(a.Beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		phase, _ := a.phase.Load().(Phase)
		cancel, err := a.Store.Heartbeat(ctx, a.ref, Beat{Lease: a.Lease, Phase: phase, Progress: time.Duration(a.done.Load())})
		switch {
		case errors.Is(err, ErrStale):
			stop(ErrStale)
			return
		case err != nil && ctx.Err() == nil:
			a.log.Warn("heartbeat failed; the attempt goes on", "err", err)
		case cancel:
			stop(errCanceled)
			return
		}
	}
}

// settle records the end of the attempt. cause says why the run was stopped from outside, if it was; a result that came first wins.
func (a *attempt) settle(ctx context.Context, t Transcript, err, cause error) {
	end := AttemptEnd{Device: a.device.Name(), Audio: a.job.Audio.Duration, Took: time.Since(a.began)}
	if err := a.record(ctx, &end, t, err, cause); err != nil {
		// The lease runs out and the sweeper gives the job to another worker: nothing is lost.
		a.log.Warn("the attempt's end was not recorded", "outcome", end.Outcome, "err", err)
		end.Outcome = OutcomeLost
	}
	a.Observer.AttemptEnded(end)
	a.log.Info("attempt ended", "outcome", end.Outcome, "took_s", end.Took.Seconds(), "rtfx", end.RTFx)
}

// record writes how the attempt ended, and describes it in end.
func (a *attempt) record(ctx context.Context, end *AttemptEnd, t Transcript, err, cause error) error {
	if err == nil {
		end.Outcome, end.Model = OutcomeSucceeded, t.Engine.Model
		end.Attention, end.RTFx = t.Engine.Attention.Mode, t.Usage.RTFx
		err = a.persist(ctx, func(ctx context.Context) error { return a.Store.FinishAttempt(ctx, a.ref, t) })
		if err == nil || errors.Is(err, ErrStale) || transient(err) {
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
	case cause != nil:
		end.Outcome = OutcomeReleased
		return a.persist(ctx, func(ctx context.Context) error { return a.Store.ReleaseAttempt(ctx, a.ref) })
	}
	f := a.failure(err)
	end.Outcome, end.Code = OutcomeFailed, f.Problem.Code
	if f.Retry {
		end.Outcome = OutcomeRetried
	}
	a.log.Warn("attempt failed", "code", f.Problem.Code, "retry", f.Retry, "err", err)
	return a.persist(ctx, func(ctx context.Context) error { return a.Store.FailAttempt(ctx, a.ref, f) })
}

// Times of persist. The second bounds a drain.
const (
	persistFor      = 10 * time.Minute
	persistDraining = 5 * time.Second
)

// persist tries a write until it is done, refused as stale, or out of time: a result outlives a store that is away for a while. It goes on
// for a moment after ctx ends, since that is when releases are written.
func (a *attempt) persist(ctx context.Context, write func(context.Context) error) error {
	trying, giveUp := context.WithTimeout(context.WithoutCancel(ctx), persistFor)
	defer giveUp()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(persistDraining, giveUp) })()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 10*time.Second) {
		err := write(trying)
		if err == nil || errors.Is(err, ErrStale) || !transient(err) {
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
	return code == CodeInternal || code == CodeStorageFull
}

// retries lists the codes after which another attempt may do better. Everything else is about the file or its options and fails at once.
var retries = map[Code]bool{
	CodeInternal: true, CodeStorageFull: true, CodeDeviceFailed: true, CodeEngineFailed: true, CodeAttemptTimeout: true,
}

// failure classifies an error and says when to try again: 5 s, doubled for each failed attempt before, at most 5 minutes.
func (a *attempt) failure(err error) Failure {
	p := ProblemOf(err)
	delay := 5 * time.Second << min(a.job.Fails, 10)
	return Failure{Problem: p, Retry: retries[p.Code], Charge: true, Delay: min(delay, 5*time.Minute)}
}
