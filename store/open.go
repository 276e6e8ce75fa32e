package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// ErrNewerSchema refuses a database that a newer version of this program has migrated.
var ErrNewerSchema = errors.New("the database was written by a newer version of this program")

// Options are the same for every backend.
type Options struct {
	Clock    func() time.Time // if nil, time.Now on SQLite, which one host has open, and the clock of the database on Postgres
	LockWait time.Duration    // how long a write waits for another that is in its way; 5 s if zero

	// volatile trades durability for speed, in tests that do not test durability.
	volatile bool
}

func (o Options) withDefaults() Options {
	if o.LockWait == 0 {
		o.LockWait = 5 * time.Second
	}
	return o
}

// backend is one kind of database. rest is the URL without scheme and colon.
type backend struct {
	open    func(ctx context.Context, rest string, o Options) (aviary.Store, error)
	migrate func(ctx context.Context, rest string, o Options) (Migration, error)
}

// backends says which URL scheme is served by what. A new database is a line here and a file beside sqlite.go.
var backends = map[string]backend{
	"sqlite":     {open: openSQLite, migrate: migrateSQLite},
	"postgres":   {open: openPostgres, migrate: migratePostgres},
	"postgresql": {open: openPostgres, migrate: migratePostgres},
}

// Open opens the store that url names, and brings its schema up to date; one from a newer program is refused with ErrNewerSchema.
//
// sqlite:PATH or sqlite:///PATH is a file on a local disk. The file and its folder are created where they are missing. Several processes of
// one host may have the same file open.
//
// postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETERS is a database that exists, and that processes of many hosts may have open; several hosts
// are separated by commas, and the primary among them is taken. Parameters are those of libpq (sslmode, sslrootcert, connect_timeout, search_path
// and any other setting of a session), and pool_max_conns: how many connections each process opens at most, 12 if not given. Where the URL says
// nothing, libpq's PG* variables and password file are asked. A server that does not keep what it acknowledges (synchronous_commit or
// fsync off) is refused. A pooler in between has to pool sessions: settings of the session matter.
func Open(ctx context.Context, url string, o Options) (aviary.Store, error) {
	b, rest, err := pick("database", backends, url)
	if err != nil {
		return nil, err
	}
	return b.open(ctx, rest, o.withDefaults())
}

// CheckURLs says whether Open and OpenBlobs know the kinds of these URLs; empty ones pass. It opens nothing.
func CheckURLs(database, blobs string) error {
	var errs []error
	if database != "" {
		_, _, err := pick("database", backends, database)
		errs = append(errs, err)
	}
	if blobs != "" {
		_, _, err := pick("blob", blobBackends, blobs)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Migrate brings the schema of the database that url names up to date, and says what it found and left.
func Migrate(ctx context.Context, url string, o Options) (Migration, error) {
	b, rest, err := pick("database", backends, url)
	if err != nil {
		return Migration{}, err
	}
	return b.migrate(ctx, rest, o.withDefaults())
}

// pick finds the entry of table for url's scheme. The error does not quote the URL, which may hold a password.
func pick[T any](what string, table map[string]T, url string) (entry T, rest string, err error) {
	scheme, rest, ok := strings.Cut(url, ":")
	entry, known := table[strings.ToLower(scheme)]
	if !ok || !known {
		names := slices.Sorted(maps.Keys(table))
		if !ok {
			return entry, "", fmt.Errorf("the %s URL has no scheme before a colon; known are %v", what, names)
		}
		return entry, "", fmt.Errorf("the %s URL has the scheme %q; known are %v", what, scheme, names)
	}
	return entry, rest, nil
}

// localPath is the path in scheme:PATH, scheme://PATH or scheme:///PATH. It is taken literally, without escapes or parameters.
func localPath(rest string) (string, error) {
	path := strings.TrimPrefix(rest, "//")
	switch {
	case path == "":
		return "", errors.New("the URL names no path")
	case strings.ContainsRune(path, '?'):
		return "", fmt.Errorf("the path %q has a question mark: parameters are not supported", path)
	}
	return path, nil
}
