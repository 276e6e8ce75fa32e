package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest/pgtest"
)

// What is wrong with a URL, or with what it leads to, is said without a word of the password.
func TestPostgresURL(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for url, want := range map[string]string{
		"postgres:":                                                    "cannot be read",
		"postgres:host=/tmp password=hush":                             "cannot be read",
		"postgres://user:hu%zzsh@host/db":                              "cannot be read",
		"postgres://user:hu@sh@host/db":                                "cannot be read",
		"postgres://user:hu/sh@host/db":                                "cannot be read",
		"postgres://user:hu#sh@host:x/db":                              "invalid port",
		"postgres://user:hush@host:99999/db":                           "invalid port",
		"postgres://user:hush@host:port/db":                            "invalid port",
		"postgres://user:hush@host/db?sslmode=perhaps":                 "sslmode is invalid",
		"postgres://user:hush@host/db?sslmode=verify-ca&sslrootcert=/": "CA file",
		"postgres://user:hush@host/db?pool_max_conns=1":                "pool_max_conns",
		"postgres://user:hush@host/db?pool_max_conns=many":             "pool_max_conns",
		"postgresql://user:hush@/db?host=" + dir:                       "cannot be reached",
		"postgres://user:hush@127.0.0.1:1/db?sslmode=disable":          "cannot be reached",
		"postgres://user@127.0.0.1:1/db?password=hush":                 "cannot be reached",
	} {
		for name, open := range map[string]func() error{
			"Open":    func() error { _, err := Open(t.Context(), url, Options{}); return err },
			"Migrate": func() error { _, err := Migrate(t.Context(), url, Options{}); return err },
		} {
			err := open()
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %q: error %v, want one that says %q", name, url, err, want)
				continue
			}
			for _, part := range []string{"hush", "hu%", "hu@", "hu/", "hu#", "sh@"} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%s %q: the error tells a part of the password: %v", name, url, err)
				}
			}
		}
	}
}

func TestPostgresConnections(t *testing.T) {
	t.Parallel()
	url := pgtest.With(t, pgtest.Schema(t), "pool_max_conns", "7")
	url = pgtest.With(t, url, "statement_timeout", "77s")
	s := reopenTest(t, url, Options{LockWait: 1234 * time.Millisecond})
	for name, c := range map[string]struct {
		db   *pool
		most int
		want map[string]string
	}{
		"the writer": {s.write, 5, map[string]string{"default_transaction_read_only": "off", "synchronous_commit": "on", "fsync": "on"}},
		"a reader":   {s.read, 2, map[string]string{"default_transaction_read_only": "on"}},
	} {
		c.want["lock_timeout"], c.want["idle_in_transaction_session_timeout"] = "1234ms", "15s"
		c.want["statement_timeout"] = "77s" // as the URL says
		c.want["default_transaction_isolation"], c.want["plan_cache_mode"] = "read committed", "force_custom_plan"
		for setting, want := range c.want {
			var value string
			if err := c.db.QueryRowContext(t.Context(), "SELECT current_setting($1)", setting).Scan(&value); err != nil {
				t.Fatal(err)
			}
			if value = strings.Replace(value, "1min17s", "77s", 1); value != want {
				t.Errorf("%s has %s = %s, want %s", name, setting, value, want)
			}
		}
		if most := c.db.Stats().MaxOpenConnections; most != c.most {
			t.Errorf("%s opens up to %d connections, want %d", name, most, c.most)
		}
	}
	if _, err := s.read.ExecContext(t.Context(), "DELETE FROM jobs"); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a reader can write: %v", err)
	}
	plain := reopenTest(t, pgtest.Schema(t), Options{})
	if most := plain.write.Stats().MaxOpenConnections + plain.read.Stats().MaxOpenConnections; most != postgresConnections {
		t.Errorf("without a word about it, a store opens %d connections", most)
	}
}

// A server that acknowledges what it has not written yet is refused. The same check is made of each new connection.
func TestPostgresThatForgetsIsRefused(t *testing.T) {
	t.Parallel()
	url := pgtest.With(t, pgtest.Schema(t), "synchronous_commit", "off")
	if _, err := Open(t.Context(), url, Options{}); err == nil || !strings.Contains(err.Error(), "synchronous_commit = off") {
		t.Errorf("got %v", err)
	}
	for _, setting := range []string{"local", "remote_write", "remote_apply"} {
		reopenTest(t, pgtest.With(t, url, "synchronous_commit", setting), Options{})
	}
}

