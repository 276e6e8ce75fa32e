package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary"
)

// What is committed to a file that is no longer there is lost in silence, so nothing is.
func TestSQLiteFilesMoved(t *testing.T) {
	t.Parallel()
	aside := func(t *testing.T, path string) (back func() error) {
		t.Helper()
		if err := os.Rename(path, path+".aside"); err != nil {
			t.Fatal(err)
		}
		return func() error { return os.Rename(path+".aside", path) }
	}
	copied := func(t *testing.T, path string) string {
		t.Helper()
		body, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path+".copy", body, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path + ".copy"
	}
	for name, c := range map[string]struct {
		move  func(t *testing.T, path string) (back func() error)
		named string // the end of the file that the error names
		says  string
	}{
		"the database is moved away": {aside, ".db ", "deleted or moved"},
		"the folder is moved away": {func(t *testing.T, path string) func() error {
			t.Helper()
			back := aside(t, filepath.Dir(path))
			return back
		}, ".db ", "deleted or moved"},
		"the log is moved away":           {func(t *testing.T, path string) func() error { t.Helper(); return aside(t, path+"-wal") }, ".db-wal ", "deleted or moved"},
		"the shared memory is moved away": {func(t *testing.T, path string) func() error { t.Helper(); return aside(t, path+"-shm") }, ".db-shm ", "deleted or moved"},
		"a copy is linked into its place": {func(t *testing.T, path string) func() error {
			t.Helper()
			fresh, back := copied(t, path), aside(t, path)
			if err := os.Link(fresh, path); err != nil {
				t.Fatal(err)
			}
			return back // renames over the copy
		}, ".db ", "replaced by another"},
		"a copy is renamed over it": {func(t *testing.T, path string) func() error {
			t.Helper()
			fresh := copied(t, path)
			if err := os.Link(path, path+".kept"); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(fresh, path); err != nil {
				t.Fatal(err)
			}
			return func() error { return os.Rename(path+".kept", path) }
		}, ".db ", "replaced by another"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "data", "aviary.db")
			s := reopenTest(t, "sqlite:"+path, Options{volatile: true})
			create(t, s, aviary.Job{ID: "job_1"})
			back := c.move(t, path)
			_, writing := s.CreateJob(t.Context(), aviary.Job{ID: "job_2"}, aviary.QueueLimits{})
			_, reading := s.Backlog(t.Context())
			_, looking := s.Job(t.Context(), "job_1")
			for what, err := range map[string]error{"a write": writing, "a view": reading, "a look": looking} {
				if aviary.CodeOf(err) != aviary.CodeStoreUnavailable || !strings.Contains(err.Error(), c.named) || !strings.Contains(err.Error(), c.says) ||
					!strings.Contains(err.Error(), "restart") {
					t.Errorf("%s: %v", what, err)
				}
				if p := aviary.ProblemOf(err); strings.Contains(p.Detail, path) {
					t.Errorf("%s: users are told of the path: %s", what, p.Detail)
				}
			}
			if err := back(); err != nil {
				t.Fatal(err)
			}
			create(t, s, aviary.Job{ID: "job_3"})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = reopenTest(t, "sqlite:"+path, Options{volatile: true})
			for id, want := range map[string]aviary.Code{"job_1": "", "job_2": aviary.CodeNotFound, "job_3": ""} {
				if _, err := s.Job(t.Context(), id); aviary.CodeOf(err) != want {
					t.Errorf("%s, after all is back: %v", id, err)
				}
			}
		})
	}
}

// A file that goes while a transaction runs is noticed before it commits.
func TestSQLiteFileMovedInTheMiddle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "aviary.db")
	s := reopenTest(t, "sqlite:"+path, Options{volatile: true})
	list, err := filesOf(path)
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v: want the database, its log and its shared memory", list, err)
	}
	calls := 0
	s.intact = func(op string) error {
		if calls++; calls == 2 { // the first is before the transaction
			if err := os.Remove(path); err != nil {
				t.Error(err)
			}
		}
		return unmoved(op, list)
	}
	if _, err := s.CreateJob(t.Context(), aviary.Job{ID: "job_1"}, aviary.QueueLimits{}); aviary.CodeOf(err) != aviary.CodeStoreUnavailable || calls != 2 {
		t.Errorf("%v, after %d looks", err, calls)
	}
	s.intact = nil // what is left of the open file tells whether it was committed
	if _, err := s.Job(t.Context(), "job_1"); aviary.CodeOf(err) != aviary.CodeNotFound {
		t.Errorf("the job that was refused: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a new file was made: %v", err)
	}
}

func BenchmarkUnmoved(b *testing.B) {
	path := filepath.Join(b.TempDir(), "aviary.db")
	s := reopenTest(b, "sqlite:"+path, Options{volatile: true})
	for b.Loop() {
		if err := s.check("op"); err != nil {
			b.Fatal(err)
		}
	}
}
