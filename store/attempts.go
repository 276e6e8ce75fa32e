package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
)

// $1 id, $2 generation, $3 worker, $4 device, $5 now, $6 end of the lease, $7 phase, $8 node, $9 end of the limit or NULL -> the job. A ticket is
// good while it is out, and once: the claim takes it in.
const claimSQL = `
UPDATE jobs SET state = 'running', attempt = attempt + 1, worker = $3, device = $4, started_at = $5, lease_until = $6, phase = $7,
	node = $8, deadline = $9, progress_us = 0, dispatched_at = NULL, version = version + 1
WHERE id = $1 AND generation = $2 AND state = 'queued' AND dispatched_at IS NOT NULL
RETURNING ` + jobColumns

// $1 id, $2 attempt, $3 worker, $4 device, $5 now.
const openAttemptSQL = `INSERT INTO attempts (job_id, attempt, worker, device, started_at) VALUES ($1, $2, $3, $4, $5)`

// StartAttempt implements aviary.Attempting.
func (s *sqlStore) StartAttempt(ctx context.Context, t aviary.Ticket, c aviary.Claim) (aviary.Job, error) {
	const op = "store.start_attempt"
	var job aviary.Job
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		var deadline time.Time
		if c.Limit > 0 {
			deadline = now.Add(c.Limit)
		}
		var err error
		job, err = scanJob(tx.QueryRowContext(ctx, claimSQL, t.JobID, t.Generation, c.Worker, c.Device, stamp(now), stamp(now.Add(c.Lease)),
			string(aviary.PhaseDecoding), c.Node, stamp(deadline)))
		if errors.Is(err, sql.ErrNoRows) {
			return missed(ctx, tx, op, t.JobID, aviary.ErrNotClaimable)
		}
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, openAttemptSQL, job.ID, job.Attempt, c.Worker, c.Device, stamp(now))
		return err
	})
	if err != nil {
		return aviary.Job{}, err
	}
	return job, nil
}

// $1 id, $2 attempt, $3 end of the lease, $4 phase (empty: as it is), $5 progress -> whether to stop.
const heartbeatSQL = `
UPDATE jobs SET lease_until = $3, progress_us = $5, phase = CASE WHEN $4 = '' THEN phase ELSE $4 END,
	version = version + CASE WHEN progress_us <> $5 OR ($4 <> '' AND phase <> $4) THEN 1 ELSE 0 END
WHERE id = $1 AND attempt = $2 AND state = 'running'
RETURNING cancel_requested`

// Heartbeat implements aviary.Attempting. A lease that has passed is renewed too, as long as the reaper has not been there.
func (s *sqlStore) Heartbeat(ctx context.Context, ref aviary.AttemptRef, b aviary.Beat) (cancel bool, err error) {
	const op = "store.heartbeat"
	err = s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		row := tx.QueryRowContext(ctx, heartbeatSQL, ref.JobID, ref.Attempt, stamp(now.Add(b.Lease)), string(b.Phase), micros(b.Progress))
		err := row.Scan(&cancel)
		if errors.Is(err, sql.ErrNoRows) {
			return missed(ctx, tx, op, ref.JobID, aviary.ErrStale)
		}
		return err
	})
	return cancel && err == nil, err
}

// current is the condition of every write that ends an attempt: $1 id, $2 attempt, $3 the time until which the lease must have run out.
// Workers, whose lease does not matter, give anyLease.
const (
	current        = ` WHERE id = $1 AND attempt = $2 AND state = 'running' AND lease_until <= $3`
	anyLease int64 = math.MaxInt64
)

// $4 now, $5 attention -> one row, or none if the attempt is not the current one.
const succeedSQL = `
UPDATE jobs SET state = 'succeeded', finished_at = $4, attention = $5, progress_us = audio_us, phase = '', lease_until = NULL, deadline = NULL,
	cancel_requested = 0, version = version + 1` + current

// $1 id, $2 attempt, $3 body, $4 now.
const insertTranscriptSQL = `INSERT INTO transcripts (job_id, attempt, body, created_at) VALUES ($1, $2, $3, $4)`

// $1 id, $2 attempt -> one row if it is this attempt's transcript that is recorded.
const recordedSQL = `SELECT 1 FROM transcripts WHERE job_id = $1 AND attempt = $2`

// FinishAttempt implements aviary.Attempting. It wins over a cancel that has been asked for meanwhile. The first transcript of an attempt stays.
func (s *sqlStore) FinishAttempt(ctx context.Context, ref aviary.AttemptRef, t aviary.Transcript) error {
	const op = "store.finish_attempt"
	body, err := toJSON(t)
	if err != nil {
		return aviary.WrapError(aviary.CodeEngineFailed, op, err, "The engine gave a result that is not one.")
	}
	attention, err := toJSON(t.Engine.Attention)
	if err != nil {
		return s.fail(op, err)
	}
	return s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		ok, err := changed(ctx, tx, succeedSQL, ref.JobID, ref.Attempt, anyLease, stamp(now), attention)
		if err != nil {
			return err
		}
		if !ok {
			var one int
			err := tx.QueryRowContext(ctx, recordedSQL, ref.JobID, ref.Attempt).Scan(&one)
			if errors.Is(err, sql.ErrNoRows) {
				return missed(ctx, tx, op, ref.JobID, aviary.ErrStale)
			}
			return err
		}
		if _, err := tx.ExecContext(ctx, insertTranscriptSQL, ref.JobID, ref.Attempt, body, stamp(now)); err != nil {
			return err
		}
		return endAttempt(ctx, tx, ref, now, aviary.OutcomeSucceeded, nil)
	})
}

