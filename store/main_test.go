package store

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest"
	"github.com/aviary-asr/aviary/store/storetest/pgtest"
)

// durable is the SQLite store as it is used; volatile does not sync, so that thousands of operations take seconds on any disk.
var (
	durable  = sqliteBackend(false)
	volatile = sqliteBackend(true)
)

func sqliteBackend(volatile bool) storetest.Backend {
	return storetest.Backend{
		New: func(t testing.TB) string { return "sqlite:" + filepath.Join(t.TempDir(), "aviary.db") },
		Open: func(url string, now func() time.Time) (aviary.Store, error) {
			return Open(context.Background(), url, Options{Clock: now, LockWait: time.Minute, volatile: volatile})
		},
	}
}

// The same for Postgres.
var (
	durablePostgres  = postgresBackend(false)
	volatilePostgres = postgresBackend(true)
)

func postgresBackend(volatile bool) storetest.Backend {
	return storetest.Backend{
		New: pgtest.Schema,
		Open: func(url string, now func() time.Time) (aviary.Store, error) {
			return Open(context.Background(), url, Options{Clock: now, LockWait: time.Minute, volatile: volatile})
		},
		Settle: func(t testing.TB, url string) {
			for deadline := time.Now().Add(time.Minute); pgtest.Sessions(t, url) > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the server has sessions of a process that is dead")
				}
			}
		},
	}
}

func TestMain(m *testing.M) { storetest.Main(m, durable) }

func TestPostgres(t *testing.T) {
	t.Parallel()
	storetest.Run(t, recycled(t, volatilePostgres))
}

// recycled gives the subtests of a test databases of those before, emptied: making one takes far longer than many a test.
func recycled(parent *testing.T, b storetest.Backend) storetest.Backend {
	free := make(chan string, 100)
	free <- b.New(parent)
	fresh := b.New
	b.New = func(t testing.TB) (url string) {
		select {
		case url = <-free:
		default:
			url = fresh(parent)
		}
		t.Cleanup(func() { // after the test has closed its handles
			pgtest.Exec(t, url, "SET synchronous_commit = off", "DELETE FROM jobs")
			s, err := Open(context.Background(), url, Options{volatile: true})
			if err != nil {
				t.Fatal(err)
			}
			b, err := s.Backlog(context.Background())
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			var left int
			pgtest.Query(t, url, &left, "SELECT count(*) FROM (SELECT 1 FROM tenant_counters GROUP BY tenant, state, priority HAVING sum(jobs) <> 0 OR sum(audio_us) <> 0) AS off")
			if left != 0 {
				t.Errorf("all jobs have been deleted, but %d counters of tenants are not zero", left)
			}
			for state, n := range b.States {
				if n != 0 || b.Running.Audio != 0 {
					t.Errorf("all jobs have been deleted, but %d are counted as %s, and %v as running", n, state, b.Running.Audio)
				}
			}
			pgtest.Exec(t, url, "SET synchronous_commit = off", "DELETE FROM tenant_counters", "DELETE FROM leader", "UPDATE processed SET jobs = 0, audio_us = 0, lost = 0, quarantined = 0")
			free <- url
		})
		return url
	}
	return b
}

func TestPostgresCrash(t *testing.T) {
	t.Parallel()
	storetest.RunCrash(t, durablePostgres)
}

func TestPostgresServerCrash(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	storetest.RunServerCrash(t, durablePostgres, server.Schema(t), func(t testing.TB) {
		if err := errors.Join(server.Crash(), server.Start()); err != nil {
			t.Error(err)
		}
	})
}

func TestSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, volatile)
}

func TestSQLiteCrash(t *testing.T) {
	t.Parallel()
	storetest.RunCrash(t, durable)
}

func TestFiles(t *testing.T) {
	t.Parallel()
	storetest.RunBlobs(t, func(t testing.TB) aviary.Blobs {
		b, err := OpenBlobs(t.Context(), "file:"+t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
}

// handOver is the simplest dispatcher: up to limit jobs of a class, tenant by tenant.
func handOver(ctx context.Context, s aviary.Store, class aviary.Priority, limit int) ([]aviary.Ticket, error) {
	list, err := s.Waiting(ctx, class, limit)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range list[:min(limit, len(list))] {
		ids = append(ids, c.JobID)
	}
	return s.Dispatch(ctx, ids)
}

// openPostgresTest opens a fresh Postgres store, and gives access to its inside.
func openPostgresTest(t testing.TB, o Options) *sqlStore {
	t.Helper()
	o.volatile = true
	return reopenTest(t, volatilePostgres.New(t), o)
}

// openTest opens a fresh SQLite store, and gives access to its inside.
func openTest(t testing.TB, o Options) *sqlStore {
	t.Helper()
	return reopenTest(t, volatile.New(t), o)
}

func reopenTest(t testing.TB, url string, o Options) *sqlStore {
	t.Helper()
	s, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.(*sqlStore)
}
