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
			tickets, err := s.Dispatch(ctx, aviary.PriorityBulk, 1)
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
