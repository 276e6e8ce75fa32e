package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/aviary-asr/aviary"
)

// dialect is what differs between databases, apart from how connections are opened. The statements themselves are SQL that SQLite and
// Postgres both understand, with $1 for arguments, but for two clauses, of which each database knows one: INDEXED BY and FOR UPDATE SKIP LOCKED.
// Statements carry both, and adapt makes of them what the database understands.
type dialect struct {
	folder   string // in migrations
	goose    goose.Dialect
	classify func(op string, err error) error // gives a driver's error a code
	adapt    func(query string) string

	candidatesSQL string // $1 class, $2 how many of each tenant: see Waiting

	// lockSchema keeps other processes from migrating until unlock. Nil where the transactions of the migrations do so by themselves.
	lockSchema func(ctx context.Context, db *sql.DB) (unlock func(), err error)

	// again says whether a transaction failed for no fault of its own and may pass when it is tried again. committing: at its commit, where a
	// failed connection leaves it open whether it did. Nil is never.
	again func(err error, committing bool) remedy

	// SQLite lets one transaction write at a time. Where several do, the rest of this is what they need; it is empty for SQLite.

	clockSQL    string        // reads the time, when the store has no clock of its own
	holdSQL     string        // $1 id: nobody else writes the job until the transaction ends
	accepting   *acceptSQL    // how accepts keep within the limits of all
	acceptingOf *acceptSQL    // $1 tenant: how they keep within the limits of their tenant
	snapshot    sql.TxOptions // of a transaction whose reads have to fit together
	longestCall time.Duration // a call that takes longer is given up; zero is no limit
}

// remedy is what may help a transaction that has failed.
type remedy int

const (
	remedyNone      remedy = iota
	remedyWait             // another try after a moment
	remedyReconnect        // another connection: this one is broken, as all of the pool may be
)

// acceptSQL are statements that lock limits until the transaction ends.
type acceptSQL struct {
	beside string // others that do the same; reads what waitingSQL or tenantOpenSQL does
	alone  string
}

// sqlStore is aviary.Store on a SQL database.
type sqlStore struct {
	dialect
	read, write *pool
	clock       func() time.Time      // nil for that of the database
	intact      func(op string) error // fails while the files of the database are not those that were opened; nil where there is nothing to check
}

var _ aviary.Store = (*sqlStore)(nil)

// writing and reading are the statements that run often enough to be prepared. Pages of lists are put together anew each time.
var (
	writing = []string{insertJobSQL, waitingSQL, tenantOpenSQL, requestTakenSQL, jobSQL, cancelQueuedSQL, requestCancelSQL, retrySQL, expireSQL, purgeSQL, existsSQL,
		leadSQL, resignSQL, ripenSQL, undispatchSQL, undispatchAllSQL, lapsedSQL, overdueSQL, heldSQL, claimSQL, openAttemptSQL, heartbeatSQL,
		succeedSQL, recordedSQL, insertTranscriptSQL, cancelRunningSQL, requeueSQL, lostSQL, failSQL, endAttemptSQL, oldSQL, dropAudioSQL, buryingSQL}
	reading = []string{jobSQL, requestedSQL, tenantOpenSQL, ripeSQL, processedSQL, existsSQL, transcriptSQL, attemptsSQL, positionSQL, countersSQL, oldestSQL, placeSQL, headSQL, tailSQL,
		dispatchedSQL, strandedSQL}
)

// Close waits for what is under way. The last to close a file also merges the write-ahead log into it.
func (s *sqlStore) Close() error { return errors.Join(s.read.Close(), s.write.Close()) }

// update runs change in one transaction and commits it if change returns nil. It may run change several times, each time in a new transaction.
// now is a time at which the transaction had begun. On SQLite that is with the write lock held, so that rows carry times in the order of their
// commits; on Postgres two transactions at the same time may commit in the other order.
func (s *sqlStore) update(ctx context.Context, op string, change func(ctx context.Context, tx *txn, now time.Time) error) error {
	return s.try(ctx, op, func(ctx context.Context) (committing bool, err error) {
		tx, err := s.write.begin(ctx, nil)
		if err != nil {
			return false, err
		}
		defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
		now, err := s.now(ctx, tx)
		if err == nil {
			err = change(ctx, tx, now)
		}
		if err == nil {
			err = s.check(op) // as late as can be: what is committed to a deleted file is lost
		}
		if err != nil {
			return false, err
		}
		return true, tx.Commit()
	})
}

