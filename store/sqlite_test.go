package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func TestOpenURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for url, want := range map[string]string{
		"":                                 "no scheme",
		"aviary.db":                        "no scheme",
		"mysql://user:secret@host/db":      `the scheme "mysql"`,
		"sqlite:":                          "names no path",
		"sqlite://":                        "names no path",
		"sqlite::memory:":                  "must outlive the process",
		"sqlite:DIR/a.db?mode=ro":          "parameters are not supported",
		"sqlite:DIR/a.db":                  "",
		"sqlite://DIR/b.db":                "",
		"SQLite:DIR/new/folder/c.db":       "",
		"sqlite:DIR/ünï 100%#[x]&y=z+w.db": "",
	} {
		url = strings.ReplaceAll(url, "DIR", dir)
		s, err := Open(t.Context(), url, Options{})
		if want == "" {
			if err != nil {
				t.Errorf("%q: %v", url, err)
				continue
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			path := strings.TrimPrefix(url[len("sqlite:"):], "//")
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%q: the database is not where the URL says: %v", url, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %v, want one that says %q", url, err, want)
		}
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{LockWait: 1234 * time.Millisecond})
	pragma := func(db *pool, name string) (value string) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&value); err != nil {
			t.Fatal(err)
		}
		return value
	}
	for name, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1", "secure_delete": "1", "busy_timeout": "1234"} {
		if v := pragma(s.write, name); v != want {
			t.Errorf("the writer has %s = %s, want %s", name, v, want)
		}
	}
	for name, want := range map[string]string{"journal_mode": "wal", "query_only": "1", "busy_timeout": "1234"} {
		if v := pragma(s.read, name); v != want {
			t.Errorf("a reader has %s = %s, want %s", name, v, want)
		}
	}
	if _, err := s.read.ExecContext(t.Context(), "DELETE FROM jobs"); err == nil {
		t.Error("a reader can write")
	}
}

// A job that an older version accepted runs under the newer one.
func TestJobsOutliveMigrations(t *testing.T) {
	t.Parallel()
	url := durable.New(t)
	migrateTo(t, "sqlite", url, 1, `INSERT INTO jobs (id, state, priority, max_attempts, created_at, name, attention_mode, labels,
		container, codec, sample_rate, channels, audio_us, audio_bytes, audio_sha256, blob_key)
		VALUES ('job_1', 'queued', 'bulk', 3, 1, 'a.wav', '', NULL, 'wav', 'pcm_s16le', 8000, 1, 1000000, 16044, 'ab', 'job_1')`)
	s, err := Open(t.Context(), url, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tickets, err := handOver(t.Context(), s, aviary.PriorityBulk, 10)
	if err != nil || len(tickets) != 1 {
		t.Fatalf("%v, %v", tickets, err)
	}
	job, err := s.StartAttempt(t.Context(), tickets[0], aviary.Claim{Worker: "w", Device: "cpu", Lease: time.Minute})
	if err != nil || job.BlobKey != "job_1" || job.AudioKey != "" || job.Audio.Warnings != nil || job.Options.Channel != 0 {
		t.Errorf("%+v, %v", job, err)
	}
}

func TestDamagedFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), "sqlite:"+path, Options{})
	if err == nil || !strings.Contains(err.Error(), "not an SQLite database") || !strings.Contains(err.Error(), path) {
		t.Errorf("a file of text: %v", err)
	}

	s, err := Open(t.Context(), volatile.New(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 60 {
		create(t, s, aviary.Job{ID: fmt.Sprint("job_", n)})
	}
	file := databaseFile(t, s.(*sqlStore))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(body); i++ { // all but the first page, which holds the header and the schema
		body[i] ^= 0x55
	}
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = Open(t.Context(), "sqlite:"+file, Options{})
	if err == nil {
		_, err = s.Jobs(t.Context(), aviary.JobQuery{Limit: 200})
		if e := s.Close(); e != nil {
			t.Error(e)
		}
	}
	if err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged database: %v", err)
	}
}

func databaseFile(t *testing.T, s *sqlStore) string {
	t.Helper()
	var file string
	if err := s.read.QueryRowContext(t.Context(), "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&file); err != nil {
		t.Fatal(err)
	}
	return file
}

