package store

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/aviary-asr/aviary"
)

// $1 id, $2 priority, $3 max attempts, $4 created at, $5 to $7 name, attention mode and labels, $8 to $14 audio, $15 and $16 blob keys,
// $17 warnings, $18 channel, $19 tenant, $20 and $21 request key and hash -> the job.
const insertJobSQL = `
INSERT INTO jobs (id, state, priority, max_attempts, created_at, name, attention_mode, labels,
	container, codec, sample_rate, channels, audio_us, audio_bytes, audio_sha256, blob_key, audio_key, audio_warnings, channel,
	tenant, request_key, request_hash)
VALUES ($1, 'queued', $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
RETURNING ` + jobColumns

// CreateJob implements aviary.Store.
func (s *sqlStore) CreateJob(ctx context.Context, job aviary.Job, limits aviary.QueueLimits) (aviary.Job, error) {
	const op = "store.create_job"
	priority, err := aviary.ParsePriority(string(job.Options.Priority))
	if err != nil {
		return aviary.Job{}, aviary.WrapError(aviary.CodeOptionInvalid, op, err, "priority: %v.", err)
	}
	if job.Tenant == "" {
		job.Tenant = aviary.DefaultTenant
	}
	if err := errors.Join(checkTexts(op, job), checkKeys(op, job)); err != nil {
		return aviary.Job{}, err
	}
	if job.MaxAttempts <= 0 {
		job.MaxAttempts = aviary.DefaultMaxAttempts
	}
	job.Options.Priority = priority
	for alone := (turns{}); ; {
		created, err := s.insertJob(ctx, op, job, limits, alone)
		var more crowded
		if errors.As(err, &more) {
			alone = more.next
			continue
		}
		if err != nil {
			return aviary.Job{}, err
		}
		return created, nil
	}
}

// insertJob inserts a job if the limits allow, and its request key is not taken. It fails with crowded if that can only be told alone.
func (s *sqlStore) insertJob(ctx context.Context, op string, job aviary.Job, limits aviary.QueueLimits, alone turns) (created aviary.Job, err error) {
	var labels, warnings, requestKey any // NULL where there are none
	if job.RequestKey != "" {
		requestKey = job.RequestKey
	}
	if len(job.Options.Labels) > 0 {
		if labels, err = toJSON(job.Options.Labels); err != nil {
			return aviary.Job{}, s.fail(op, err)
		}
	}
	if len(job.Audio.Warnings) > 0 {
		if warnings, err = toJSON(job.Audio.Warnings); err != nil {
			return aviary.Job{}, s.fail(op, err)
		}
	}
	err = s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		err := s.admit(ctx, tx, op, job, limits, alone)
		if err != nil {
			return err
		}
		a, o := job.Audio, job.Options
		created, err = scanJob(tx.QueryRowContext(ctx, insertJobSQL, job.ID, string(o.Priority), job.MaxAttempts, stamp(now),
			o.Name, string(o.Attention), labels,
			a.Container, a.Codec, a.SampleRate, a.Channels, micros(a.Duration), a.Bytes, a.SHA256, job.BlobKey, job.AudioKey, warnings, o.Channel,
			job.Tenant, requestKey, job.RequestHash))
		return err
	})
	return created, err
}

// $1 tenant, $2 request key -> the job.
const requestedSQL = `SELECT ` + jobColumns + ` FROM jobs WHERE tenant = $1 AND request_key = $2`

// Requested implements aviary.Store. A deleted job is returned as its tombstone.
func (s *sqlStore) Requested(ctx context.Context, tenant, key string) (aviary.Job, error) {
	const op = "store.requested"
	if tenant == "" {
		tenant = aviary.DefaultTenant
	}
	var job aviary.Job
	err := s.look(ctx, op, func(ctx context.Context) (err error) {
		if storable(tenant) && storable(key) {
			job, err = scanJob(s.read.QueryRowContext(ctx, requestedSQL, tenant, key))
		} else {
			err = sql.ErrNoRows // nobody has such a key
		}
		if errors.Is(err, sql.ErrNoRows) {
			return aviary.Errorf(aviary.CodeNotFound, op, "There is no job with this request key.")
		}
		return err
	})
	return job, err
}

const jobSQL = `SELECT ` + jobColumns + ` FROM jobs WHERE id = $1`

// Job implements aviary.Store. A deleted job is returned as its tombstone.
func (s *sqlStore) Job(ctx context.Context, id string) (aviary.Job, error) {
	const op = "store.job"
	var job aviary.Job
	err := s.look(ctx, op, func(ctx context.Context) (err error) {
		job, err = jobIn(ctx, s.read, op, id)
		return err
	})
	return job, err
}

func jobIn(ctx context.Context, q querier, op, id string) (aviary.Job, error) {
	job, err := scanJob(q.QueryRowContext(ctx, jobSQL, id))
	if errors.Is(err, sql.ErrNoRows) {
		return aviary.Job{}, notFound(op, id)
	}
	return job, err
}

// $1 id, $2 now, $3 problem -> the job.
const cancelQueuedSQL = `
UPDATE jobs SET state = 'canceled', finished_at = $2, problem = $3, dispatched_at = NULL, not_before = NULL, version = version + 1
WHERE id = $1 AND state = 'queued'
RETURNING ` + jobColumns

// $1 id -> the job.
const requestCancelSQL = `
UPDATE jobs SET cancel_requested = 1, version = version + 1
WHERE id = $1 AND state = 'running' AND cancel_requested = 0
RETURNING ` + jobColumns

