package aviary

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"time"
)

// Intake takes uploads in. Its Submit is the only way a job comes to be: bytes are staged, counted and hashed; the upload is decoded once, held
// against the duration guard, and stored as what the device will hear; both are committed as blobs, and only then does a row exist. A refusal
// leaves no row, no blob and no task behind.
//
// A submission with a key can be repeated after a lost answer: the row carries the key and the hash of the request, and at most one row of a tenant carries a
// key. A key whose submission was refused is free again, since nothing was stored.
type Intake struct {
	Store    Store
	Blobs    Blobs
	Prober   Prober
	Waker    Waker
	Observer Observer
	Log      *slog.Logger
	NewID    func() string // a fresh job id, "job_" and a ULID

	Limits IntakeLimits
	// Decoding has room for the uploads that are decoded at the same time; others wait their turn. nil is no bound.
	Decoding chan struct{}
	// StorePatience is how long the store may take for each call; zero means 30 s.
	StorePatience time.Duration
	// Rate is how fast the system works, for the time after which a refused caller should come back; see Meter. nil is unknown.
	Rate func() (audioPerSecond float64, ok bool)

	keys inFlight
}

// IntakeLimits bound what is taken in; zero is no limit.
type IntakeLimits struct {
	Duration    time.Duration // of the audio: exactly this long passes
	UploadBytes int64
	FreeBytes   int64 // refuse when less than this would be left
	Queue       QueueLimits
	MaxAttempts int
}

// Submit reads body to its end, in constant memory, and queues a job for it. The error's code says why it was refused. replayed says that an earlier
// request with the same key had made the job, which may have expired since; then nothing was stored or decoded.
func (in *Intake) Submit(ctx context.Context, body io.Reader, s Submission) (job Job, replayed bool, err error) {
	job, replayed, err = in.submit(ctx, body, s)
	switch {
	case err != nil:
		in.Observer.JobRefused(CodeOf(err))
		_ = in.ask(ctx, func(ctx context.Context) error { err = in.withWait(ctx, err); return nil })
		return Job{}, false, err
	case replayed:
		return job, true, nil
	}
	in.Observer.JobAccepted(job.Audio, job.Options.Priority)
	in.Waker.Wake()
	return job, false, nil
}

func (in *Intake) submit(ctx context.Context, body io.Reader, s Submission) (Job, bool, error) {
	s, err := s.normalize()
	if err != nil {
		return Job{}, false, err
	}
	leave, err := in.keys.enter(s)
	if err != nil {
		return Job{}, false, err
	}
	defer leave()
	// A repeated request takes no room, so that no limit holds for it, and its bytes are only hashed.
	if earlier, found, err := in.requested(ctx, s); found || err != nil {
		return in.repeat(ctx, body, s, earlier, err)
	}
	if err := in.checkRoom(ctx); err != nil {
		return Job{}, false, err
	}
	if err := in.ask(ctx, func(ctx context.Context) error { return in.checkQueue(ctx, s.Tenant) }); err != nil {
		return Job{}, false, err
	}
	staged, err := in.Blobs.Stage(ctx)
	if err != nil {
		return Job{}, false, err
	}
	defer staged.Discard() //nolint:errcheck // after Commit it does nothing; what a crash leaves is swept by its age
	sum, err := in.receive(ctx, body, staged)
	if err != nil {
		return Job{}, false, err
	}
	// An upload takes long: another process may have finished the same request meanwhile. To look is cheaper than to decode.
	if earlier, found, err := in.requested(ctx, s); found || err != nil {
		return replay(s, sum, earlier, err)
	}
	return in.create(ctx, s, sum, staged)
}

