package store

import (
	"context"
	"fmt"
	"time"

	"github.com/aviary-asr/aviary"
)

// What is listed of attempts that will be ended as lost.
const reapedColumns = `id, attempt, worker, device, lost`

// $1 the time at which leases have run out, $2 limit -> attempts without a sign of life.
const lapsedSQL = `
SELECT ` + reapedColumns + ` FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND lease_until <= $1 ORDER BY lease_until LIMIT $2 FOR UPDATE SKIP LOCKED`

// $1 the time before which they should have ended, $2 limit -> attempts that have not.
const overdueSQL = `
SELECT ` + reapedColumns + ` FROM jobs INDEXED BY jobs_overdue
WHERE state = 'running' AND deadline <= $1 ORDER BY deadline LIMIT $2 FOR UPDATE SKIP LOCKED`

// $1 node, $2 device, $3 the worker that has it now -> attempts of others on it. All that run are looked at: there are as many as devices.
const heldSQL = `
SELECT ` + reapedColumns + ` FROM jobs INDEXED BY jobs_leased
WHERE state = 'running' AND node = $1 AND device = $2 AND worker <> $3 ORDER BY lease_until FOR UPDATE SKIP LOCKED`

// loss is why attempts are ended as lost.
type loss struct {
	code   aviary.Code
	detail string
}

var (
	lossOfLease  = loss{aviary.CodeWorkerLost, "The worker stopped giving signs of life."}
	lossOfTime   = loss{aviary.CodeAttemptTimeout, "The attempt ran beyond its limit, and its worker did not end it."}
	lossOfDevice = loss{aviary.CodeWorkerLost, "The worker was gone when another one took over its device."}
)

// ReapLost implements aviary.Dispatching.
func (s *sqlStore) ReapLost(ctx context.Context, limit int) ([]aviary.Reaped, error) {
	const op = "store.reap_lost"
	return s.reapAll(ctx, op, lossOfLease, func(now time.Time) (int64, string, []any) {
		return now.UnixMicro(), lapsedSQL, []any{stamp(now), max(limit, 0)}
	})
}

// ReapOverdue implements aviary.Dispatching.
func (s *sqlStore) ReapOverdue(ctx context.Context, grace time.Duration, limit int) ([]aviary.Reaped, error) {
	const op = "store.reap_overdue"
	return s.reapAll(ctx, op, lossOfTime, func(now time.Time) (int64, string, []any) {
		return anyLease, overdueSQL, []any{stamp(now.Add(-grace)), max(limit, 0)}
	})
}

// TakeOver implements aviary.Attempting. An attempt that somebody else is ending at the moment is left to him.
func (s *sqlStore) TakeOver(ctx context.Context, c aviary.Claim) ([]aviary.Reaped, error) {
	const op = "store.take_over"
	if c.Node == "" { // as of workers of older versions: who they are, nobody knows
		return nil, nil
	}
	return s.reapAll(ctx, op, lossOfDevice, func(time.Time) (int64, string, []any) {
		return anyLease, heldSQL, []any{c.Node, c.Device, c.Worker}
	})
}

// reapAll ends the attempts that a query lists, in its transaction.
func (s *sqlStore) reapAll(ctx context.Context, op string, why loss, which func(now time.Time) (leaseBy int64, query string, args []any),
) ([]aviary.Reaped, error) {
	type listed struct {
		aviary.Reaped
		lost int
	}
	var reaped []aviary.Reaped
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		reaped = nil
		var became []aviary.State
		leaseBy, query, args := which(now)
		list, err := collect(ctx, tx, func(row scanner) (listed, error) {
			l := listed{Reaped: aviary.Reaped{Code: why.code}}
			err := row.Scan(&l.JobID, &l.Attempt, &l.Worker, &l.Device, &l.lost)
			return l, err
		}, query, args...)
		if err != nil {
			return err
		}
		for _, l := range list {
			if l.State, err = reap(ctx, tx, now, l.AttemptRef, leaseBy, l.lost, why); err != nil {
				return err
			}
			if l.State != "" {
				reaped, became = append(reaped, l.Reaped), append(became, l.State)
			}
		}
		return countLost(ctx, tx, became...)
	})
	if err != nil {
		return nil, err
	}
	return reaped, nil
}

// reap ends one lost attempt. The conditions of its writes hold the attempt and the lease once more: a job that moved on since it was listed
// is left alone.
func reap(ctx context.Context, tx *txn, now time.Time, ref aviary.AttemptRef, leaseBy int64, lostBefore int, why loss) (aviary.State, error) {
	e := ending{ref: ref, leaseBy: leaseBy, lost: 1, problem: aviary.ProblemOf(&aviary.Error{Code: why.code, Detail: why.detail})}
	e.quarantine(lostBefore)
	if state, err := e.giveBack(ctx, tx, now, aviary.OutcomeLost, aviary.LossDelay(lostBefore)); state != "" || err != nil {
		return state, err
	}
	return e.fail(ctx, tx, now, aviary.OutcomeLost)
}

// quarantine prepares what a job says that has lost too many workers with this one. Otherwise it does nothing.
func (e *ending) quarantine(lostBefore int) {
	lost := lostBefore + e.lost
	if lost < aviary.MaxLost {
		return
	}
	p := *e.problem
	p.Detail = fmt.Sprintf("The job is quarantined: %d workers were lost with it. Its audio is kept, so that it can be looked into, or retried once "+
		"the cause is known.", lost)
	if e.problem.Detail != "" {
		p.Detail += " The last time: " + e.problem.Detail
	}
	e.quarantined = &p
}

// $1 attempts, $2 jobs. One shard is written that nobody else is writing, if there is one.
const countLostSQL = `
UPDATE processed SET lost = lost + $1, quarantined = quarantined + $2
WHERE shard = coalesce((SELECT shard FROM processed ORDER BY shard LIMIT 1 FOR UPDATE SKIP LOCKED), 0)`

// countLost counts lost attempts, for ever, by what became of their jobs. It comes last in a transaction, as all that counts what is processed: the counters
// of jobs come first everywhere.
func countLost(ctx context.Context, tx *txn, became ...aviary.State) error {
	if len(became) == 0 {
		return nil
	}
	quarantined := 0
	for _, state := range became {
		if state == aviary.StateFailed {
			quarantined++
		}
	}
	_, err := tx.ExecContext(ctx, countLostSQL, len(became), quarantined)
	return err
}
