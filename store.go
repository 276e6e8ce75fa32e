package aviary

import (
	"context"
	"io"
	"time"
)

// Store keeps jobs. It is the truth: every change of state is one conditional write, and a write from a state or an attempt that is no
// longer current changes nothing and returns ErrStale. All times come from the store's clock. Unknown ids give CodeNotFound, deleted
// ones CodeJobExpired where the answer needs the job's content.
//
// A call that fails with CodeStoreUnavailable, or with nothing but the end of its context's time, has changed nothing. One that may have committed, and
// was not told, fails with CodeInternal.
type Store interface {
	// CreateJob commits a queued job and adds it to the backlog, in one transaction. It refuses with CodeQueueFull when the limits of all
	// would be exceeded, with CodeQuotaExceeded when the tenant's would, and with ErrRequestKeyTaken when the tenant has a job with this
	// RequestKey. job carries ID, Tenant, RequestKey, RequestHash, Options, Audio, BlobKey, AudioKey and MaxAttempts; the result carries the times.
	CreateJob(ctx context.Context, job Job, limits QueueLimits) (Job, error)
	// Requested finds the job that a tenant has created with a request key; CodeNotFound if there is none.
	Requested(ctx context.Context, tenant, key string) (Job, error)
	Job(ctx context.Context, id string) (Job, error)
	Jobs(ctx context.Context, q JobQuery) (JobPage, error)
	Attempts(ctx context.Context, jobID string) ([]Attempt, error)
	Transcript(ctx context.Context, jobID string) (Transcript, error) // CodeTranscriptNotReady, CodeJobExpired, CodeNotFound
	// QueueAhead says how many jobs, and how much audio, will start before a queued job of this class and creation time.
	QueueAhead(ctx context.Context, job Job) (jobs int, audio time.Duration, err error)
	// Backlog is what waits and runs, from counters: constant time at any size.
	Backlog(ctx context.Context) (Backlog, error)
	// TenantOpen is what a tenant has waiting and running, from counters.
	TenantOpen(ctx context.Context, tenant string) (Amount, error)
	// Processed is what has ever come of attempts, also of those of jobs that are no more. It only grows.
	Processed(ctx context.Context) (Totals, error)

	// Cancel ends a queued job at once and asks a running one to stop. A final job is returned unchanged.
	Cancel(ctx context.Context, id string) (Job, error)
	// Retry queues a failed or canceled job once more, with one more attempt allowed; otherwise CodeStateConflict, or CodeJobExpired when its
	// audio is gone.
	Retry(ctx context.Context, id string) (Job, error)
	// Expire purges a final job's transcript and marks it expired; the row stays as a tombstone. An active one gives CodeJobActive,
	// unless force, which also fences off its attempt. It returns the job as it was, so that the caller can delete its blobs.
	Expire(ctx context.Context, id string, force bool) (Job, error)

	Identity
	Dispatching
	Attempting
	Housekeeping
	io.Closer
}

// Dispatching is the side of the store that hands jobs to the queue and takes them back from the dead.
type Dispatching interface {
	// Lead makes holder the leader for a term, or renews its term. It is false while somebody else's term runs. Leadership is for economy and
	// fairness, not for safety: all that a leader does is safe to be done by two.
	Lead(ctx context.Context, holder string, term time.Duration) (bool, error)
	// Resign ends holder's term, if it leads.
	Resign(ctx context.Context, holder string) error

	// Waiting lists, for each tenant that has jobs of a class that can be handed over now, the oldest perTenant of them, oldest first. Its cost grows
	// with the number of such tenants and with perTenant, not with the number of jobs.
	Waiting(ctx context.Context, class Priority, perTenant int) ([]Candidate, error)
	// Dispatch marks jobs as handed over, each with its next generation, and returns their tickets in the order of ids. A job that cannot be
	// handed over (any more) is left out.
	Dispatch(ctx context.Context, ids []string) ([]Ticket, error)
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
	// ReapOverdue does the same to attempts that have run for longer than their Claim's Limit and grace, however fresh their lease: their worker should
	// have ended them itself.
	ReapOverdue(ctx context.Context, grace time.Duration, limit int) ([]Reaped, error)
}

// Candidate is a job that can be handed over.
type Candidate struct {
	JobID, Tenant string
	Audio         time.Duration
}

