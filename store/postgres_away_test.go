package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest/pgtest"
)

// A server that stands still, with its connections open, is unavailable; only a commit that it did not answer is in doubt.
func TestPostgresFrozenServer(t *testing.T) {
	t.Parallel()
	server := pgtest.NewServer(t)
	s := reopenTest(t, pgtest.With(t, server.Schema(t), "connect_timeout", "1"), Options{volatile: true})
	create(t, s, aviary.Job{ID: "job_1"})
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	// The caller's time, over an open connection: its own error, and no code that would hide that nothing was done.
	_, err := s.CreateJob(short(), aviary.Job{ID: "job_2"}, aviary.QueueLimits{})
	if !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*aviary.Error)) || aviary.CodeOf(aviary.OutOfTime(t.Context(), "op", err)) != aviary.CodeStoreUnavailable {
		t.Errorf("a caller out of time: %v", err)
	}
	// A new connection's time.
	began := time.Now()
	for what, call := range map[string]func() error{
		"a write": func() error {
			_, err := s.CreateJob(t.Context(), aviary.Job{ID: "job_2"}, aviary.QueueLimits{})
			return err
		},
		"a read": func() error { s.read.SetMaxIdleConns(-1); _, err := s.Job(t.Context(), "job_1"); return err },
	} {
		if err := call(); aviary.CodeOf(err) != aviary.CodeStoreUnavailable {
			t.Errorf("%s over a new connection: %v", what, err)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("two connections were waited for as long as %v", took)
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Job(t.Context(), "job_2"); aviary.CodeOf(err) != aviary.CodeNotFound {
		t.Errorf("a job that was refused: %v", err)
	}
	// In the middle of a commit nobody can tell.
	err = s.update(short(), "op", func(context.Context, *txn, time.Time) error { return server.Freeze() })
	var known *aviary.Error
	if !errors.As(err, &known) || known.Code != aviary.CodeInternal || aviary.CodeOf(aviary.OutOfTime(t.Context(), "op", err)) != aviary.CodeInternal {
		t.Errorf("a commit without an answer: %v", err)
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
}

// A primary that takes no writes any more is left for one that does: connections to it do not stay in the pool.
func TestPostgresReadOnlyServer(t *testing.T) {
	t.Parallel()
	first, second := pgtest.NewServer(t), pgtest.NewServer(t)
	here, there := first.Schema(t), second.Schema(t)
	reopenTest(t, there, Options{volatile: true}) // makes the tables
	var schemas [2]string
	pgtest.Query(t, here, &schemas[0], "SELECT current_schema()")
	pgtest.Query(t, there, &schemas[1], "SELECT current_schema()")
	alone := reopenTest(t, here, Options{volatile: true})
	both := pgtest.With(t, here, "host", hostOf(t, first)+","+hostOf(t, second))
	both = pgtest.With(t, both, "search_path", schemas[0]+","+schemas[1]) // each server has one of them
	s := reopenTest(t, both, Options{volatile: true})
	for range 2 { // so that both have several connections to it
		useAllConnections(t, alone)
		useAllConnections(t, s)
	}
	create(t, s, aviary.Job{ID: "job_1"})
	if _, err := alone.Job(t.Context(), "job_1"); err != nil {
		t.Fatal(err)
	}

	admin := pgtest.With(t, first.URL(), "default_transaction_read_only", "off")
	pgtest.Exec(t, admin, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
	refused := until(t, alone, func(err error) bool { return err != nil })
	if aviary.CodeOf(refused) != aviary.CodeStoreUnavailable {
		t.Errorf("a write to a server that takes none: %v", refused)
	}
	if _, err := alone.Job(t.Context(), "job_1"); err != nil {
		t.Errorf("a read from it: %v", err)
	}
	if n := alone.write.Stats().OpenConnections; n != 0 {
		t.Errorf("%d connections that cannot write stayed in the pool", n)
	}
	create(t, s, aviary.Job{ID: "job_2"})
	var n int
	pgtest.Query(t, there, &n, "SELECT count(*) FROM jobs WHERE id = 'job_2'")
	if n != 1 {
		t.Error("the job is not on the server that takes writes")
	}
	pgtest.Exec(t, admin, "ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()")
	if err := until(t, alone, func(err error) bool { return err == nil }); err != nil {
		t.Errorf("after the server takes writes again: %v", err)
	}
}

// until creates jobs until the outcome is one that is waited for: a server rereads its settings when it comes to it.
func until(t *testing.T, s aviary.Store, enough func(error) bool) error {
	t.Helper()
	for n, deadline := 0, time.Now().Add(20*time.Second); ; n++ {
		_, err := s.CreateJob(t.Context(), aviary.Job{ID: fmt.Sprint("job_until_", time.Now().UnixNano(), n)}, aviary.QueueLimits{})
		if enough(err) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func hostOf(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}
