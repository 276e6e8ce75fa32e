package aviary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// Runner runs attempts: one call of Run is one attempt at one job on one device. The caller holds the device.
type Runner struct {
	Store    AttemptStore
	Blobs    Blobs
	Prober   Prober
	Observer Observer
	Log      *slog.Logger

	Worker      string        // this process, unique among all that share the store
	Node        string        // where it runs, the same after a restart
	Lease       time.Duration // how long a silent worker is believed alive
	Beat        time.Duration // between heartbeats; well below Lease
	MaxDuration time.Duration // the duration guard, held again while decoding

	Stall    time.Duration // an attempt without a sign of life for so long hangs; zero: none does
	Grace    time.Duration // and so does one that is not back so long after its run limit
	RunFloor time.Duration // the smallest run limit
	// Hung is called when an attempt hangs, once that is recorded. It ends the process, since nothing else frees the device, and must not wait for
	// anything that the device holds up. nil, or one that returns, leaves Run where it is until the work comes back.
	Hung func(h Hang)

	paces   paces
	storage storageGate
}

// Hang is an attempt whose work does not come back.
type Hang struct {
	Device, JobID string
	InDevice      bool // the device was at work; otherwise the storage of recordings does not answer, or a decoder hangs
	Why           error
}

// AttemptStore is what a Runner needs of a Store.
type AttemptStore interface {
	Attempting
	Job(ctx context.Context, id string) (Job, error)
}

// The reasons for which a run is stopped from outside. They are causes of the run's context. ErrOverdue is one too.
var (
	// ErrDrain stops a run because its process ends; the job goes back to the queue uncharged.
	ErrDrain    = errors.New("the worker is draining")
	errCanceled = errors.New("the job is to be canceled")
)

// ErrDeviceLost says that an attempt ended, and with it the use of its device: it takes no more jobs in this process.
var ErrDeviceLost = errors.New("the device is lost")

// Run claims the ticket's job, transcribes it, and records how that ended. It returns an error in two cases: the store could not be reached before the
// claim, or the recordings are not there (ErrStorageAway), and then nothing happened and the ticket can be tried again; or the device is no longer good, ErrDeviceLost. A ticket that is no longer good is
// no error. When ctx is canceled with the cause ErrDrain, the job is released.
//
// While the store is away, Run keeps the result, and with it the device, for up to 10 minutes: what cannot be recorded is not worth computing.
func (r *Runner) Run(ctx context.Context, t Ticket, d Device) error {
	job, limit, err := r.claim(ctx, t, d)
	if errors.Is(err, ErrNotClaimable) || CodeOf(err) == CodeNotFound {
		r.Log.Debug("dropped a stale ticket", "job", t.JobID, "generation", t.Generation)
		return nil
	}
	if err != nil {
		return fmt.Errorf("start attempt: %w", err)
	}
	a := &attempt{Runner: r, job: job, device: d, ref: AttemptRef{job.ID, job.Attempt}, began: time.Now()}
	a.log = r.Log.With("job", job.ID, "attempt", job.Attempt, "device", d.Name())
	a.log.Debug("attempt claimed", "limit_s", limit.Seconds())
	run, stop := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		a.beat(run, stop)
	}()
	var transcript Transcript
	watchdog := Watchdog{Stall: r.Stall, Limit: limit, Grace: r.Grace}
	done, hangs := watchdog.Do(run, stop, func(ctx context.Context, sign func()) { transcript, err = a.work(ctx, sign) })
	cause := context.Cause(run)
	stop(nil)
	if hangs != nil {
		a.hang(ctx, hangs, cause)
		<-done
		return fmt.Errorf("%w: %w", ErrDeviceLost, hangs)
	}
	<-beating
	return a.settle(ctx, transcript, err, cause)
}

// claim starts the attempt. The limit of a run depends on the job, which is read first: what it depends on never changes.
func (r *Runner) claim(ctx context.Context, t Ticket, d Device) (Job, time.Duration, error) {
	if err := r.storage.check(ctx, r.Blobs); err != nil {
		return Job{}, 0, err // no job could be run here, and a worker with the right place may be beside us
	}
	job, err := r.Store.Job(ctx, t.JobID)
	if err != nil {
		return Job{}, 0, err
	}
	limit := runLimit(job.Audio.Duration, job.Options.Attention, r.RunFloor, r.paces.of(d.Name()))
	job, err = r.Store.StartAttempt(ctx, t, Claim{Worker: r.Worker, Node: r.Node, Device: d.Name(), Lease: r.Lease, Limit: limit})
	return job, limit, err
}