// Cancel implements aviary.Store. Its problem says canceled; tickets that are out for the job come to nothing.
func (s *sqlStore) Cancel(ctx context.Context, id string) (aviary.Job, error) {
	const op = "store.cancel"
	var job aviary.Job
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		err := s.hold(ctx, tx, id)
		if err != nil {
			return err
		}
		job, err = scanJob(tx.QueryRowContext(ctx, cancelQueuedSQL, id, stamp(now), problemColumn(canceled)))
		if errors.Is(err, sql.ErrNoRows) {
			job, err = scanJob(tx.QueryRowContext(ctx, requestCancelSQL, id))
		}
		if errors.Is(err, sql.ErrNoRows) {
			job, err = jobIn(ctx, tx, op, id)
		}
		return err
	})
	if err != nil {
		return aviary.Job{}, err
	}
	return job, nil
}

// canceled is the problem of a job that a user stopped.
var canceled = aviary.ProblemOf(&aviary.Error{Code: aviary.CodeCanceled})

// $1 id -> the job, as if new but for its counts.
const retrySQL = `
UPDATE jobs SET state = 'queued', max_attempts = max_attempts + 1, problem = NULL, finished_at = NULL, started_at = NULL,
	worker = '', device = '', node = '', progress_us = 0, version = version + 1
WHERE id = $1 AND state IN ('failed', 'canceled') AND audio_gone = 0
RETURNING ` + jobColumns

// Retry implements aviary.Store. A job whose audio is gone gives CodeJobExpired. The job keeps its time of creation and so its
// place in the queue.
func (s *sqlStore) Retry(ctx context.Context, id string) (aviary.Job, error) {
	const op = "store.retry"
	var job aviary.Job
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, _ time.Time) error {
		err := s.hold(ctx, tx, id)
		if err != nil {
			return err
		}
		job, err = scanJob(tx.QueryRowContext(ctx, retrySQL, id))
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		switch as, err := jobIn(ctx, tx, op, id); {
		case err != nil:
			return err
		case as.State == aviary.StateExpired:
			return aviary.Errorf(aviary.CodeJobExpired, op, "The job has been deleted; its audio is gone.")
		case as.AudioGone && as.State != aviary.StateSucceeded:
			return aviary.Errorf(aviary.CodeJobExpired, op, "The job's audio is gone: it was not kept for longer. Submit it again.")
		default:
			return aviary.Errorf(aviary.CodeStateConflict, op, "The job is %s; only a failed or canceled job can be retried.", as.State)
		}
	})
	if err != nil {
		return aviary.Job{}, err
	}
	return job, nil
}

// $1 now.
const toTombstone = `
UPDATE jobs SET state = 'expired', expired_at = $1, audio_gone = 1, finished_at = coalesce(finished_at, $1), phase = '', lease_until = NULL,
	deadline = NULL, cancel_requested = 0, dispatched_at = NULL, not_before = NULL, version = version + 1
`

// $1 now, $2 id, $3 the state and $4 the attempt that were seen.
const expireSQL = toTombstone + `WHERE id = $2 AND state = $3 AND attempt = $4`

// $1 id.
const purgeSQL = `DELETE FROM transcripts WHERE job_id = $1`

// Expire implements aviary.Store. Expiring once more changes nothing and returns the tombstone, so that whoever deletes blobs can come back
// after a crash.
func (s *sqlStore) Expire(ctx context.Context, id string, force bool) (aviary.Job, error) {
	const op = "store.expire"
	var was aviary.Job
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		err := s.hold(ctx, tx, id)
		if err != nil {
			return err
		}
		if was, err = jobIn(ctx, tx, op, id); err != nil {
			return err
		}
		if was.State == aviary.StateExpired {
			return nil
		}
		if !was.State.Final() && !force {
			return aviary.Errorf(aviary.CodeJobActive, op, "The job is %s; cancel it first, or delete it by force.", was.State)
		}
		return expire(ctx, tx, was, now)
	})
	if err != nil {
		return aviary.Job{}, err
	}
	return was, nil
}

// expire turns a job, as it was seen and is held, into its tombstone.
func expire(ctx context.Context, tx *txn, was aviary.Job, now time.Time) error {
	ok, err := changed(ctx, tx, expireSQL, stamp(now), was.ID, string(was.State), was.Attempt)
	if err != nil {
		return err
	}
	if !ok {
		return aviary.ErrStale
	}
	if was.State == aviary.StateRunning { // the state alone fences off the attempt: no write about it passes any more
		if err := endAttempt(ctx, tx, aviary.AttemptRef{JobID: was.ID, Attempt: was.Attempt}, now, aviary.OutcomeCanceled, nil); err != nil {
			return err
		}
	}
	_, err = tx.ExecContext(ctx, purgeSQL, was.ID)
	return err
}

const transcriptSQL = `SELECT j.state, t.body FROM jobs j LEFT JOIN transcripts t ON t.job_id = j.id WHERE j.id = $1`

// Transcript implements aviary.Store.
func (s *sqlStore) Transcript(ctx context.Context, jobID string) (aviary.Transcript, error) {
	const op = "store.transcript"
	var state aviary.State
	var t *aviary.Transcript
	err := s.look(ctx, op, func(ctx context.Context) error {
		t = nil
		err := s.read.QueryRowContext(ctx, transcriptSQL, jobID).Scan(&state, fromJSON{&t})
		if errors.Is(err, sql.ErrNoRows) {
			return notFound(op, jobID)
		}
		return err
	})
	switch {
	case err != nil:
		return aviary.Transcript{}, err
	case t != nil:
		return *t, nil
	case state == aviary.StateExpired:
		return aviary.Transcript{}, aviary.Errorf(aviary.CodeJobExpired, op, "The job has been deleted.")
	}
	return aviary.Transcript{}, aviary.Errorf(aviary.CodeTranscriptNotReady, op, "The job is %s; it has no transcript.", state)
}
