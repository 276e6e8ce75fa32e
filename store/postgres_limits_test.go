package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// limitCases are limits, how many jobs wait already, and how many more are to be accepted. Each case starts where accepts go side by side, and goes on to
// where they take turns. atOnce is how many connections the server allows.
var limitCases = map[string]struct {
	limits func(atOnce int) aviary.QueueLimits
	before func(atOnce int) int // jobs of 1 s that wait already
	accept func(atOnce int) int
}{
	"jobs": {
		limits: func(atOnce int) aviary.QueueLimits { return aviary.QueueLimits{Jobs: 1000 + atOnce} },
		before: func(int) int { return 990 }, // ten more, and room is left for no more than all connections
		accept: func(atOnce int) int { return 10 + atOnce },
	},
	"audio": {
		limits: func(atOnce int) aviary.QueueLimits {
			return aviary.QueueLimits{Audio: time.Duration(8*atOnce) * time.Second}
		},
		before: func(atOnce int) int { return 7*atOnce - 10 },
		accept: func(atOnce int) int { return 10 + atOnce },
	},
	"jobs of a tenant": {
		limits: func(atOnce int) aviary.QueueLimits {
			return aviary.QueueLimits{Jobs: 1 << 40, TenantJobs: 1000 + atOnce}
		},
		before: func(int) int { return 990 },
		accept: func(atOnce int) int { return 10 + atOnce },
	},
	"audio of a tenant": {
		limits: func(atOnce int) aviary.QueueLimits {
			return aviary.QueueLimits{TenantAudio: time.Duration(8*atOnce) * time.Second}
		},
		before: func(atOnce int) int { return 7*atOnce - 10 },
		accept: func(atOnce int) int { return 10 + atOnce },
	},
	"both": { // near the one and then near the other
		limits: func(atOnce int) aviary.QueueLimits {
			return aviary.QueueLimits{Jobs: 1005 + atOnce, TenantJobs: 1000 + atOnce}
		},
		before: func(int) int { return 985 },
		accept: func(atOnce int) int { return 15 + atOnce },
	},
}