// view runs look on one snapshot of the database. It may run look several times.
func (s *sqlStore) view(ctx context.Context, op string, look func(ctx context.Context, tx *txn) error) error {
	return s.try(ctx, op, func(ctx context.Context) (committing bool, err error) {
		tx, err := s.read.begin(ctx, &s.snapshot)
		if err != nil {
			return false, err
		}
		defer tx.Rollback() //nolint:errcheck // it only read
		return false, look(ctx, tx)
	})
}

// look runs one query, or several that need not fit together. It may do so several times.
func (s *sqlStore) look(ctx context.Context, op string, query func(ctx context.Context) error) error {
	return s.try(ctx, op, func(ctx context.Context) (committing bool, err error) { return false, query(ctx) })
}

// mostTries is how often a transaction is tried that the database gives up for reasons of its own. Broken connections do not count, as long as
// they can be those that were in the pool.
const mostTries = 4

// try runs do until it passes, or fails in a way that another try would not mend.
func (s *sqlStore) try(ctx context.Context, op string, do func(ctx context.Context) (committing bool, err error)) error {
	caller := ctx
	if s.longestCall > 0 {
		limited, cancel := context.WithTimeout(ctx, s.longestCall)
		defer cancel()
		ctx = limited
	}
	pooled := s.write.Stats().OpenConnections + s.read.Stats().OpenConnections
	for n := 1; ; {
		if err := s.check(op); err != nil { // also reads: a new connection would open what lies there now
			return err
		}
		committing, err := do(ctx)
		err = s.endOfTime(caller, ctx, op, committing, err)
		if committing && (errors.Is(err, context.DeadlineExceeded) || err != nil && s.again != nil && s.again(err, true) == remedyNone) {
			return s.doubt(op, err)
		}
		if err == nil || s.again == nil || ctx.Err() != nil && !committing {
			return s.fail(op, err)
		}
		switch cure := s.again(err, committing); {
		case cure == remedyReconnect && pooled > 0:
			pooled--
			continue
		case cure == remedyNone || n == mostTries:
			return s.fail(op, err)
		}
		n++
		pause := time.Duration(1+rand.IntN(10<<n)) * time.Millisecond // at random: those that met should not meet again
		select {
		case <-ctx.Done():
			return s.fail(op, errors.Join(ctx.Err(), err))
		case <-time.After(pause):
		}
	}
}

func (s *sqlStore) check(op string) error {
	if s.intact == nil {
		return nil
	}
	return s.intact(op)
}

// endOfTime tells the end of a call's time from other failures. database/sql rolls back when a context ends, and then says of the next statement that there is
// no transaction. Where not the caller's time is over but ours, that of the call or that of a new connection, the database has not answered: it did nothing,
// unless it was committing.
func (s *sqlStore) endOfTime(caller, ctx context.Context, op string, committing bool, err error) error {
	if errors.Is(err, sql.ErrTxDone) && ctx.Err() != nil {
		err = errors.Join(ctx.Err(), err)
	}
	if committing {
		return err
	}
	return aviary.OutOfTime(caller, op, err)
}

// now is the time as the database keeps it: of the clock that the store was given, or of the database. The hosts of several stores on one
// database need not agree on the time.
func (s *sqlStore) now(ctx context.Context, q querier) (time.Time, error) {
	if s.clock != nil {
		return s.clock().UTC().Truncate(time.Microsecond), nil
	}
	var now time.Time
	err := q.QueryRowContext(ctx, s.clockSQL).Scan(fromStamp{&now})
	return now, err
}

// hold keeps others from writing a job until the transaction ends. What takes more than one statement to read and change a job has to hold
// it: otherwise the job could change between them, and each could find that it is about something else. The next statement sees the job as it is then.
func (s *sqlStore) hold(ctx context.Context, tx *txn, id string) error {
	if s.holdSQL == "" {
		return nil
	}
	_, err := tx.ExecContext(ctx, s.holdSQL, id)
	return err
}

// doubt is fail for a commit. An answer that was lost leaves open what became of it, and must not look like one that says that nothing was changed, nor
// like a call whose time was over before it came to its commit.
func (s *sqlStore) doubt(op string, err error) error {
	failed := s.fail(op, err)
	if aviary.CodeOf(failed) != aviary.CodeStoreUnavailable && !errors.Is(failed, context.DeadlineExceeded) {
		return failed
	}
	return aviary.WrapError(aviary.CodeInternal, op, failed, "The store did not say whether this was done.")
}

// fail names the operation and, where the database said why, the kind of failure.
func (s *sqlStore) fail(op string, err error) error {
	var known *aviary.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return err
	case errors.Is(err, aviary.ErrStale), errors.Is(err, aviary.ErrNotClaimable), errors.Is(err, aviary.ErrRequestKeyTaken), errors.As(err, new(crowded)),
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
