package aviary

import (
	"context"
	"io"
	"time"
)

// Store keeps jobs. It is the truth: every change of state is one conditional write, and a write from a state or an attempt that is no
// longer current changes nothing and returns ErrStale. All times come from the store's clock. Unknown ids give CodeNotFound, deleted
// ones CodeJobExpired where the answer needs the job's content.
type Store interface {
	// CreateJob commits a queued job and adds it to the backlog, in one transaction. It refuses with CodeQueueFull when limits would be
	// exceeded. job carries ID, Options, Audio, BlobKey, AudioKey and MaxAttempts; the result carries the times.
	CreateJob(ctx context.Context, job Job, limits QueueLimits) (Job, error)
	Job(ctx context.Context, id string) (Job, error)
	Jobs(ctx context.Context, q JobQuery) (JobPage, error)
	Attempts(ctx context.Context, jobID string) ([]Attempt, error)
	Transcript(ctx context.Context, jobID string) (Transcript, error) // CodeTranscriptNotReady, CodeJobExpired, CodeNotFound
	// QueueAhead says how many jobs, and how much audio, will start before a queued job of this class and creation time.
	QueueAhead(ctx context.Context, job Job) (jobs int, audio time.Duration, err error)
	// Backlog is what waits and runs, from counters: constant time at any size.
	Backlog(ctx context.Context) (Backlog, error)

	// Cancel ends a queued job at once and asks a running one to stop. A final job is returned unchanged.
	Cancel(ctx context.Context, id string) (Job, error)
	// Retry queues a failed or canceled job once more, with one more attempt allowed; otherwise CodeStateConflict.
	Retry(ctx context.Context, id string) (Job, error)
	// Expire purges a final job's transcript and marks it expired; the row stays as a tombstone. An active one gives CodeJobActive,
	// unless force, which also fences off its attempt. It returns the job as it was, so that the caller can delete its blobs.
	Expire(ctx context.Context, id string, force bool) (Job, error)

	Dispatching
	Attempting
	io.Closer
}

// Dispatching is the side of the store that hands jobs to the queue and takes them back from the dead.
type Dispatching interface {
	// Dispatch marks up to limit waiting jobs of a class as handed over, oldest first, each with its next generation, and returns their
	// tickets. Jobs whose NotBefore lies ahead are left.
	Dispatch(ctx context.Context, class Priority, limit int) ([]Ticket, error)
	// Undispatch takes a ticket back, if the job is still queued with that generation: handing it over failed.
	Undispatch(ctx context.Context, t Ticket) error
	// Dispatched counts the queued jobs of a class that have been handed over and not been claimed.
	Dispatched(ctx context.Context, class Priority) (int, error)
	// Stranded lists the tickets that were handed over at least age ago and not claimed since.
	Stranded(ctx context.Context, age time.Duration, limit int) ([]Ticket, error)
	// UndispatchAll takes back all tickets: the queue was wiped.
	UndispatchAll(ctx context.Context) (int, error)
	// ReapLost ends attempts whose lease has passed: the job is queued again after a delay, or failed when it has lost MaxLost workers,
	// or canceled if that was asked for.
	ReapLost(ctx context.Context, limit int) ([]Reaped, error)
}

// Attempting is the side of the store that a worker uses.
type Attempting interface {
	// StartAttempt claims a job: it must be queued with the ticket's generation. It returns the job, running, with its next attempt number, or
	// ErrNotClaimable when the ticket is old or the job is final.
	StartAttempt(ctx context.Context, t Ticket, c Claim) (Job, error)
	// Heartbeat renews the lease and records progress. It reports whether the job should stop.
	Heartbeat(ctx context.Context, ref AttemptRef, b Beat) (cancel bool, err error)
	// FinishAttempt writes transcript and state succeeded in one transaction.
	FinishAttempt(ctx context.Context, ref AttemptRef, t Transcript) error
	// FailAttempt records a failure: queued again after delay if retry, otherwise failed.
	FailAttempt(ctx context.Context, ref AttemptRef, f Failure) error
	// ReleaseAttempt puts the job back to queued without a charge: the worker drains.
	ReleaseAttempt(ctx context.Context, ref AttemptRef) error
	// CancelAttempt ends an attempt that stopped because its job is to be canceled.
	CancelAttempt(ctx context.Context, ref AttemptRef) error
}

// Ceilings of attempts. A user's bad file gets MaxAttempts tries; a job whose workers die gets MaxLost, which do not count as attempts.
const (
	DefaultMaxAttempts = 3
	MaxLost            = 5
)

// Claim is what a worker says of itself when it starts an attempt.
type Claim struct {
	Worker, Device string
	Lease          time.Duration
}

// Beat is a worker's sign of life.
type Beat struct {
	Lease    time.Duration
	Phase    Phase
	Progress time.Duration // audio done
}