// attempt is one run in progress.
type attempt struct {
	*Runner
	job    Job
	device Device
	ref    AttemptRef
	log    *slog.Logger
	began  time.Time

	phase   atomic.Value // Phase
	done    atomic.Int64 // audio done, as a time.Duration
	reading atomic.Int64 // calls of the storage of recordings that have not come back
}

// work is the part that uses the device: decode, transcribe. A panic in it fails this job and no other.
func (a *attempt) work(ctx context.Context, sign func()) (t Transcript, err error) {
	const op = "attempt.work"
	defer func() {
		if p := recover(); p != nil {
			a.log.Error("attempt panicked", "panic", p, "stack", string(debug.Stack()))
			err = WrapError(CodeEngineFailed, op, fmt.Errorf("panic: %v", p), "The engine failed on this audio.")
		}
	}()
	queued := a.job.StartedAt.Sub(a.job.CreatedAt)
	a.Observer.AttemptStarted(a.device.Name(), queued) // guarded as well: a panic between claim and end would leave the job to its lease
	a.log.Info("attempt started", "audio_s", a.job.Audio.Duration.Seconds(), "queued_s", queued.Seconds())
	a.phase.Store(PhaseDecoding)
	pcm, err := a.decode(ctx)
	if err != nil {
		return Transcript{}, err
	}
	a.phase.Store(PhaseTranscribing)
	if t, err = a.transcribe(ctx, pcm, sign); err != nil {
		return Transcript{}, err
	}
	a.paces.add(a.device.Name(), pace{audio: a.job.Audio.Duration, took: time.Since(a.began), mode: t.Engine.Attention.Mode})
	a.phase.Store(PhaseFinalizing)
	t.Warnings = append(slices.Clone(a.job.Audio.Warnings), t.Warnings...)
	t.Usage.QueueSeconds = queued.Seconds()
	return t, nil
}

// transcribe runs the device. Memory is predicted before a job starts, so that running out of it means that somebody else took some, or that the
// prediction is wrong: then local attention, which needs far less, is tried once.
func (a *attempt) transcribe(ctx context.Context, pcm PCM, sign func()) (Transcript, error) {
	progress := func(d time.Duration) {
		sign()
		a.done.Store(int64(d))
	}
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
	a.reading.Add(1)
	blob, err := a.Blobs.Open(ctx, key)
	a.reading.Add(-1)
	if CodeOf(err) == CodeNotFound { // a client would take it for the job
		return nil, WrapError(CodeInternal, op, err, "The audio of this job is no longer stored.")
	}
	if err != nil {
		return nil, awayError(op, err)
	}
	stored := &storedBlob{Blob: blob, reading: &a.reading}
	defer stored.Close() //nolint:errcheck // read only
	pcm, err := a.Prober.Decode(ctx, stored, blob.Size(), a.MaxDuration)
	if away := stored.failed.Load(); err != nil && away != nil && ctx.Err() == nil {
		return nil, awayError(op, *away)
	}
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

// errUnreadable is behind errors of reading what is stored, as against errors in what was read.
var errUnreadable = errors.New("the storage of recordings does not answer")

func awayError(op string, err error) error {
	return WrapError(CodeInternal, op, fmt.Errorf("%w: %w", errUnreadable, err), "The stored audio of this job cannot be read at the moment.")
}

// storedBlob remembers that reading failed, whatever a decoder makes of it, and counts what has not come back.
type storedBlob struct {
	Blob
	failed  atomic.Pointer[error]
	reading *atomic.Int64
}

func (b *storedBlob) ReadAt(p []byte, offset int64) (int, error) {
	b.reading.Add(1)
	defer b.reading.Add(-1)
	n, err := b.Blob.ReadAt(p, offset)
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed.Store(&err)
	}
	return n, err
}

func (b *storedBlob) Close() error {
	b.reading.Add(1)
	defer b.reading.Add(-1)
	return b.Blob.Close()
}

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
		case fenced(err):
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
