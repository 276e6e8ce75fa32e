package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest"
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

func TestMain(m *testing.M) { storetest.Main(m, durable) }

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

// openTest opens a fresh store, and gives access to its inside.
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
