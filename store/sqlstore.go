package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/aviary-asr/aviary"
)

// dialect is what differs between databases, apart from how connections are opened. The statements themselves are SQL that SQLite and
// Postgres both understand, with $1 for arguments, but for the clause INDEXED BY.
type dialect struct {
	folder   string // in migrations
	goose    goose.Dialect
	classify func(op string, err error) error // gives a driver's error a code
}

// sqlStore is aviary.Store on a SQL database.
type sqlStore struct {
	dialect
	read, write *pool
	clock       func() time.Time
}

var _ aviary.Store = (*sqlStore)(nil)

// writing and reading are the statements that run often enough to be prepared. Pages of lists are put together anew each time.
var (
	writing = []string{insertJobSQL, waitingSQL, jobSQL, cancelQueuedSQL, requestCancelSQL, retrySQL, expireSQL, purgeSQL, existsSQL,
		ripenSQL, dispatchSQL, undispatchSQL, lapsedSQL, claimSQL, openAttemptSQL, heartbeatSQL, succeedSQL, insertTranscriptSQL,
		cancelRunningSQL, requeueSQL, failSQL, endAttemptSQL}
	reading = []string{jobSQL, existsSQL, transcriptSQL, attemptsSQL, positionSQL, countersSQL, oldestSQL, placeSQL, headSQL, tailSQL,
		dispatchedSQL, strandedSQL}
)

// Close waits for what is under way. The last to close a file also merges the write-ahead log into it.
func (s *sqlStore) Close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// update runs change in one transaction and commits it if change returns nil. now is read with the write lock held, so that rows carry
// times in the order of their commits.
func (s *sqlStore) update(ctx context.Context, op string, change func(tx *txn, now time.Time) error) error {
	tx, err := s.write.begin(ctx, nil)
	if err != nil {
		return s.fail(op, err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	if err := change(tx, s.now()); err != nil {
		return s.fail(op, err)
	}
	return s.fail(op, tx.Commit())
}

// view runs look on one snapshot of the database.
func (s *sqlStore) view(ctx context.Context, op string, look func(tx *txn) error) error {
	tx, err := s.read.begin(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return s.fail(op, err)
	}
	defer tx.Rollback() //nolint:errcheck // it only read
	return s.fail(op, look(tx))
}

// now is the clock's time as the database keeps it.
func (s *sqlStore) now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// fail names the operation and, where the database said why, the kind of failure.
func (s *sqlStore) fail(op string, err error) error {
	var known *aviary.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, aviary.ErrStale), errors.Is(err, aviary.ErrNotClaimable),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", op, err)
	}
	return s.classify(op, err)
}

const existsSQL = `SELECT 1 FROM jobs WHERE id = $1`

// missed explains why a conditional write found nothing to change: there is no such job, or else what the caller says.
func missed(ctx context.Context, q querier, op, id string, otherwise error) error {
	var one int
	err := q.QueryRowContext(ctx, existsSQL, id).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return notFound(op, id)
	}
	if err != nil {
		return err
	}
	return otherwise
}

func notFound(op, id string) error {
	return aviary.Errorf(aviary.CodeNotFound, op, "There is no job %q.", id)
}

// changed runs a conditional write and says whether it found its row.
func changed(ctx context.Context, tx *txn, query string, args ...any) (bool, error) {
	res, err := tx.ExecContext(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n > 0, err
}