// Housekeeping is the side of the store that forgets, and that checks itself. What it marks as gone it returns, for the caller to delete the blobs: a crash in
// between leaves blobs that Unwanted finds.
type Housekeeping interface {
	// ExpireOld does what Expire does to up to limit jobs that ended at least age ago, and returns them as they were.
	ExpireOld(ctx context.Context, age time.Duration, limit int) ([]Job, error)
	// DropAudio marks the audio of up to limit jobs that ended at least age ago as gone, and returns them.
	DropAudio(ctx context.Context, age time.Duration, limit int) ([]Job, error)
	// DropTombstones deletes the rows of up to limit jobs that expired at least age ago, with all that hangs on them.
	DropTombstones(ctx context.Context, age time.Duration, limit int) (int, error)
	// Unwanted picks those of some blobs' keys that no job has, or whose job has expired or whose audio is marked as gone.
	Unwanted(ctx context.Context, keys []string) ([]string, error)
	// Recount compares the counters with the rows, in one snapshot, and sets right those that differ. It reads every row: nothing for each minute.
	Recount(ctx context.Context) (drift []string, err error)
}

// Attempting is the side of the store that a worker uses.
type Attempting interface {
	// TakeOver ends, as lost, the attempts that other workers of c's Node have open on c's Device. The caller holds the device's lock, so that
	// those workers are dead, and nobody needs to wait for their leases.
	TakeOver(ctx context.Context, c Claim) ([]Reaped, error)
	// StartAttempt claims a job: it must be queued with the ticket's generation. It returns the job, running, with its next attempt number, or
	// ErrNotClaimable when the ticket is old or the job is final.
	StartAttempt(ctx context.Context, t Ticket, c Claim) (Job, error)
	// Heartbeat renews the lease and records progress. It reports whether the job should stop.
	Heartbeat(ctx context.Context, ref AttemptRef, b Beat) (cancel bool, err error)
	// FinishAttempt writes transcript and state succeeded in one transaction. Doing so again is no error: the answer to the first may be lost.
	FinishAttempt(ctx context.Context, ref AttemptRef, t Transcript) error
	// FailAttempt records a failure: queued again after delay if retry, otherwise failed. It returns what became of the job, which may have no more
	// tries, or was to be canceled.
	FailAttempt(ctx context.Context, ref AttemptRef, f Failure) (State, error)
	// ReleaseAttempt puts the job back to queued without a charge: the worker drains.
	ReleaseAttempt(ctx context.Context, ref AttemptRef) error
	// CancelAttempt ends an attempt that stopped because its job is to be canceled.
	CancelAttempt(ctx context.Context, ref AttemptRef) error
}

// Ceilings of attempts. A user's bad file gets MaxAttempts tries. A job whose workers die or hang gets MaxLost, which do not count as attempts: then it is
// quarantined, which is to say failed, with its audio kept, before it stops the whole fleet.
const (
	DefaultMaxAttempts = 3
	MaxLost            = 3
)

// Claim is what a worker says of itself when it starts an attempt.
type Claim struct {
	Worker string        // the process, unique among all that share the store
	Node   string        // the place where it runs, the same after a restart: who holds a device's lock there is alone
	Device string        // of the node
	Lease  time.Duration // how long the worker is believed alive without a sign
	Limit  time.Duration // how long the attempt may take; zero is no limit
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
	Lost    bool          // counts towards MaxLost, in the same way: the attempt hung, or took its device down
}

// Reaped is a lost attempt and what became of its job.
type Reaped struct {
	AttemptRef
	Worker, Device string
	Code           Code  // CodeWorkerLost or CodeAttemptTimeout
	State          State // of the job, now: failed is quarantined
}

// QueueLimits bound what may wait, and what each tenant may have open (waiting or running); zero is no limit.
type QueueLimits struct {
	Jobs        int
	Audio       time.Duration
	TenantJobs  int
	TenantAudio time.Duration
}

// Backlog is the state of the queue in numbers.
type Backlog struct {
	Classes map[Priority]ClassBacklog
	Running Amount
	Oldest  time.Duration // age of the oldest waiting job
	States  map[State]int // jobs by state, final ones included
}

// Queued is what waits, in all classes.
func (b Backlog) Queued() Amount {
	var sum Amount
	for _, c := range b.Classes {
		sum.Jobs += c.Jobs
		sum.Audio += c.Audio
	}
	return sum
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

// Totals is what has come of attempts since the store was made.
type Totals struct {
	Amount          // of jobs that succeeded
	Lost        int // attempts that were lost: their worker was silent, hung or lost its device, whoever noticed it
	Quarantined int // jobs that failed with one of these
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
	// List gives up to limit blobs, from the first that comes after the given key (which need not exist), in an order that is the store's own and never
	// changes. Empty is before all keys; fewer than limit is the end. The SystemBlob is left out.
	List(ctx context.Context, after string, limit int) ([]BlobInfo, error)
	// FreeBytes is the room left, or a negative number where that cannot be known.
	FreeBytes(ctx context.Context) (int64, error)
}

// BlobInfo is a committed blob in a list.
type BlobInfo struct {
	Key      string
	Modified time.Time // by the clock of the blobs
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
	Fenced        bool // the end was refused: the job belongs to a newer attempt, or is no more
	Unrecorded    bool // the end was not recorded: the store was away for too long
	Quarantined   bool // the job has failed with this attempt, for what it has lost
}
