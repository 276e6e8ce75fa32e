package store

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// benchRows is how many jobs wait in the store while something is measured.
const benchRows = 100_000

// benchStore is a store as it is used, on the disk of the temporary folder, with many jobs in it.
func benchStore(b *testing.B) *sqlStore {
	b.Helper()
	s := reopenTest(b, durable.New(b), Options{})
	fill(b, s, benchRows)
	b.ResetTimer()
	return s
}

func perSecond(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s") }

// Accepting one job a commit, one at a time and from 16 goroutines.
func BenchmarkAccept(b *testing.B) {
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprint("writers=", writers), func(b *testing.B) {
			s := benchStore(b)
			var n atomic.Int64
			limits := aviary.QueueLimits{Jobs: 1 << 40, Audio: 1 << 60}
			b.SetParallelism(writers)
			accept := func() error {
				id := fmt.Sprint("new_", n.Add(1))
				_, err := s.CreateJob(b.Context(), aviary.Job{ID: id, BlobKey: id, Audio: aviary.Audio{Duration: time.Minute}}, limits)
				return err
			}
			if writers == 1 {
				for b.Loop() {
					if err := accept(); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := accept(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			perSecond(b)
		})
	}
}

// A job from handed over to succeeded, with its transcript: three commits.
func BenchmarkDispatchClaimFinish(b *testing.B) {
	s := benchStore(b)
	ctx := b.Context()
	transcript := aviary.Transcript{Text: "one two three", Segments: []aviary.Segment{{Text: "one two three"}}}
	for b.Loop() {
		tickets, err := s.Dispatch(ctx, aviary.PriorityBulk, 1)
		if err != nil || len(tickets) != 1 {
			b.Fatal(tickets, err)
		}
		job, err := s.StartAttempt(ctx, tickets[0], aviary.Claim{Worker: "w", Device: "d", Lease: time.Minute})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.FinishAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}, transcript); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
}

// What is asked all the time, with many jobs waiting.
func BenchmarkReads(b *testing.B) {
	s := benchStore(b)
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
}
