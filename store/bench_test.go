package store

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest"
)

// benchRows is how many jobs wait in the store while something is measured.
const benchRows = 100_000

// benchEach measures on each kind of database as it is used, on the disk of the temporary folder, with many jobs in it.
func benchEach(b *testing.B, measure func(b *testing.B, s *sqlStore)) {
	for _, c := range []struct {
		name    string
		backend storetest.Backend
	}{{"sqlite", durable}, {"postgres", durablePostgres}} {
		b.Run(c.name, func(b *testing.B) {
			s := reopenTest(b, c.backend.New(b), Options{})
			fill(b, s, benchRows)
			if c.name == "postgres" { // as autovacuum would in a minute
				if _, err := s.write.ExecContext(b.Context(), "VACUUM ANALYZE jobs"); err != nil {
					b.Fatal(err)
				}
			}
			measure(b, s)
		})
	}
}

// benchAtOnce does something b.N times, one at a time and from 16 goroutines.
func benchAtOnce(b *testing.B, do func(n int64) error) {
	var n atomic.Int64
	for _, goroutines := range []int{1, 16} {
		b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) {
			b.SetParallelism((goroutines + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0))
			if goroutines == 1 {
				for b.Loop() {
					if err := do(n.Add(1)); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := do(n.Add(1)); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// Accepting one job a commit.
func BenchmarkAccept(b *testing.B) {
	benchEach(b, func(b *testing.B, s *sqlStore) {
		limits := aviary.QueueLimits{Jobs: 1 << 40, Audio: 1 << 60}
		benchAtOnce(b, func(n int64) error {
			id := fmt.Sprint("new_", n)
			_, err := s.CreateJob(b.Context(), aviary.Job{ID: id, BlobKey: id, Audio: aviary.Audio{Duration: time.Minute}}, limits)
			return err
		})
	})
}

// A job from handed over to succeeded, with its transcript: three commits.
func BenchmarkDispatchClaimFinish(b *testing.B) {
	transcript := aviary.Transcript{Text: "one two three", Segments: []aviary.Segment{{Text: "one two three"}}}
	benchEach(b, func(b *testing.B, s *sqlStore) {
		ctx := b.Context()
		benchAtOnce(b, func(int64) error {
			tickets, err := handOver(ctx, s, aviary.PriorityBulk, 1)
			if err != nil || len(tickets) != 1 {
				return fmt.Errorf("%d tickets: %w", len(tickets), err)
			}
			job, err := s.StartAttempt(ctx, tickets[0], aviary.Claim{Worker: "w", Device: "d", Lease: time.Minute})
			if err != nil {
				return err
			}
			return s.FinishAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}, transcript)
		})
	})
}

// What is asked all the time, with many jobs waiting.
func BenchmarkReads(b *testing.B) {
	benchEach(b, func(b *testing.B, s *sqlStore) {
		ctx := b.Context()
		for name, read := range map[string]func() error{
			"job":                func() error { _, err := s.Job(ctx, "job_50000"); return err },
			"backlog":            func() error { _, err := s.Backlog(ctx); return err },
			"ahead, at the head": func() error { _, _, err := s.QueueAhead(ctx, aviary.Job{ID: "job_100"}); return err },
			"ahead, in between":  func() error { _, _, err := s.QueueAhead(ctx, aviary.Job{ID: "job_50000"}); return err },
			"first page of 50":   func() error { _, err := s.Jobs(ctx, aviary.JobQuery{Limit: 50}); return err },
			"nothing to reap":    func() error { _, err := s.ReapLost(ctx, 100); return err },
		} {
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					if err := read(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

// A store of a million rows: what has ended lies before what runs and what waits. 189,800 wait and 200 have been handed over, of 50 tenants; 1,000 run;
// of the others most have succeeded, and most of their audio is gone.
const (
	millionRows = 1_000_000
	millionSQL  = `
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)
INSERT INTO jobs (id, state, priority, tenant, max_attempts, created_at, name, attention_mode, container, codec, sample_rate, channels,
	audio_us, audio_bytes, audio_sha256, blob_key, audio_key, audio_gone, finished_at, expired_at, attention, dispatched_at, lease_until, deadline, node)
SELECT 'job_' || n,
	CASE WHEN n <= 69000 THEN 'expired' WHEN n > 810000 THEN 'queued' WHEN n > 809000 THEN 'running'
		WHEN n % 50 = 0 THEN 'failed' WHEN n % 50 = 1 THEN 'canceled' ELSE 'succeeded' END,
	CASE WHEN n % 100 = 0 THEN 'interactive' ELSE 'bulk' END, 'tenant_' || (n % 50), 3, CAST($2 AS BIGINT) + n, '', '', 'flac', 'flac', 16000, 1,
	60000000, 1, '', 'job_' || n, 'job_' || n || '.flac', CASE WHEN n <= 700000 THEN 1 ELSE 0 END,
	CASE WHEN n <= 809000 THEN CAST($2 AS BIGINT) + n END, CASE WHEN n <= 69000 THEN CAST($2 AS BIGINT) + n END,
	CASE WHEN n <= 809000 AND n % 50 > 1 THEN '{"mode":"full"}' END, CASE WHEN n BETWEEN 810001 AND 810200 THEN CAST($2 AS BIGINT) + n END,
	CASE WHEN n BETWEEN 809001 AND 810000 THEN CAST($2 AS BIGINT) + 3600000000 + n END,
	CASE WHEN n BETWEEN 809001 AND 810000 THEN CAST($2 AS BIGINT) + 3600000000 + n END, 'node'
FROM numbers`
	processedMillionSQL = `
UPDATE processed SET (jobs, audio_us) = (SELECT count(*), 60000000 * count(*) FROM jobs WHERE attention IS NOT NULL) WHERE shard = 0`
)

// What a leader does again and again, and what it must not cost: with a million rows.
func BenchmarkReconcile(b *testing.B) {
	for _, c := range []struct {
		name    string
		backend storetest.Backend
		after   string
	}{{"sqlite", durable, "PRAGMA optimize"}, {"postgres", durablePostgres, "VACUUM ANALYZE"}} {
		b.Run(c.name, func(b *testing.B) {
			s := reopenTest(b, c.backend.New(b), Options{})
			load := func(query string, args ...any) {
				b.Helper()
				if _, err := s.write.ExecContext(b.Context(), query, args...); err != nil {
					b.Fatal(err)
				}
			}
			if c.name == "postgres" { // the load takes longer than anything else may
				s.write.SetMaxOpenConns(1)
				load("SET statement_timeout = 0")
			}
			load(millionSQL, millionRows, time.Now().Add(-time.Second).UnixMicro())
			load(processedMillionSQL)
			load(c.after)
			benchReconcile(b, s)
		})
	}
}

// wide limits have to be looked at, and hold nobody up.
var wide = aviary.QueueLimits{Jobs: 1 << 40, Audio: 1 << 62, TenantJobs: 1 << 40, TenantAudio: 1 << 62}

func benchReconcile(b *testing.B, s *sqlStore) {
	ctx := b.Context()
	bulk := aviary.PriorityBulk
	waiting, err := s.Waiting(ctx, bulk, 1000)
	if err != nil {
		b.Fatal(err)
	}
	next := 0
	twenty := func() (ids []string) {
		for range 20 {
			ids = append(ids, waiting[next%len(waiting)].JobID)
			next++
		}
		return ids
	}
	var keys []string
	for n := range 50 {
		id := fmt.Sprint("job_", 1+n*19_000)
		keys = append(keys, id, id+".flac")
	}
	for _, c := range []struct {
		name string
		want int // results of each call
		call func() (int, error)
	}{
		{"ReapLost, none", 0, func() (int, error) { return count(s.ReapLost(ctx, 100)) }},
		{"ReapOverdue, none", 0, func() (int, error) { return count(s.ReapOverdue(ctx, time.Minute, 100)) }},
		{"TakeOver, none", 0, func() (int, error) {
			return count(s.TakeOver(ctx, aviary.Claim{Worker: "w", Node: "other", Device: "d"}))
		}},
		{"Stranded, none", 0, func() (int, error) { return count(s.Stranded(ctx, time.Hour, 100)) }},
		{"Stranded, 100 of 200", 100, func() (int, error) { return count(s.Stranded(ctx, 0, 100)) }},
		{"Dispatched, 200", -1, func() (int, error) { return s.Dispatched(ctx, bulk) }},
		{"Waiting, 50 tenants, 1 of each", 50, func() (int, error) { return count(s.Waiting(ctx, bulk, 1)) }},
		{"Waiting, 50 tenants, 20 of each", 1000, func() (int, error) { return count(s.Waiting(ctx, bulk, 20)) }},
		{"Dispatch 20", 20, func() (int, error) { return count(s.Dispatch(ctx, twenty())) }},
		{"Backlog", -1, func() (int, error) { b, err := s.Backlog(ctx); return b.Running.Jobs, err }},
		{"Processed", -1, func() (int, error) { a, err := s.Processed(ctx); return a.Jobs, err }},
		{"Lead", -1, func() (int, error) { _, err := s.Lead(ctx, "me", time.Minute); return 0, err }},
		{"ExpireOld, none", 0, func() (int, error) { return count(s.ExpireOld(ctx, time.Hour, 100)) }},
		{"ExpireOld, 100", 100, func() (int, error) { return count(s.ExpireOld(ctx, 0, 100)) }},
		{"DropAudio, none", 0, func() (int, error) { return count(s.DropAudio(ctx, time.Hour, 100)) }},
		{"DropAudio, 100", 100, func() (int, error) { return count(s.DropAudio(ctx, 0, 100)) }},
		{"DropTombstones, 100", 100, func() (int, error) { return s.DropTombstones(ctx, 0, 100) }},
		{"Unwanted, 100 keys", -1, func() (int, error) { return count(s.Unwanted(ctx, keys)) }},
		{"CreateJob, within a quota", -1, func() (int, error) {
			next++
			_, err := s.CreateJob(ctx, aviary.Job{ID: fmt.Sprint("new_", next), Tenant: "tenant_1", RequestKey: fmt.Sprint(next)}, wide)
			return 0, err
		}},
		{"Recount", 0, func() (int, error) { return count(s.Recount(ctx)) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				if n, err := c.call(); err != nil || c.want >= 0 && n != c.want {
					b.Fatalf("%d results, want %d; %v", n, c.want, err)
				}
			}
		})
	}
}

func count[T any](list []T, err error) (int, error) { return len(list), err }