// Accepts go side by side far from the limit and take turns near it; in between, where some do the one and some the other, the limit holds too.
func TestPostgresLimits(t *testing.T) {
	t.Parallel()
	for name, c := range limitCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := openPostgresTest(t, Options{LockWait: time.Minute})
			two := reopenTest(t, urlOf(t, one), Options{LockWait: time.Minute, volatile: true})
			var atOnce int
			if err := one.read.QueryRowContext(t.Context(), "SELECT CAST(current_setting('max_connections') AS INTEGER)").Scan(&atOnce); err != nil {
				t.Fatal(err)
			}
			fill(t, one, c.before(atOnce))
			var accepted, refused atomic.Int64
			var wg sync.WaitGroup
			for g := range 12 {
				wg.Go(func() {
					s := []*sqlStore{one, two}[g%2]
					for n := 0; refused.Load() < 24; n++ {
						job := aviary.Job{ID: fmt.Sprintf("new_%d_%d", g, n), Audio: aviary.Audio{Duration: time.Second}}
						switch _, err := s.CreateJob(t.Context(), job, c.limits(atOnce)); {
						case err == nil:
							accepted.Add(1)
						case aviary.CodeOf(err) == aviary.CodeQueueFull, aviary.CodeOf(err) == aviary.CodeQuotaExceeded:
							refused.Add(1)
						default:
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if got, want := accepted.Load(), int64(c.accept(atOnce)); got != want {
				t.Errorf("%d jobs were accepted, want %d", got, want)
			}
		})
	}
}

func TestRoomFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		waiting aviary.Amount
		audio   time.Duration
		limits  aviary.QueueLimits
		want    bool
	}{
		"room for all":          {aviary.Amount{Jobs: 90}, time.Hour, aviary.QueueLimits{Jobs: 190}, true},
		"room for all but one":  {aviary.Amount{Jobs: 91}, time.Hour, aviary.QueueLimits{Jobs: 190}, false},
		"a small limit":         {aviary.Amount{}, 0, aviary.QueueLimits{Jobs: 99}, false},
		"a reserve":             {aviary.Amount{Audio: 700 * time.Hour}, time.Hour, aviary.QueueLimits{Audio: 800 * time.Hour}, true},
		"a reserve in use":      {aviary.Amount{Audio: 700*time.Hour + 1}, 0, aviary.QueueLimits{Audio: 800 * time.Hour}, false},
		"more than its share":   {aviary.Amount{}, time.Hour + 1, aviary.QueueLimits{Audio: 800 * time.Hour}, false},
		"jobs but not audio":    {aviary.Amount{}, time.Hour + 1, aviary.QueueLimits{Jobs: 1000, Audio: 800 * time.Hour}, false},
		"the largest of limits": {aviary.Amount{}, time.Hour, aviary.QueueLimits{Jobs: 1<<63 - 1, Audio: 1<<63 - 1}, true},
	} {
		if got := roomFor(100, c.waiting, c.audio, c.limits); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// When every shard of a counter is being written, the next transaction waits, and is counted.
func TestPostgresCountersInUse(t *testing.T) {
	t.Parallel()
	s := openPostgresTest(t, Options{})
	ctx := t.Context()
	used := func() (shards int) {
		t.Helper()
		if err := s.read.QueryRowContext(ctx, "SELECT count(*) FROM counters WHERE jobs <> 0").Scan(&shards); err != nil {
			t.Fatal(err)
		}
		return shards
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "SELECT 1 FROM counters WHERE shard < 15 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	create(t, s, aviary.Job{ID: "job_1"}) // on the one that is free, without waiting
	if n := used(); n != 1 {
		t.Errorf("one job is counted on %d shards", n)
	}
	if _, err := tx.ExecContext(ctx, "SELECT 1 FROM counters FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	second := make(chan error)
	go func() {
		_, err := s.CreateJob(ctx, aviary.Job{ID: "job_2"}, aviary.QueueLimits{})
		second <- err
	}()
	waiting := "SELECT count(*) FROM pg_stat_activity WHERE application_name = current_schema() AND wait_event_type = 'Lock'"
	for n := 0; n == 0; time.Sleep(time.Millisecond) {
		if err := s.read.QueryRowContext(ctx, waiting).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	if b, err := s.Backlog(ctx); err != nil || b.States[aviary.StateQueued] != 2 {
		t.Errorf("%+v, %v", b, err)
	}
}

// The counters of a tenant go through shards that come when they are needed, and when nothing is open nothing is left of them.
func TestPostgresTenantCounters(t *testing.T) {
	t.Parallel()
	s := openPostgresTest(t, Options{LockWait: time.Minute})
	ctx := t.Context()
	shards := func() (n, jobs int) {
		t.Helper()
		if err := s.read.QueryRowContext(ctx, "SELECT count(*), coalesce(sum(jobs), 0) FROM tenant_counters").Scan(&n, &jobs); err != nil {
			t.Fatal(err)
		}
		return n, jobs
	}
	create(t, s, aviary.Job{ID: "job_1"})
	if n, jobs := shards(); n != 1 || jobs != 1 {
		t.Errorf("one job is counted as %d on %d shards", jobs, n)
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, "SELECT 1 FROM tenant_counters FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	for n := 2; n < 40; n++ { // a session whose own shard is the one in use has to wait, so each gets its chance
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		_, err := s.CreateJob(short, aviary.Job{ID: fmt.Sprint("job_", n)}, aviary.QueueLimits{})
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if n, _ := shards(); n > 1 {
			break
		}
	}
	if n, _ := shards(); n < 2 {
		t.Error("while the only shard was in use, no accept got another one")
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	b, err := s.Backlog(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, jobs := shards(); jobs != b.States[aviary.StateQueued] {
		t.Errorf("%d jobs wait, %d are counted for their tenant", b.States[aviary.StateQueued], jobs)
	}
	if _, err := s.write.ExecContext(ctx, "DELETE FROM jobs"); err != nil {
		t.Fatal(err)
	}
	if _, jobs := shards(); jobs != 0 {
		t.Errorf("no job is there, %d are counted", jobs)
	}
	if drift, err := s.Recount(ctx); err != nil || drift != nil {
		t.Errorf("%q, %v", drift, err)
	}
	if n, _ := shards(); n != 0 {
		t.Errorf("%d shards of a tenant without jobs are left after a recount", n)
	}
}

// TestPostgresCallOutOfTime: what takes longer than a call may is unavailable, and has changed nothing; a caller who gave up hears of that instead.
func TestPostgresCallOutOfTime(t *testing.T) {
	t.Parallel()
	s := openPostgresTest(t, Options{LockWait: time.Minute})
	tx, err := s.write.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "LOCK TABLE jobs"); err != nil {
		t.Fatal(err)
	}
	s.longestCall = 100 * time.Millisecond
	if _, err := s.CreateJob(t.Context(), aviary.Job{ID: "job_1"}, aviary.QueueLimits{}); aviary.CodeOf(err) != aviary.CodeStoreUnavailable {
		t.Errorf("a call out of time: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.CreateJob(short, aviary.Job{ID: "job_1"}, aviary.QueueLimits{}); !errors.Is(err, context.DeadlineExceeded) || aviary.CodeOf(err) == aviary.CodeStoreUnavailable {
		t.Errorf("a caller out of time: %v", err)
	}
	s.longestCall = time.Minute
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Job(t.Context(), "job_1"); aviary.CodeOf(err) != aviary.CodeNotFound {
		t.Errorf("the job that was refused: %v", err)
	}
}

// TestEndOfTime: database/sql says that there is no transaction when its context ended between two statements.
func TestEndOfTime(t *testing.T) {
	t.Parallel()
	s := &sqlStore{}
	over, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for _, c := range []struct {
		name       string
		callers    bool // it is the caller's time that is over
		committing bool
		err        error
		code       aviary.Code
		deadline   bool
	}{
		{"the caller's", true, false, sql.ErrTxDone, aviary.CodeInternal, true},
		{"ours", false, false, sql.ErrTxDone, aviary.CodeStoreUnavailable, true},
		{"ours, in the middle of a commit", false, true, context.DeadlineExceeded, aviary.CodeInternal, true},
		{"another failure", false, false, errors.New("disk"), aviary.CodeInternal, false},
	} {
		caller := t.Context()
		if c.callers {
			caller = over
		}
		err := s.endOfTime(caller, over, "op", c.committing, c.err)
		if aviary.CodeOf(err) != c.code || errors.Is(err, context.DeadlineExceeded) != c.deadline {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