// $1 id, $2 attempt -> how many workers the job has lost.
const lostSQL = `SELECT lost FROM jobs WHERE id = $1 AND attempt = $2 AND state = 'running'`

// FailAttempt implements aviary.Attempting. A job that was to be canceled is not queued again but canceled.
func (s *sqlStore) FailAttempt(ctx context.Context, ref aviary.AttemptRef, f aviary.Failure) (aviary.State, error) {
	const op = "store.fail_attempt"
	if f.Problem == nil {
		f.Problem = aviary.ProblemOf(&aviary.Error{Code: aviary.CodeInternal})
	}
	e := ending{ref: ref, leaseBy: anyLease, problem: f.Problem}
	retried, failed := aviary.OutcomeRetried, aviary.OutcomeFailed
	if f.Charge {
		e.fails = 1
	}
	if f.Lost {
		e.lost, retried, failed = 1, aviary.OutcomeLost, aviary.OutcomeLost
	}
	var state aviary.State
	err := s.end(ctx, op, ref, func(ctx context.Context, tx *txn, now time.Time) (_ aviary.State, err error) {
		e := e
		if f.Retry && f.Lost {
			var before int
			err := tx.QueryRowContext(ctx, lostSQL, ref.JobID, ref.Attempt).Scan(&before)
			if errors.Is(err, sql.ErrNoRows) {
				return "", nil
			}
			if err != nil {
				return "", err
			}
			e.quarantine(before)
		}
		state = ""
		if f.Retry {
			state, err = e.giveBack(ctx, tx, now, retried, max(f.Delay, 0))
		}
		if state == "" && err == nil {
			state, err = e.fail(ctx, tx, now, failed)
		}
		if f.Lost && state != "" && err == nil {
			err = countLost(ctx, tx, state)
		}
		return state, err
	})
	if err != nil {
		return "", err
	}
	return state, nil
}

// ReleaseAttempt implements aviary.Attempting. A job that was to be canceled is not queued again but canceled.
func (s *sqlStore) ReleaseAttempt(ctx context.Context, ref aviary.AttemptRef) error {
	const op = "store.release_attempt"
	e := ending{ref: ref, leaseBy: anyLease}
	return s.end(ctx, op, ref, func(ctx context.Context, tx *txn, now time.Time) (aviary.State, error) {
		return e.giveBack(ctx, tx, now, aviary.OutcomeReleased, 0)
	})
}

// CancelAttempt implements aviary.Attempting. It is refused as stale if nobody asked for a cancel.
func (s *sqlStore) CancelAttempt(ctx context.Context, ref aviary.AttemptRef) error {
	const op = "store.cancel_attempt"
	e := ending{ref: ref, leaseBy: anyLease}
	return s.end(ctx, op, ref, func(ctx context.Context, tx *txn, now time.Time) (aviary.State, error) {
		return e.cancel(ctx, tx, now, aviary.OutcomeCanceled)
	})
}

// end runs one way of ending an attempt in a transaction; an empty state says that the attempt is not the current one.
func (s *sqlStore) end(ctx context.Context, op string, ref aviary.AttemptRef,
	how func(ctx context.Context, tx *txn, now time.Time) (aviary.State, error),
) error {
	return s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		if err := s.hold(ctx, tx, ref.JobID); err != nil {
			return err
		}
		state, err := how(ctx, tx, now)
		if err == nil && state == "" {
			return missed(ctx, tx, op, ref.JobID, aviary.ErrStale)
		}
		return err
	})
}

// ending is the end of an attempt without a transcript, and what it adds to the job's counts. Each of its methods tries one transition: it
// returns the job's new state, or an empty one if the transition's condition does not hold and nothing was changed.
type ending struct {
	ref         aviary.AttemptRef
	leaseBy     int64 // the lease must have run out by then
	fails, lost int
	problem     *aviary.Problem // of the attempt, and of the job if it fails
	quarantined *aviary.Problem // of the job instead, if it fails for having lost too many workers
}

// $4 now, $5 problem, $6 and $7 added to fails and lost.
const cancelRunningSQL = `
UPDATE jobs SET state = 'canceled', finished_at = $4, problem = $5, fails = fails + $6, lost = lost + $7, phase = '', lease_until = NULL, deadline = NULL,
	cancel_requested = 0, version = version + 1` + current + ` AND cancel_requested = 1`

