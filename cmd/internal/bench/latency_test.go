package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aviary-asr/aviary"
)

// BenchmarkLatency is the time from before a job is accepted until a worker has claimed it, p50 and p99 of b.N jobs, one at a time with pauses in
// between. Idle, one lane waits for it. Behind a backlog, four lanes are busy with bulk jobs of another tenant that take 100 ms each, of which
// 100,000 wait: the best that can be had is the time until one of the four ends. Plain asynq has strict priorities, and the bulk in a queue of its own.
func BenchmarkLatency(b *testing.B) {
	const work = 100 * time.Millisecond
	for _, c := range []struct {
		name    string
		waiting int
		lanes   int
	}{{"idle", 0, 1}, {"behind", backlog(100_000), 4}} {
		b.Run(c.name, func(b *testing.B) {
			for _, d := range databases {
				b.Run("aviary/"+d.name, func(b *testing.B) { aviaryLatency(b, d, c.waiting, c.lanes, work) })
			}
			for _, poll := range []time.Duration{plainPoll, 200 * time.Millisecond} {
				b.Run(fmt.Sprint("asynq/poll=", poll), func(b *testing.B) { plainLatency(b, poll, c.waiting, c.lanes, work) })
			}
		})
	}
}

func aviaryLatency(b *testing.B, d database, waiting, lanes int, work time.Duration) {
	s := d.openStore(b, waiting)
	started := make(chan time.Time, 1)
	dispatcher := startAviary(b, startRedis(b, "everysec"), &idler{store: s, work: work, started: func(job aviary.Job) {
		if job.Options.Priority == aviary.PriorityInteractive {
			started <- time.Now()
		}
	}}, lanes)
	measureLatency(b, started, func(id string) error {
		_, err := s.CreateJob(b.Context(), newJob(id, aviary.PriorityInteractive), limits)
		dispatcher.Wake()
		return err
	})
	if left, err := s.Backlog(b.Context()); err != nil || waiting > 0 && left.Queued().Jobs == 0 {
		b.Errorf("the backlog was worked off while something was to be measured behind it, or %v", err)
	}
}

func plainLatency(b *testing.B, poll time.Duration, waiting, lanes int, work time.Duration) {
	socket := startRedis(b, "everysec")
	client := plainClient(b, socket)
	atOnce(b, waiting, func(n int) error {
		id := fmt.Sprint("bulk_", n)
		return enqueue(client, id, "bulk", payload(id))
	})
	started := make(chan time.Time, 1)
	startPlain(b, socket, lanes, poll, func(ctx context.Context, _ *asynq.Task) error {
		if queue, _ := asynq.GetQueueName(ctx); queue == "interactive" {
			started <- time.Now()
		} else {
			time.Sleep(work)
		}
		return nil
	})
	measureLatency(b, started, func(id string) error { return enqueue(client, id, "interactive", payload(id)) })
}

// measureLatency accepts b.N jobs, each some time after the one before has started.
func measureLatency(b *testing.B, started <-chan time.Time, accept func(id string) error) {
	var n int
	b.Run("jobs", func(b *testing.B) { // b.N jobs on what was set up once
		const longestPause = 500 * time.Millisecond // longer than a poll of ours, and not in step with any
		took := make([]time.Duration, b.N)
		for i := range took {
			time.Sleep(rand.N(longestPause)) //nolint:gosec // no secret
			n++
			began := time.Now()
			if err := accept(fmt.Sprint("job_now_", n)); err != nil {
				b.Fatal(err)
			}
			select {
			case at := <-started:
				took[i] = at.Sub(began)
			case <-time.After(time.Minute):
				b.Fatal("the job did not start within a minute")
			}
		}
		slices.Sort(took)
		for _, p := range []int{50, 99} {
			b.ReportMetric(took[(len(took)*p+99)/100-1].Seconds()*1000, fmt.Sprintf("p%d-ms", p))
		}
		b.ReportMetric(0, "ns/op") // it is of pauses
	})
}
