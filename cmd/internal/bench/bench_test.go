package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/aviary-asr/aviary"
)

// BenchmarkAccept is one accepted job after another: a commit in the store, or a task in Redis. A commit survives the loss of power. A task does so with
// fsync=always only; and with a row in a database beside it, which is what a plain user has, if jobs are to be listed.
func BenchmarkAccept(b *testing.B) {
	for _, d := range databases {
		b.Run("aviary/"+d.name, func(b *testing.B) {
			s := d.openStore(b, 0)
			acceptAtOnce(b, func(id string) error {
				_, err := s.CreateJob(b.Context(), newJob(id, aviary.PriorityBulk), limits)
				return err
			})
		})
	}
	for _, fsync := range []string{"everysec", "always"} {
		b.Run("asynq/fsync="+fsync, func(b *testing.B) {
			client := plainClient(b, startRedis(b, fsync))
			acceptAtOnce(b, func(id string) error { return enqueue(client, id, "bulk", payload(id)) })
		})
	}
	for _, d := range databases {
		b.Run("asynq+row/"+d.name, func(b *testing.B) {
			client, rows := plainClient(b, startRedis(b, "everysec")), d.plainRows(b)
			acceptAtOnce(b, func(id string) error {
				if err := rows.insert(b.Context(), id); err != nil {
					return err
				}
				return enqueue(client, id, "bulk", payload(id))
			})
		})
	}
}

// acceptAtOnce accepts b.N jobs from one goroutine, and b.N from 16.
func acceptAtOnce(b *testing.B, accept func(id string) error) {
	var n atomic.Int64
	next := func() error { return accept(fmt.Sprint("job_", n.Add(1))) }
	for _, goroutines := range []int{1, 16} {
		b.Run(fmt.Sprint("goroutines=", goroutines), func(b *testing.B) {
			if goroutines == 1 {
				for range b.N {
					if err := next(); err != nil {
						b.Fatal(err)
					}
				}
			} else {
				procs := runtime.GOMAXPROCS(0)
				b.SetParallelism((goroutines + procs - 1) / procs)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := next(); err != nil {
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

// BenchmarkProcess is b.N waiting jobs, from the start of the worker until the last has finished, with work that takes no time. Aviary's take part in
// three commits: handed over (many in one), claimed, and finished with their result. Those of plain asynq take part in none, or in one that writes row and result.
func BenchmarkProcess(b *testing.B) {
	for _, lanes := range []int{1, 4} {
		b.Run(fmt.Sprint("lanes=", lanes), func(b *testing.B) {
			for _, d := range databases {
				b.Run("aviary/"+d.name, func(b *testing.B) {
					s := d.openStore(b, b.N)
					socket := startRedis(b, "everysec")
					untilDone(b, func(finished func(error)) { startAviary(b, socket, &idler{store: s, finished: finished}, lanes) })
					if done, err := s.Processed(b.Context()); err != nil || done.Jobs != b.N {
						b.Errorf("%d of %d jobs succeeded, %v", done.Jobs, b.N, err)
					}
				})
			}
			b.Run("asynq", func(b *testing.B) {
				plainProcess(b, lanes, func(context.Context, string) error { return nil })
			})
			for _, d := range databases {
				b.Run("asynq+row/"+d.name, func(b *testing.B) {
					rows := d.plainRows(b)
					body, err := json.Marshal(transcript)
					if err != nil {
						b.Fatal(err)
					}
					atOnce(b, b.N, func(n int) error { return rows.insert(b.Context(), fmt.Sprint("job_", n)) })
					plainProcess(b, lanes, func(ctx context.Context, id string) error { return rows.finish(ctx, id, string(body)) })
				})
			}
		})
	}
}

// plainProcess has asynq work off b.N tasks.
func plainProcess(b *testing.B, lanes int, handle func(ctx context.Context, id string) error) {
	socket := startRedis(b, "everysec")
	client := plainClient(b, socket)
	atOnce(b, b.N, func(n int) error {
		id := fmt.Sprint("job_", n)
		return enqueue(client, id, "bulk", payload(id))
	})
	untilDone(b, func(finished func(error)) {
		startPlain(b, socket, lanes, plainPoll, func(ctx context.Context, task *asynq.Task) error {
			err := handle(ctx, task.ResultWriter().TaskID())
			finished(err)
			return err
		})
	})
}

// untilDone measures from start until b.N jobs have finished.
func untilDone(b *testing.B, start func(finished func(error))) {
	b.Helper()
	done, failed := make(chan struct{}), make(chan error, 1)
	var n atomic.Int64
	b.ResetTimer()
	start(func(err error) {
		if err != nil {
			select {
			case failed <- err:
			default:
			}
			return
		}
		if n.Add(1) == int64(b.N) {
			close(done)
		}
	})
	select {
	case <-done:
	case err := <-failed:
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
