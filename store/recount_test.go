package store

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest"
)

// fourJobs are three that wait, of two tenants, and one that has succeeded, of a third.
func fourJobs(t *testing.T, s *sqlStore) {
	t.Helper()
	ctx := t.Context()
	for _, job := range []aviary.Job{{ID: "a1", Tenant: "a"}, {ID: "a2", Tenant: "a"}, {ID: "b1", Tenant: "b"}, {ID: "c1", Tenant: "c"}} {
		job.Options.Priority, job.Audio.Duration = aviary.PriorityBulk, time.Second
		create(t, s, job)
	}
	tickets, err := s.Dispatch(ctx, []string{"c1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartAttempt(ctx, tickets[0], aviary.Claim{Lease: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishAttempt(ctx, aviary.AttemptRef{JobID: "c1", Attempt: 1}, aviary.Transcript{}); err != nil {
		t.Fatal(err)
	}
}

// Counters that are off, in whatever way, are named and set right.
func TestRecount(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, b storetest.Backend) {
		s := reopenTest(t, b.New(t), Options{volatile: true})
		ctx := t.Context()
		fourJobs(t, s)
		right, err := s.Backlog(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, statement := range []string{
			`UPDATE counters SET jobs = jobs + 2, audio_us = audio_us - 500000 WHERE state = 'queued' AND priority = 'bulk' AND shard = 0`,
			`UPDATE counters SET jobs = 7 WHERE state = 'failed' AND priority = 'interactive' AND shard = 0`,
			`UPDATE processed SET jobs = jobs - 1 WHERE jobs > 0`,
			`UPDATE tenant_counters SET jobs = 5 WHERE tenant = 'a'`,
			`DELETE FROM tenant_counters WHERE tenant = 'b'`,
			`INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us) VALUES ('d', 'running', 'bulk', 3, 1, 1)`,
			`INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us) VALUES ('e', 'running', 'bulk', 3, 1, 1)`,
			`INSERT INTO tenant_counters (tenant, state, priority, shard, jobs, audio_us) VALUES ('e', 'running', 'bulk', 4, -1, -1)`,
		} {
			if _, err := s.write.ExecContext(ctx, statement); err != nil {
				t.Fatal(err)
			}
		}
		drift, err := s.Recount(ctx)
		want := []string{
			`failed interactive: 7 jobs of 0s were counted, there are 0 of 0s.`,
			`queued bulk: 5 jobs of 2.5s were counted, there are 3 of 3s.`,
			`processed: 0 jobs of 1s were counted, there are 1 of 1s.`,
			`queued bulk of tenant "a": 5 jobs of 2s were counted, there are 2 of 2s.`,
			`queued bulk of tenant "b": 0 jobs of 0s were counted, there are 1 of 1s.`,
			`running bulk of tenant "d": 1 jobs of 1µs were counted, there are 0 of 0s.`,
		}
		if err != nil || !slices.Equal(drift, want) {
			t.Errorf("%v\n got %s\nwant %s", err, strings.Join(drift, "\n     "), strings.Join(want, "\n     "))
		}
		if drift, err := s.Recount(ctx); err != nil || drift != nil {
			t.Errorf("once more: %q, %v", drift, err)
		}
		now, err := s.Backlog(ctx)
		if err != nil || !maps.Equal(now.States, right.States) || now.Classes[aviary.PriorityBulk].Amount != right.Classes[aviary.PriorityBulk].Amount {
			t.Errorf("the backlog is %+v, %v, want %+v", now, err, right)
		}
		var rows int
		if err := s.read.QueryRowContext(ctx, `SELECT count(*) FROM tenant_counters`).Scan(&rows); err != nil || rows != 2 {
			t.Errorf("%d counters of tenants, %v; want one for each that has something open", rows, err)
		}
	})
}

// What has been counted between the look at the rows and the correction is not lost, and two that correct at once correct once.
func TestRecountWhileWorking(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, _ string, b storetest.Backend) {
		url := b.New(t)
		s := reopenTest(t, url, Options{LockWait: time.Minute, volatile: true})
		two := reopenTest(t, url, Options{LockWait: time.Minute, volatile: true})
		ctx := t.Context()
		create(t, s, aviary.Job{ID: "first", Tenant: "a"})
		const rounds, writers, each = 3, 3, 10
		for round := range rounds {
			for _, statement := range []string{
				`UPDATE counters SET jobs = jobs + 100 WHERE state = 'queued' AND priority = 'bulk' AND shard = 0`,
				`UPDATE tenant_counters SET jobs = jobs + 100`,
			} {
				if _, err := s.write.ExecContext(ctx, statement); err != nil {
					t.Fatal(err)
				}
			}
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for n := range each {
						id := strings.Repeat("x", 1+round) + strings.Repeat("y", 1+w) + strings.Repeat("z", 1+n)
						job := aviary.Job{ID: id, Tenant: "a", Options: aviary.Options{Priority: aviary.PriorityBulk}}
						if _, err := s.CreateJob(ctx, job, aviary.QueueLimits{}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			for _, s := range []*sqlStore{s, two, s, two} {
				wg.Go(func() {
					if _, err := s.Recount(ctx); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if drift, err := s.Recount(ctx); err != nil || drift != nil {
				t.Fatalf("round %d: %q, %v", round, drift, err)
			}
		}
		if b, err := s.Backlog(ctx); err != nil || b.States[aviary.StateQueued] != 1+rounds*writers*each {
			t.Errorf("%+v, %v", b, err)
		}
	})
}