func (e ending) cancel(ctx context.Context, tx *txn, now time.Time, outcome aviary.Outcome) (aviary.State, error) {
	ok, err := changed(ctx, tx, cancelRunningSQL, e.ref.JobID, e.ref.Attempt, e.leaseBy, stamp(now), problemColumn(canceled), e.fails, e.lost)
	if !ok || err != nil {
		return "", err
	}
	return aviary.StateCanceled, endAttempt(ctx, tx, e.ref, now, outcome, e.problem)
}

// $4 not before, $5 and $6 added to fails and lost, $7 how many lost workers are too many. What is not charged is not held against
// max_attempts.
const requeueSQL = `
UPDATE jobs SET state = 'queued', not_before = $4, fails = fails + $5, lost = lost + $6, started_at = NULL, worker = '', device = '',
	node = '',
	progress_us = 0, phase = '', lease_until = NULL, deadline = NULL, version = version + 1` + current + `
	AND cancel_requested = 0 AND ($5 = 0 OR fails + $5 < max_attempts) AND ($6 = 0 OR lost + $6 < $7)`

// giveBack queues the job again, or cancels it if that was asked for.
func (e ending) giveBack(ctx context.Context, tx *txn, now time.Time, outcome aviary.Outcome, delay time.Duration) (aviary.State, error) {
	canceledAs := aviary.OutcomeCanceled
	if outcome == aviary.OutcomeLost {
		canceledAs = outcome
	}
	if state, err := e.cancel(ctx, tx, now, canceledAs); state != "" || err != nil {
		return state, err
	}
	var notBefore time.Time
	if delay > 0 {
		notBefore = now.Add(delay)
	}
	ok, err := changed(ctx, tx, requeueSQL, e.ref.JobID, e.ref.Attempt, e.leaseBy, stamp(notBefore), e.fails, e.lost, aviary.MaxLost)
	if !ok || err != nil {
		return "", err
	}
	return aviary.StateQueued, endAttempt(ctx, tx, e.ref, now, outcome, e.problem)
}

// $4 now, $5 problem, $6 and $7 added to fails and lost.
const failSQL = `
UPDATE jobs SET state = 'failed', finished_at = $4, problem = $5, fails = fails + $6, lost = lost + $7, phase = '', lease_until = NULL, deadline = NULL,
	cancel_requested = 0, version = version + 1` + current

func (e ending) fail(ctx context.Context, tx *txn, now time.Time, outcome aviary.Outcome) (aviary.State, error) {
	problem := e.problem
	if e.quarantined != nil {
		problem = e.quarantined
	}
	ok, err := changed(ctx, tx, failSQL, e.ref.JobID, e.ref.Attempt, e.leaseBy, stamp(now), problemColumn(problem), e.fails, e.lost)
	if !ok || err != nil {
		return "", err
	}
	return aviary.StateFailed, endAttempt(ctx, tx, e.ref, now, outcome, e.problem)
}

// $1 job, $2 attempt, $3 now, $4 outcome, $5 problem.
const endAttemptSQL = `UPDATE attempts SET ended_at = $3, outcome = $4, problem = $5 WHERE job_id = $1 AND attempt = $2 AND ended_at IS NULL`

// endAttempt writes the end of an attempt into its own row. It comes after the transition of the job, which only one can win, so an attempt
// that has ended already is a fault of the database: the transaction is given up.
func endAttempt(ctx context.Context, tx *txn, ref aviary.AttemptRef, now time.Time, outcome aviary.Outcome, p *aviary.Problem) error {
	ok, err := changed(ctx, tx, endAttemptSQL, ref.JobID, ref.Attempt, stamp(now), string(outcome), problemColumn(p))
	if err == nil && !ok {
		return fmt.Errorf("job %s is running attempt %d, which is not under way", ref.JobID, ref.Attempt)
	}
	return err
}

const attemptsSQL = `
SELECT attempt, worker, device, started_at, ended_at, outcome, problem FROM attempts WHERE job_id = $1 ORDER BY attempt`

// Attempts implements aviary.Store, oldest first.
func (s *sqlStore) Attempts(ctx context.Context, jobID string) ([]aviary.Attempt, error) {
	const op = "store.attempts"
	var list []aviary.Attempt
	err := s.view(ctx, op, func(ctx context.Context, tx *txn) error {
		var err error
		list, err = collect(ctx, tx, func(row scanner) (aviary.Attempt, error) {
			a := aviary.Attempt{AttemptRef: aviary.AttemptRef{JobID: jobID}}
			err := row.Scan(&a.Attempt, &a.Worker, &a.Device, fromStamp{&a.StartedAt}, fromStamp{&a.EndedAt}, &a.Outcome, fromJSON{&a.Problem})
			return a, err
		}, attemptsSQL, jobID)
		if err == nil && len(list) == 0 {
			return missed(ctx, tx, op, jobID, nil)
		}
		return err
	})
	return list, err
}