// Failure ends an attempt.
type Failure struct {
	Problem *Problem
	Retry   bool          // queue it again
	Delay   time.Duration // not before then
	Charge  bool          // counts towards MaxAttempts; when they are used up the job fails whatever Retry says
}

// Reaped is a lost attempt and what became of its job.
type Reaped struct {
	AttemptRef
	State State
}

// QueueLimits bound what may wait; zero is no limit.
type QueueLimits struct {
	Jobs  int
	Audio time.Duration
}

// Backlog is the state of the queue in numbers.
type Backlog struct {
	Classes map[Priority]ClassBacklog
	Running Amount
	Oldest  time.Duration // age of the oldest waiting job
	States  map[State]int // jobs by state, final ones included
}

// ClassBacklog is what waits in one class.
type ClassBacklog struct {
	Amount
	Oldest time.Duration
}

// Amount is work: jobs and seconds of audio.
type Amount struct {
	Jobs  int
	Audio time.Duration
}

// JobQuery selects jobs, newest first.
type JobQuery struct {
	States       []State
	Labels       map[string]string
	CreatedAfter time.Time
	Ascending    bool
	Limit        int    // 1 to 200
	After        string // the last id of the page before
}

// JobPage is one page of a list.
type JobPage struct {
	Jobs []Job
	Next string // After for the next page; empty at the end
}

// Blobs keeps uploads, whole or not at all.
type Blobs interface {
	// Stage opens a place for bytes that nobody else sees before Commit.
	Stage(ctx context.Context) (Staged, error)
	// Open gives random access to a committed blob; CodeNotFound if there is none.
	Open(ctx context.Context, key string) (Blob, error)
	// Delete removes a blob; a missing one is no error.
	Delete(ctx context.Context, key string) error
	// FreeBytes is the room left, or a negative number where that cannot be known.
	FreeBytes(ctx context.Context) (int64, error)
}

// Staged is a blob being written. Exactly one of Commit and Discard ends it; Discard after Commit does nothing.
type Staged interface {
	io.Writer
	io.ReaderAt
	io.WriterAt // over bytes that were written before
	Size() int64
	Commit(ctx context.Context, key string) error // durable when it returns
	Discard() error
}

// Blob is a committed blob.
type Blob interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Prober finds out what an upload is, by content, and makes of it what devices hear.
type Prober interface {
	// Peek judges an upload by what has arrived of it: the first received bytes. It refuses only what no further byte can save: what is no audio
	// (CodeMediaTypeUnsupported) or is too long already, by its header or by what was counted (CodeAudioTooLong). nil means: go on.
	Peek(ctx context.Context, r io.ReaderAt, received int64) error
	// Normalize decodes a whole upload once, within bounds, and writes what a device hears to w: mono at SampleRate, in a lossless form that Decode
	// reads. The duration of the result is that of the samples written. It refuses what is no audio, broken, without a stream, of unknown
	// duration or too long, and then what it has written is worth nothing.
	Normalize(ctx context.Context, r io.ReaderAt, size int64, n Normalizing, w RecordingWriter) (Audio, error)
	// Decode gives mono PCM at SampleRate. It stops with CodeAudioTooLong beyond limit (zero: none), whatever the header claims.
	Decode(ctx context.Context, r io.ReaderAt, size int64, limit time.Duration) (PCM, error)
}

// Normalizing says how an upload is to be normalized.
type Normalizing struct {
	Limit   time.Duration // the duration guard; zero is no limit
	Channel int           // the channel to take, from 1; 0 mixes all
}

// RecordingWriter is where Normalize writes: from start to end, and then over the header, which holds what is known only then.
type RecordingWriter interface {
	io.Writer
	io.WriterAt
}

// Transcriber turns PCM into text on one device, one call at a time.
type Transcriber interface {
	// Transcribe runs with the attention that policy and the device's memory allow. It calls progress now and then, with the audio done so
	// far, from one goroutine. Usage and Engine of the result are filled but for QueueSeconds.
	Transcribe(ctx context.Context, pcm PCM, mode AttentionMode, progress func(time.Duration)) (Transcript, error)
}

// Device is a Transcriber with a name.
type Device interface {
	Transcriber
	Name() string // "cpu", "cuda:0"
}

// Waker nudges the dispatcher after a job was queued. Losing a nudge costs a moment, nothing else.
type Waker interface{ Wake() }

// Observer hears what happens, for metrics. Implementations must not block. Durations handed to it are finite by type.
type Observer interface {
	JobAccepted(a Audio, p Priority)
	JobRefused(code Code)
	AttemptStarted(device string, queued time.Duration)
	AttemptEnded(e AttemptEnd)
}

// AttemptEnd describes the end of an attempt to an Observer.
type AttemptEnd struct {
	Device, Model string
	Outcome       Outcome
	Code          Code // of a failure
	Attention     AttentionMode
	Audio, Took   time.Duration
	RTFx          float64
}