func create(t testing.TB, s aviary.Store, job aviary.Job) aviary.Job {
	t.Helper()
	job, err := s.CreateJob(t.Context(), job, aviary.QueueLimits{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// A write waits for another process no longer than told, and then says that the same call can succeed later.
func TestLockedForTooLong(t *testing.T) {
	t.Parallel()
	url := volatile.New(t)
	holder := reopenTest(t, url, Options{})
	s := reopenTest(t, url, Options{LockWait: 20 * time.Millisecond})
	job := create(t, s, aviary.Job{ID: "job_1"})
	tx, err := holder.write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Cancel(t.Context(), job.ID)
	if code := aviary.CodeOf(err); code != aviary.CodeStoreUnavailable || !code.Retryable() {
		t.Errorf("a write while another process writes: %v", err)
	}
	if _, err := s.Job(t.Context(), job.ID); err != nil {
		t.Errorf("a read while another process writes: %v", err)
	}
	patient := reopenTest(t, url, Options{LockWait: time.Hour})
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := patient.Cancel(short, job.ID); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "store.cancel") {
		t.Errorf("a context that ends while another process writes: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Cancel(t.Context(), job.ID); err != nil {
		t.Errorf("the same write afterwards: %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{volatile: true})
	limit := func(pages int) {
		t.Helper()
		if _, err := s.write.ExecContext(t.Context(), fmt.Sprintf("PRAGMA max_page_count = %d", pages)); err != nil {
			t.Fatal(err)
		}
	}
	limit(1) // as many as there are
	var accepted []string
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		id := fmt.Sprint("job_", n)
		if _, err = s.CreateJob(t.Context(), aviary.Job{ID: id, Options: aviary.Options{Name: strings.Repeat("x", 500)}}, aviary.QueueLimits{}); err == nil {
			accepted = append(accepted, id)
		}
	}
	if aviary.CodeOf(err) != aviary.CodeStorageFull {
		t.Fatalf("after %d jobs: %v", len(accepted), err)
	}
	limit(1_000_000)
	create(t, s, aviary.Job{ID: "job_again"})
	if b, err := s.Backlog(t.Context()); err != nil || b.States[aviary.StateQueued] != len(accepted)+1 {
		t.Errorf("%d jobs were accepted; the backlog: %+v, %v", len(accepted)+1, b, err)
	}
}

// A purged transcript is gone from the file, not only from the table.
func TestExpireOverwrites(t *testing.T) {
	t.Parallel()
	url := volatile.New(t)
	s, err := Open(t.Context(), url, Options{volatile: true})
	if err != nil {
		t.Fatal(err)
	}
	secret := "words that nobody should find again"
	job := create(t, s, aviary.Job{ID: "job_1"})
	tickets, err := handOver(t.Context(), s, aviary.PriorityInteractive, 1)
	if err != nil {
		t.Fatal(err)
	}
	if job, err = s.StartAttempt(t.Context(), tickets[0], aviary.Claim{Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	transcript := aviary.Transcript{Text: strings.Repeat(secret+" ", 1000)}
	if err := s.FinishAttempt(t.Context(), aviary.AttemptRef{JobID: job.ID, Attempt: 1}, transcript); err != nil {
		t.Fatal(err)
	}
	found := func() int {
		t.Helper()
		file := databaseFile(t, s.(*sqlStore))
		if err := s.Close(); err != nil { // merges the write-ahead log
			t.Fatal(err)
		}
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s = reopenTest(t, url, Options{volatile: true})
		return bytes.Count(body, []byte(secret))
	}
	if n := found(); n < 900 { // some lie across two pages
		t.Fatalf("the transcript is in the file %d times before it is purged: this test cannot see it", n)
	}
	if _, err := s.Expire(t.Context(), job.ID, false); err != nil {
		t.Fatal(err)
	}
	if n := found(); n != 0 {
		t.Errorf("the transcript is in the file %d times after it was purged", n)
	}
}

// The reaper lists silent attempts first and ends them then. One that has given a sign of life in between, or has ended, is left alone.
func TestReaperLooksAgain(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{volatile: true})
	job := create(t, s, aviary.Job{ID: "job_1"})
	tickets, err := handOver(t.Context(), s, aviary.PriorityInteractive, 1)
	if err != nil {
		t.Fatal(err)
	}
	if job, err = s.StartAttempt(t.Context(), tickets[0], aviary.Claim{Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		attempt int
		now     time.Time
		want    aviary.State
	}{
		"the lease was renewed":     {1, job.LeaseUntil.Add(-time.Microsecond), ""},
		"the attempt is an old one": {0, job.LeaseUntil, ""},
		"it is silent":              {1, job.LeaseUntil, aviary.StateQueued},
	} {
		tx, err := s.write.begin(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		state, err := reap(t.Context(), tx, c.now, aviary.AttemptRef{JobID: job.ID, Attempt: c.attempt}, c.now.UnixMicro(), 0, lossOfLease)
		if err != nil || state != c.want {
			t.Errorf("%s: the job became %q, %v, want %q", name, state, err, c.want)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}
