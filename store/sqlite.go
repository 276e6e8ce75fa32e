package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/aviary-asr/aviary"
)

var sqliteDialect = dialect{
	folder: "sqlite", goose: goose.DialectSQLite3, classify: classifySQLite,
	adapt:    func(query string) string { return strings.ReplaceAll(query, " FOR UPDATE SKIP LOCKED", "") },
	snapshot: sql.TxOptions{ReadOnly: true}, // every transaction reads one
	candidatesSQL: tenantsSQL + `
SELECT j.id, j.tenant, j.audio_us FROM tenants AS t JOIN jobs AS j ON j.seq IN (
	SELECT seq FROM jobs INDEXED BY jobs_ready WHERE tenant = t.tenant AND ` + readySQL + `
	ORDER BY created_at, seq LIMIT $2)
ORDER BY j.tenant, j.created_at, j.seq`,
}

// sqliteReaders is how many reads may run beside the one write. In WAL mode neither waits for the other.
const sqliteReaders = 4

// openSQLite opens one connection for writes, so that goroutines of this process queue for it in Go and other processes are waited for in
// SQLite, and a small pool of connections that can only read.
func openSQLite(ctx context.Context, rest string, o Options) (aviary.Store, error) {
	path, err := databasePath(rest)
	if err != nil {
		return nil, err
	}
	writer, _, err := openWriter(ctx, path, o)
	if err != nil {
		return nil, err
	}
	reader, err := sql.Open("sqlite", sqliteDSN(path, o, "_query_only", "1", "mode", "rw")) // rw makes no new file
	if err != nil {
		return nil, errors.Join(err, writer.Close())
	}
	reader.SetMaxOpenConns(sqliteReaders)
	reader.SetMaxIdleConns(sqliteReaders)
	write, err1 := newPool(ctx, writer, sqliteDialect.adapt, writing...)
	read, err2 := newPool(ctx, reader, sqliteDialect.adapt, append(reading, sqliteDialect.candidatesSQL)...)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database %s: %w", path, explainSQLite(err)), reader.Close(), writer.Close())
	}
	clock := o.Clock
	if clock == nil {
		clock = time.Now
	}
	list, err := filesOf(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database %s: %w", path, err), reader.Close(), writer.Close())
	}
	intact := func(op string) error { return unmoved(op, list) }
	return &sqlStore{dialect: sqliteDialect, read: read, write: write, clock: clock, intact: intact}, nil
}

func migrateSQLite(ctx context.Context, rest string, o Options) (Migration, error) {
	path, err := databasePath(rest)
	if err != nil {
		return Migration{}, err
	}
	db, m, err := openWriter(ctx, path, o)
	if err != nil {
		return m, err
	}
	return m, db.Close()
}

// openWriter opens the connection that writes and migrates through it.
func openWriter(ctx context.Context, path string, o Options) (*sql.DB, Migration, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, Migration{}, fmt.Errorf("make the folder of the database: %w", err)
	}
	sync := "FULL" // NORMAL may lose the last commits when the power fails, and those are accepted jobs
	if o.volatile {
		sync = "OFF"
	}
	// BEGIN IMMEDIATE takes the write lock at once: a transaction that read first and then wants to write could only fail. secure_delete
	// overwrites what is deleted, so that a purged transcript is gone.
	dsn := sqliteDSN(path, o, "_txlock", "immediate", "_journal_mode", "WAL", "_synchronous", sync, "_foreign_keys", "1",
		"_pragma", "secure_delete(1)")
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, Migration{}, err
	}
	db.SetMaxOpenConns(1)
	m, err := migrate(ctx, db, sqliteDialect)
	for deadline := time.Now().Add(o.LockWait); isBusy(err) && time.Now().Before(deadline) && ctx.Err() == nil; {
		// Processes that make the file at once meet where SQLite does not wait by itself: at the switch to a write-ahead log.
		time.Sleep(5 * time.Millisecond)
		m, err = migrate(ctx, db, sqliteDialect)
	}
	if err != nil {
		return nil, m, errors.Join(fmt.Errorf("open the database %s: %w", path, explainSQLite(err)), db.Close())
	}
	return db, m, nil
}

func databasePath(rest string) (string, error) {
	path, err := localPath(rest)
	if err != nil {
		return "", fmt.Errorf("database URL: %w", err)
	}
	if strings.HasPrefix(path, ":") {
		return "", fmt.Errorf("database URL: %q is not a file: jobs must outlive the process", path)
	}
	return filepath.Abs(path)
}

// sqliteDSN adds pairs of a driver's parameter and its value to those that every connection has.
func sqliteDSN(path string, o Options, pairs ...string) string {
	q := url.Values{}
	q.Set("_busy_timeout", strconv.FormatInt(max(o.LockWait.Milliseconds(), 1), 10))
	q.Set("_dqs", "0")      // a misspelled column is an error, not a string
	q.Set("_error_rc", "1") // errors describe themselves, not an older one
	for i := 0; i < len(pairs); i += 2 {
		q.Add(pairs[i], pairs[i+1])
	}
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive letter
	}
	return (&url.URL{Scheme: "file", Path: slashed, RawQuery: q.Encode()}).String()
}

// classifySQLite gives an error of the driver a code. What it says to users shows nothing of the inside; the cause is kept for the log.
func classifySQLite(op string, err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return aviary.WrapError(aviary.CodeInternal, op, err, "The store failed.")
	}
	if e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE && strings.Contains(e.Error(), "jobs.id") {
		return taken(op, err)
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return aviary.WrapError(aviary.CodeStorageFull, op, err, "The server has no room for this.")
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return aviary.WrapError(aviary.CodeStoreUnavailable, op, err, "The store is busy.")
	}
	if e.Code() == sqlite3.SQLITE_IOERR_SHMSIZE { // the shared memory file of the WAL could not grow
		return aviary.WrapError(aviary.CodeStorageFull, op, err, "The server has no room for this.")
	}
	return aviary.WrapError(aviary.CodeInternal, op, explainSQLite(err), "The store failed.")
}

func isBusy(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == sqlite3.SQLITE_BUSY
}

// taken refuses a second job of the same id.
func taken(op string, err error) error {
	return aviary.WrapError(aviary.CodeStateConflict, op, err, "There is a job of this id already.")
}

// explainSQLite says in front of an error what an operator should know about it.
func explainSQLite(err error) error {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("the file is not an SQLite database, or its start is damaged: %w", err)
	case sqlite3.SQLITE_CORRUPT:
		return fmt.Errorf("the file is damaged; restore it from a backup, or recover it with the sqlite3 tool: %w", err)
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN:
		return fmt.Errorf("the file or its folder cannot be written: %w", err)
	case sqlite3.SQLITE_BUSY:
		return fmt.Errorf("another process kept the file locked: %w", err)
	}
	return err
}
