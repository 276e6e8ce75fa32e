package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/aviary-asr/aviary"
)

// $1 now. A delay that has run out is removed, so that the rest of the dispatcher never steps over the delayed.
const ripenSQL = `
WITH ripe AS MATERIALIZED (
	SELECT seq FROM jobs INDEXED BY jobs_delayed WHERE state = 'queued' AND not_before <= $1 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET not_before = NULL WHERE seq IN (SELECT seq FROM ripe)`

// $1 now, $2 class, $3 limit -> id, generation and the order of each. What another transaction has locked is passed over, here and where else
// many rows are looked for: it is being handed over or canceled, or its process is frozen, and nobody should have to wait for that. The rows
// are picked once, before the update (MATERIALIZED): Postgres may otherwise pick anew for each row, and exceed the limit.
const dispatchSQL = `
WITH picked AS MATERIALIZED (
	SELECT seq FROM jobs INDEXED BY jobs_ready
	WHERE state = 'queued' AND dispatched_at IS NULL AND not_before IS NULL AND priority = $2
	ORDER BY created_at, seq LIMIT $3 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET generation = generation + 1, dispatched_at = $1 WHERE seq IN (SELECT seq FROM picked)
RETURNING id, generation, created_at, seq`

// Dispatch implements aviary.Dispatching.
func (s *sqlStore) Dispatch(ctx context.Context, class aviary.Priority, limit int) ([]aviary.Ticket, error) {
	const op = "store.dispatch"
	type ticket struct {
		aviary.Ticket
		created, seq int64
	}
	var list []ticket
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		if _, err := tx.ExecContext(ctx, ripenSQL, stamp(now)); err != nil {
			return err
		}
		var err error
		list, err = collect(ctx, tx, func(row scanner) (ticket, error) {
			t := ticket{Ticket: aviary.Ticket{Priority: class}}
			err := row.Scan(&t.JobID, &t.Generation, &t.created, &t.seq)
			return t, err
		}, dispatchSQL, stamp(now), string(class), max(limit, 0))
		return err
	})
	if err != nil {
		return nil, err
	}
	// RETURNING promises no order.
	slices.SortFunc(list, func(a, b ticket) int { return cmp.Or(cmp.Compare(a.created, b.created), cmp.Compare(a.seq, b.seq)) })
	tickets := make([]aviary.Ticket, len(list))
	for i, t := range list {
		tickets[i] = t.Ticket
	}
	return tickets, nil
}

// $1 id, $2 generation.
const undispatchSQL = `
UPDATE jobs SET dispatched_at = NULL WHERE id = $1 AND generation = $2 AND state = 'queued' AND dispatched_at IS NOT NULL`

// Undispatch implements aviary.Dispatching. The ticket is no longer good, even if it had reached the queue after all. One that is not out
// is no error.
func (s *sqlStore) Undispatch(ctx context.Context, t aviary.Ticket) error {
	const op = "store.undispatch"
	return s.update(ctx, op, func(ctx context.Context, tx *txn, _ time.Time) error {
		_, err := changed(ctx, tx, undispatchSQL, t.JobID, t.Generation)
		return err
	})
}

// $1 class. The index holds no more rows than tickets are out, which the dispatcher keeps few.
const dispatchedSQL = `
SELECT count(*) FROM jobs INDEXED BY jobs_dispatched WHERE state = 'queued' AND dispatched_at IS NOT NULL AND priority = $1`

// Dispatched implements aviary.Dispatching.
func (s *sqlStore) Dispatched(ctx context.Context, class aviary.Priority) (int, error) {
	const op = "store.dispatched"
	var n int
	err := s.look(ctx, op, func(ctx context.Context) error {
		return s.read.QueryRowContext(ctx, dispatchedSQL, string(class)).Scan(&n)
	})
	return n, err
}

// $1 the time before which they were handed over, $2 limit -> tickets, the oldest first.
const strandedSQL = `
SELECT id, generation, priority FROM jobs INDEXED BY jobs_dispatched
WHERE state = 'queued' AND dispatched_at <= $1 ORDER BY dispatched_at LIMIT $2`

// Stranded implements aviary.Dispatching.
func (s *sqlStore) Stranded(ctx context.Context, age time.Duration, limit int) ([]aviary.Ticket, error) {
	const op = "store.stranded"
	var list []aviary.Ticket
	err := s.look(ctx, op, func(ctx context.Context) error {
		now, err := s.now(ctx, s.read)
		if err != nil {
			return err
		}
		list, err = collect(ctx, s.read, func(row scanner) (aviary.Ticket, error) {
			var t aviary.Ticket
			err := row.Scan(&t.JobID, &t.Generation, &t.Priority)
			return t, err
		}, strandedSQL, stamp(now.Add(-age)), max(limit, 0))
		return err
	})
	return list, err
}

const undispatchAllSQL = `
UPDATE jobs INDEXED BY jobs_dispatched SET dispatched_at = NULL WHERE state = 'queued' AND dispatched_at IS NOT NULL`

// UndispatchAll implements aviary.Dispatching.
func (s *sqlStore) UndispatchAll(ctx context.Context) (int, error) {
	const op = "store.undispatch_all"
	var n int64
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, _ time.Time) error {
		res, err := tx.ExecContext(ctx, undispatchAllSQL)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}

// $1 now, $2 limit -> attempts without a sign of life, and how many workers the job had lost before.
const lapsedSQL = `
SELECT id, attempt, lost FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND lease_until <= $1 ORDER BY lease_until LIMIT $2 FOR UPDATE SKIP LOCKED`

// lostDelay is the wait after the first lost worker; it doubles with each.
const lostDelay = 5 * time.Second

// ReapLost implements aviary.Dispatching.
func (s *sqlStore) ReapLost(ctx context.Context, limit int) ([]aviary.Reaped, error) {
	const op = "store.reap_lost"
	var reaped []aviary.Reaped
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		type lapsed struct {
			ref  aviary.AttemptRef
			lost int
		}
		list, err := collect(ctx, tx, func(row scanner) (lapsed, error) {
			var l lapsed
			err := row.Scan(&l.ref.JobID, &l.ref.Attempt, &l.lost)
			return l, err
		}, lapsedSQL, stamp(now), max(limit, 0))
		if err != nil {
			return err
		}
		reaped = nil
		for _, l := range list {
			state, err := reap(ctx, tx, now, l.ref, l.lost)
			if err != nil {
				return err
			}
			if state != "" {
				reaped = append(reaped, aviary.Reaped{AttemptRef: l.ref, State: state})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return reaped, nil
}

// reap ends one lost attempt. The conditions of its writes hold the attempt and the lease once more: a job that moved on since it was listed
// is left alone.
func reap(ctx context.Context, tx *txn, now time.Time, ref aviary.AttemptRef, lostBefore int) (aviary.State, error) {
	e := ending{ref: ref, leaseBy: now.UnixMicro(), lost: 1, problem: workerLost}
	delay := lostDelay << min(lostBefore, aviary.MaxLost)
	if state, err := e.giveBack(ctx, tx, now, aviary.OutcomeLost, delay); state != "" || err != nil {
		return state, err
	}
	return e.fail(ctx, tx, now, aviary.OutcomeLost)
}

var workerLost = aviary.ProblemOf(&aviary.Error{Code: aviary.CodeWorkerLost, Detail: "The worker stopped giving signs of life."})

// collect reads all rows of a query.
func collect[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	var list []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, rows.Err()
}