// create makes a job of an upload that has been received.
func (in *Intake) create(ctx context.Context, s Submission, sum string, staged Staged) (Job, bool, error) {
	recording, err := in.Blobs.Stage(ctx)
	if err != nil {
		return Job{}, false, err
	}
	defer recording.Discard() //nolint:errcheck // as in submit
	audio, err := in.normalize(ctx, staged, recording, s.Options.Channel)
	if err != nil {
		return Job{}, false, err
	}
	audio.Bytes, audio.SHA256 = staged.Size(), sum

	job := Job{ID: in.NewID(), Tenant: s.Tenant, Options: s.Options, Audio: audio, MaxAttempts: in.Limits.MaxAttempts}
	job.BlobKey, job.AudioKey = job.ID, job.ID+".flac"
	if s.Key != "" {
		job.RequestKey = s.Key
		if job.RequestHash, err = requestHash(sum, s.Options); err != nil {
			return Job{}, false, err
		}
	}
	if err := in.commit(ctx, job, staged, recording); err != nil {
		return Job{}, false, err
	}
	var created Job
	err = in.ask(ctx, func(ctx context.Context) (err error) {
		created, err = in.Store.CreateJob(ctx, job, in.Limits.Queue)
		return err
	})
	if err == nil {
		return created, false, nil
	}
	err = in.withdraw(ctx, job, err)
	if !errors.Is(err, ErrRequestKeyTaken) {
		return Job{}, false, err
	}
	earlier, _, lookErr := in.requested(ctx, s)
	if lookErr == nil && earlier.ID == job.ID { // our own row: the store had tried the commit again after a lost answer
		return earlier, false, nil
	}
	return replay(s, sum, earlier, lookErr)
}

// commit makes both blobs, or neither.
func (in *Intake) commit(ctx context.Context, job Job, upload, recording Staged) error {
	if err := upload.Commit(ctx, job.BlobKey); err != nil {
		return err
	}
	if err := recording.Commit(ctx, job.AudioKey); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		return errors.Join(err, in.Blobs.Delete(ctx, job.BlobKey))
	}
	return nil
}

// cleanupTime is how long a refused upload's traces may take to be removed when the client has gone.
const cleanupTime = 5 * time.Second

// withdraw removes the blobs of a job whose row was refused. A row may exist all the same, when the store's answer to the commit was lost: then
// they stay, since the job will run.
func (in *Intake) withdraw(ctx context.Context, job Job, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	const op = "intake.withdraw"
	if CodeOf(cause) == CodeStoreUnavailable { // that is certain: there is no row
		return errors.Join(cause, in.deleteBlobs(ctx, job))
	}
	if _, err := in.Store.Job(ctx, job.ID); CodeOf(err) != CodeNotFound {
		in.Log.Warn("kept the blobs of a job whose creation is in doubt", "job", job.ID, "err", cause)
		// Not the cause's own code: one that says that nothing was accepted invites clients to submit a second time.
		return WrapError(CodeInternal, op, cause, "Whether the job was created is not known. With an Idempotency-Key, the request can be repeated.")
	}
	return errors.Join(cause, in.deleteBlobs(ctx, job))
}

// deleteBlobs removes all that is stored for a job besides its row.
func (in *Intake) deleteBlobs(ctx context.Context, job Job) error {
	err := in.Blobs.Delete(ctx, job.BlobKey)
	if job.AudioKey != "" {
		err = errors.Join(err, in.Blobs.Delete(ctx, job.AudioKey))
	}
	return err
}

func (in *Intake) checkRoom(ctx context.Context) error {
	const op = "intake.room"
	free, err := in.Blobs.FreeBytes(ctx)
	if err != nil {
		return err
	}
	if free >= 0 && free < in.Limits.FreeBytes {
		return &Error{Code: CodeStorageFull, Op: op, Detail: "The disk of the uploads is nearly full: the server keeps the limit free for the jobs that it has.",
			Limit: float64(in.Limits.FreeBytes), Actual: float64(free), Unit: "bytes", Wait: time.Minute}
	}
	return nil
}

// receive copies body into staged and returns its SHA-256 in hex. What has arrived is looked at now and then, so that a refusal that is certain
// does not wait for the rest.
func (in *Intake) receive(ctx context.Context, body io.Reader, staged Staged) (string, error) {
	peekAt := int64(firstPeekBytes)
	return in.hash(ctx, body, staged, func() error {
		received := staged.Size()
		if received < peekAt {
			return nil
		}
		peekAt = received * peekGrowth
		return in.Prober.Peek(ctx, staged, received)
	})
}

