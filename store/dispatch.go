package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// readySQL is what jobs_ready holds: jobs that can be handed over now. $1 class.
const readySQL = `state = 'queued' AND dispatched_at IS NULL AND not_before IS NULL AND priority = $1`

// tenantsSQL jumps along jobs_ready from tenant to tenant, one entry for each, and ends with a NULL. $1 class.
const tenantsSQL = `
WITH RECURSIVE tenants (tenant) AS (
	SELECT min(tenant) FROM jobs INDEXED BY jobs_ready WHERE ` + readySQL + `
	UNION ALL
	SELECT (SELECT min(tenant) FROM jobs INDEXED BY jobs_ready WHERE tenant > t.tenant AND ` + readySQL + `)
	FROM tenants AS t WHERE t.tenant IS NOT NULL)`

// $1 now -> one row if some delay has run out.
const ripeSQL = `SELECT 1 FROM jobs INDEXED BY jobs_delayed WHERE state = 'queued' AND not_before <= $1 LIMIT 1`

// $1 now. A delay that has run out is removed, so that the rest of the dispatcher never steps over the delayed. What another transaction has
// locked is passed over, here and where else many rows are looked for: it is being handed over or canceled, or its process is frozen, and nobody
// should have to wait for that. The rows are picked once, before the update (MATERIALIZED): Postgres may otherwise pick anew for each row.
const ripenSQL = `
WITH ripe AS MATERIALIZED (
	SELECT seq FROM jobs INDEXED BY jobs_delayed WHERE state = 'queued' AND not_before <= $1 FOR UPDATE SKIP LOCKED)
UPDATE jobs SET not_before = NULL WHERE seq IN (SELECT seq FROM ripe)`

// Waiting implements aviary.Dispatching, in the order of tenants' names. It writes only when a delay has run out.
func (s *sqlStore) Waiting(ctx context.Context, class aviary.Priority, perTenant int) ([]aviary.Candidate, error) {
	const op = "store.waiting"
	ripe := false
	err := s.look(ctx, op, func(ctx context.Context) error {
		now, err := s.now(ctx, s.read)
		if err != nil {
			return err
		}
		var one int
		err = s.read.QueryRowContext(ctx, ripeSQL, stamp(now)).Scan(&one)
		ripe = err == nil
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil && ripe {
		err = s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
			_, err := tx.ExecContext(ctx, ripenSQL, stamp(now))
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	var list []aviary.Candidate
	err = s.look(ctx, op, func(ctx context.Context) (err error) {
		list, err = collect(ctx, s.read, func(row scanner) (aviary.Candidate, error) {
			var c aviary.Candidate
			err := row.Scan(&c.JobID, &c.Tenant, fromMicros{&c.Audio})
			return c, err
		}, s.candidatesSQL, string(class), max(perTenant, 0))
		return err
	})
	return list, err
}

// mostPerStatement is how many ids one statement names. More take several.
const mostPerStatement = 100

// parameters are $from, $from+1 and so on: n of them, in a list.
func parameters(from, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("$%d", from+i)
	}
	return strings.Join(list, ", ")
}

// anys makes arguments of strings.
func anys(list []string) []any {
	args := make([]any, len(list))
	for i, v := range list {
		args[i] = v
	}
	return args
}

// dispatchSQL is the statement for n ids: $1 now, $2 and on the ids -> id, generation and class of each that has been handed over. IS TRUE keeps
// SQLite from going through all that wait, by jobs_state, instead of the ids.
func dispatchSQL(n int) string {
	return `
WITH picked AS MATERIALIZED (
	SELECT seq FROM jobs WHERE id IN (` + parameters(2, n) + `)
		AND (state = 'queued') IS TRUE AND dispatched_at IS NULL AND (not_before IS NULL OR not_before <= $1) FOR UPDATE SKIP LOCKED)
UPDATE jobs SET generation = generation + 1, dispatched_at = $1, not_before = NULL WHERE seq IN (SELECT seq FROM picked)
RETURNING id, generation, priority`
}

// Dispatch implements aviary.Dispatching, in one transaction.
func (s *sqlStore) Dispatch(ctx context.Context, ids []string) ([]aviary.Ticket, error) {
	const op = "store.dispatch"
	if len(ids) == 0 {
		return nil, nil
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !storable(id) })
	out := map[string]aviary.Ticket{}
	err := s.update(ctx, op, func(ctx context.Context, tx *txn, now time.Time) error {
		clear(out)
		for page := range slices.Chunk(ids, mostPerStatement) {
			list, err := collect(ctx, tx, scanTicket, dispatchSQL(len(page)), append([]any{stamp(now)}, anys(page)...)...)
			if err != nil {
				return err
			}
			for _, t := range list {
				out[t.JobID] = t
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var tickets []aviary.Ticket
	for _, id := range ids { // RETURNING promises no order
		if t, ok := out[id]; ok {
			tickets = append(tickets, t)
			delete(out, id)
		}
	}
	return tickets, nil
}

func scanTicket(row scanner) (aviary.Ticket, error) {
	var t aviary.Ticket
	err := row.Scan(&t.JobID, &t.Generation, &t.Priority)
	return t, err
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
		list, err = collect(ctx, s.read, scanTicket, strandedSQL, stamp(now.Add(-age)), max(limit, 0))
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
