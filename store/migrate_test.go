package store

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary/migrations"
	"github.com/aviary-asr/aviary/store/storetest"
)

// backendsOfTests are those that do not sync, by the folder of their migrations.
var backendsOfTests = map[string]storetest.Backend{"sqlite": volatile, "postgres": volatilePostgres}

func onEach(t *testing.T, test func(t *testing.T, name string, b storetest.Backend)) {
	for name, b := range backendsOfTests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, b)
		})
	}
}

func TestMigrate(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, name string, b storetest.Backend) {
		files, err := fs.ReadDir(migrations.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		newest := int64(len(files))
		url := b.New(t)
		for _, want := range []Migration{{From: 0, To: newest}, {From: newest, To: newest}} {
			m, err := Migrate(t.Context(), url, Options{volatile: true})
			if err != nil || m != want {
				t.Fatalf("got %+v, %v, want %+v", m, err, want)
			}
		}
		reopenTest(t, url, Options{volatile: true})
	})
}

// Several processes that start at once, on a new database, all find it migrated.
func TestMigrateAtOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, b storetest.Backend) {
		url := b.New(t)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				s, err := Open(t.Context(), url, Options{LockWait: time.Minute, volatile: true})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := s.Backlog(t.Context()); err != nil {
					t.Error(err)
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	})
}

// Whoever comes while another process migrates waits for it, as long as its context allows.
func TestPostgresMigrationsTakeTurns(t *testing.T) {
	t.Parallel()
	url := volatilePostgres.New(t)
	p, err := parsePostgres(strings.TrimPrefix(url, "postgres:"), Options{}.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	db := p.connect(1, nil)
	defer db.Close()
	unlock, err := lockPostgresSchema(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Migrate(short, url, Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while another migrates: %v", err)
	}
	unlock()
	if m, err := Migrate(t.Context(), url, Options{}); err != nil || m.From != 0 {
		t.Errorf("afterwards: %+v, %v", m, err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, b storetest.Backend) {
		url := b.New(t)
		s := reopenTest(t, url, Options{volatile: true})
		_, err := s.write.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) SELECT 999, is_applied FROM goose_db_version LIMIT 1")
		if err != nil {
			t.Fatal(err)
		}
		_, err = Open(t.Context(), url, Options{volatile: true})
		if !errors.Is(err, ErrNewerSchema) || !strings.Contains(err.Error(), "999") {
			t.Errorf("Open: %v", err)
		}
		if _, err := Migrate(t.Context(), url, Options{volatile: true}); !errors.Is(err, ErrNewerSchema) {
			t.Errorf("Migrate: %v", err)
		}
	})
}