// Times are those of the database, whatever the clock of this host says. Here the database is a day ahead of all hosts.
func TestPostgresClock(t *testing.T) {
	t.Parallel()
	const ahead = 24 * time.Hour
	url := pgtest.Schema(t)
	pgtest.Exec(t, url, `CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '1 day' $$`)
	s := reopenTest(t, pgtest.With(t, url, "search_path", pathOf(t, url)+",pg_catalog"), Options{volatile: true})
	ctx := t.Context()
	near := func(what string, got time.Time, want time.Duration) {
		t.Helper()
		if off := time.Until(got) - ahead - want; off < -time.Minute || off > time.Minute {
			t.Errorf("%s is %v, which is %v off", what, got, off)
		}
	}
	job := create(t, s, aviary.Job{ID: "job_1"})
	near("created_at", job.CreatedAt, 0)
	if b, err := s.Backlog(ctx); err != nil || b.Oldest > time.Minute {
		t.Errorf("a new job waits for %v, %v", b.Oldest, err)
	}
	tickets, err := handOver(ctx, s, aviary.PriorityInteractive, 1)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.Stranded(ctx, time.Hour, 9); err != nil || len(list) != 0 {
		t.Errorf("a new ticket is stranded: %v, %v", list, err)
	}
	if job, err = s.StartAttempt(ctx, tickets[0], aviary.Claim{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	near("started_at", job.StartedAt, 0)
	near("lease_until", job.LeaseUntil, time.Hour)
	if list, err := s.ReapLost(ctx, 9); err != nil || len(list) != 0 {
		t.Errorf("a new attempt is reaped: %v, %v", list, err)
	}
	if _, err := s.FailAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: 1}, aviary.Failure{Retry: true, Delay: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if job, err = s.Job(ctx, job.ID); err != nil {
		t.Fatal(err)
	}
	near("not_before", job.NotBefore, time.Hour)
}

func pathOf(t *testing.T, url string) (schema string) {
	t.Helper()
	pgtest.Query(t, url, &schema, "SELECT current_schema()")
	return schema
}

// lockRow keeps a job locked from a session of its own, until it is called.
func lockRow(t *testing.T, s *sqlStore, id string) (release func()) {
	t.Helper()
	tx, err := s.write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), postgresDialect.holdSQL, id); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// A write waits for another transaction no longer than told, and then says that the same call can succeed later.
func TestPostgresLockedForTooLong(t *testing.T) {
	t.Parallel()
	holder := openPostgresTest(t, Options{})
	s := reopenTest(t, urlOf(t, holder), Options{LockWait: 20 * time.Millisecond, volatile: true})
	job := create(t, s, aviary.Job{ID: "job_1"})
	release := lockRow(t, holder, job.ID)
	_, err := s.Cancel(t.Context(), job.ID)
	if code := aviary.CodeOf(err); code != aviary.CodeStoreUnavailable || !code.Retryable() || !strings.Contains(err.Error(), "busy") {
		t.Errorf("a write while another holds the row: %v", err)
	}
	if _, err := s.Job(t.Context(), job.ID); err != nil {
		t.Errorf("a read while another holds the row: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := holder.Cancel(short, job.ID); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "store.cancel") {
		t.Errorf("a context that ends while another holds the row: %v", err)
	}
	release()
	if _, err := s.Cancel(t.Context(), job.ID); err != nil {
		t.Errorf("the same write afterwards: %v", err)
	}
}

// urlOf is the URL of a store's schema.
func urlOf(t *testing.T, s *sqlStore) (url string) {
	t.Helper()
	var schema string
	if err := s.write.QueryRowContext(t.Context(), "SELECT current_schema()").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	return pgtest.With(t, pgtest.With(t, pgtest.URL(t), "search_path", schema), "application_name", schema)
}

// A frozen process that holds some jobs does not stop the work on the others, and after a while the server takes the jobs from it.
func TestPostgresFrozenProcess(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := openPostgresTest(t, Options{LockWait: time.Minute})
	url := urlOf(t, s)
	impatient := reopenTest(t, url, Options{LockWait: 100 * time.Millisecond, volatile: true})
	soon := reopenTest(t, pgtest.With(t, url, "idle_in_transaction_session_timeout", "100"), Options{volatile: true})
	var jobs []aviary.Job
	for n := range 6 {
		jobs = append(jobs, create(t, s, aviary.Job{ID: fmt.Sprint("job_", n)}))
	}
	tickets, err := handOver(ctx, s, aviary.PriorityInteractive, 4)
	if err != nil {
		t.Fatal(err)
	}
	for n, ticket := range tickets {
		job, err := s.StartAttempt(ctx, ticket, aviary.Claim{Lease: -time.Second}) // silent at once
		if err == nil && n < 2 {
			_, err = s.FailAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: 1}, aviary.Failure{Retry: true, Delay: time.Microsecond})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []int{0, 2, 4} { // one that is delayed, one that is silent, one that waits
		defer lockRow(t, s, jobs[n].ID)()
	}
	var ids []string
	for _, job := range jobs {
		ids = append(ids, job.ID)
	}
	if _, err := impatient.Waiting(ctx, aviary.PriorityInteractive, 9); err != nil { // which ripens what is not locked
		t.Errorf("what waits: %v", err)
	}
	list, err := impatient.Dispatch(ctx, ids)
	if err != nil || len(list) != 2 || list[0].JobID != "job_1" || list[1].JobID != "job_5" {
		t.Errorf("handed over: %v, %v", list, err)
	}
	reaped, err := impatient.ReapLost(ctx, 9)
	if err != nil || len(reaped) != 1 || reaped[0].JobID != "job_3" {
		t.Errorf("reaped: %v, %v", reaped, err)
	}
	lockRow(t, soon, jobs[5].ID) // and never lets it go
	if job, err := s.Cancel(ctx, jobs[5].ID); err != nil || job.State != aviary.StateCanceled {
		t.Errorf("a job that a frozen process held: %s, %v", job.State, err)
	}
}

// hiccups makes the next n inserts of jobs fail with a SQLSTATE, as the server itself might. A sequence is not rolled back, so it counts them.
func hiccups(t *testing.T, s *sqlStore, n int, state string) {
	t.Helper()
	for _, statement := range []string{
		`DROP SEQUENCE IF EXISTS hiccups`, `CREATE SEQUENCE hiccups`,
		fmt.Sprintf(`CREATE OR REPLACE FUNCTION hiccup() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('hiccups') <= %d THEN RAISE EXCEPTION 'a hiccup' USING ERRCODE = '%s'; END IF; RETURN NEW; END $$`, n, state),
		`CREATE OR REPLACE TRIGGER hiccup BEFORE INSERT ON jobs FOR EACH ROW EXECUTE FUNCTION hiccup()`,
	} {
		if _, err := s.write.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPostgresFailures(t *testing.T) {
	t.Parallel()
	s := openPostgresTest(t, Options{})
	for i, c := range []struct {
		n     int
		state string
		want  aviary.Code
		says  string
	}{
		{mostTries - 1, "40P01", "", ""}, // a deadlock is tried again
		{mostTries - 1, "40001", "", ""},
		{mostTries, "40P01", aviary.CodeStoreUnavailable, "busy"}, // but not for ever
		{1, "53100", aviary.CodeStorageFull, "no room"},           // what cannot pass is not
		{1, "57014", aviary.CodeStoreUnavailable, "busy"},
		{1, "53200", aviary.CodeStoreUnavailable, "busy"}, // out of memory
		{1, "53400", aviary.CodeStoreUnavailable, "busy"},
		{99, "25006", aviary.CodeStoreUnavailable, "no writes"},
		{99, "57P01", aviary.CodeStoreUnavailable, "does not answer"},
		{99, "57P02", aviary.CodeStoreUnavailable, "does not answer"},
		{99, "57P03", aviary.CodeStoreUnavailable, "does not answer"},
		{1, "XX000", aviary.CodeInternal, "The store failed"},
		{1, "23505", aviary.CodeInternal, "The store failed"}, // not about the id
	} {
		hiccups(t, s, c.n, c.state)
		_, err := s.CreateJob(t.Context(), aviary.Job{ID: fmt.Sprint("job_", i)}, aviary.QueueLimits{})
		if aviary.CodeOf(err) != c.want || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d times %s: %v, want %q that says %q", c.n, c.state, err, c.want, c.says)
		}
		_, err = s.Job(t.Context(), fmt.Sprint("job_", i))
		if there := err == nil; there != (c.want == "") {
			t.Errorf("%d times %s: the job is there: %v", c.n, c.state, there)
		}
	}
	if b, err := s.Backlog(t.Context()); err != nil || b.States[aviary.StateQueued] != 2 {
		t.Errorf("two jobs were accepted; the backlog: %+v, %v", b, err)
	}
}

// Connections that have died in the pool, as all do when a server restarts or fails over, are not the caller's trouble, however many there are.
func TestPostgresLostConnections(t *testing.T) {
	t.Parallel()
	for name, next := range map[string]func(ctx context.Context, s *sqlStore) error{
		"a write": func(ctx context.Context, s *sqlStore) error { _, err := s.Cancel(ctx, "job_1"); return err },
		"a read":  func(ctx context.Context, s *sqlStore) error { _, err := s.Job(ctx, "job_1"); return err },
		"a view":  func(ctx context.Context, s *sqlStore) error { _, err := s.Backlog(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := openPostgresTest(t, Options{})
			create(t, s, aviary.Job{ID: "job_1"})
			for range 2 { // the driver tests a connection whose last use is some time ago, or that has not been used
				useAllConnections(t, s)
			}
			url := urlOf(t, s)
			pgtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = current_schema() AND pid <> pg_backend_pid()")
			volatilePostgres.Settle(t, url)
			if err := next(t.Context(), s); err != nil {
				t.Error(err)
			}
		})
	}
}

func useAllConnections(t *testing.T, s *sqlStore) {
	t.Helper()
	var all []*sql.Tx
	for _, p := range []*pool{s.write, s.read} {
		for range p.Stats().MaxOpenConnections {
			tx, err := p.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, tx)
		}
	}
	for _, tx := range all {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}