// hash copies body to w and returns its SHA-256 in hex. before is asked before each read whether to go on.
func (in *Intake) hash(ctx context.Context, body io.Reader, w io.Writer, before func() error) (string, error) {
	const op = "intake.receive"
	if limit := in.Limits.UploadBytes; limit > 0 {
		body = io.LimitReader(body, limit+1)
	}
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(w, hash), readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := before(); err != nil {
			return 0, err
		}
		return body.Read(p)
	}))
	if err != nil {
		return "", err
	}
	if limit := in.Limits.UploadBytes; limit > 0 && n > limit {
		return "", &Error{Code: CodeUploadTooLarge, Op: op, Detail: "The upload has more bytes than the server takes.",
			Limit: float64(limit), Actual: float64(n), Unit: "bytes"}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// An upload is looked at when so many bytes have arrived, and again whenever they are so many times as many: all looks together read no more than
// twice the upload.
const (
	firstPeekBytes = 64 << 10
	peekGrowth     = 2
)

// An upload waits for its turn to be decoded at most so long, which is many decodes of an hour, and has so long for it.
const (
	decodingWait = 2 * time.Minute
	decodingTime = 15 * time.Minute
)

// normalize fails closed: audio whose duration is unknown, or beyond the guard, is refused here and never reaches a device.
func (in *Intake) normalize(ctx context.Context, upload, recording Staged, channel int) (Audio, error) {
	const op = "intake.normalize"
	if in.Decoding != nil {
		patience := time.NewTimer(decodingWait)
		defer patience.Stop()
		select {
		case in.Decoding <- struct{}{}:
			defer func() { <-in.Decoding }()
		case <-patience.C:
			e := Errorf(CodeQueueFull, op, "The server is decoding as many uploads as it can.")
			e.Wait = decodingWait / 4
			return Audio{}, e
		case <-ctx.Done():
			return Audio{}, ctx.Err()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, decodingTime)
	defer cancel()
	audio, err := in.Prober.Normalize(ctx, upload, upload.Size(), Normalizing{Limit: in.Limits.Duration, Channel: channel}, recording)
	if err != nil {
		return Audio{}, err
	}
	if audio.Duration <= 0 {
		return Audio{}, Errorf(CodeDurationUnknown, op, "The duration of the audio could not be determined.")
	}
	return audio, CheckDuration(op, audio.Duration, in.Limits.Duration)
}

// CheckDuration is the duration guard: longer than limit is CodeAudioTooLong; a limit of zero lets everything pass.
func CheckDuration(op string, d, limit time.Duration) error {
	if limit <= 0 || d <= limit {
		return nil
	}
	e := Errorf(CodeAudioTooLong, op, "The audio lasts %.3f s; at most %.3f s are accepted.", d.Seconds(), limit.Seconds())
	e.Limit, e.Actual, e.Unit = limit.Seconds(), d.Seconds(), "seconds"
	e.Hint = "Split the recording, or ask the operator to raise PARAKEET_MAX_FILE_DURATION."
	return e
}

// Delete purges a job: transcript and audio go, a tombstone stays. Once the store has it, the end of ctx no longer stops it: an error that says that
// nothing was changed comes from the store alone.
func (in *Intake) Delete(ctx context.Context, id string, force bool) error {
	job, err := in.Store.Expire(ctx, id, force)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
	defer cancel()
	return in.deleteBlobs(ctx, job)
}

// normalize fills defaults and refuses what is out of range.
func (o Options) normalize() (Options, error) {
	const op = "options"
	var err error
	if o.Priority, err = ParsePriority(string(o.Priority)); err != nil {
		return o, WrapError(CodeOptionInvalid, op, err, "priority: %v.", err)
	}
	if o.Attention != "" {
		if o.Attention, err = ParseAttentionMode(string(o.Attention)); err != nil {
			return o, WrapError(CodeOptionInvalid, op, err, "attention: %v.", err)
		}
	}
	if o.Channel < 0 {
		return o, Errorf(CodeOptionInvalid, op, "channel: %d is no channel: they are counted from 1, and 0 mixes all.", o.Channel)
	}
	const mostLabels, longestLabel, longestName = 32, 256, 1024
	if len(o.Labels) > mostLabels {
		return o, Errorf(CodeOptionInvalid, op, "labels: %d are given; at most %d are accepted.", len(o.Labels), mostLabels)
	}
	for k, v := range o.Labels {
		if k == "" || len(k) > longestLabel || len(v) > longestLabel {
			return o, Errorf(CodeOptionInvalid, op, "labels: keys have 1 to %d bytes and values up to %d.", longestLabel, longestLabel)
		}
	}
	if len(o.Name) > longestName {
		return o, Errorf(CodeOptionInvalid, op, "name: at most %d bytes are accepted.", longestName)
	}
	return o, nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
