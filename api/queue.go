package api

import (
	"math"
	"net/http"
	"time"

	"github.com/aviary-asr/aviary"
)

// Queue is the backlog in flat numbers, for people and autoscalers. Audio is in seconds.
type Queue struct {
	Object              string  `json:"object"` // "queue"
	JobsQueued          int     `json:"jobs_queued"`
	JobsRunning         int     `json:"jobs_running"`
	AudioSecondsQueued  float64 `json:"audio_seconds_queued"`
	AudioSecondsRunning float64 `json:"audio_seconds_running"`
	OldestAgeSeconds    float64 `json:"oldest_age_seconds"` // of the oldest queued job

	JobsQueuedInteractive         int     `json:"jobs_queued_interactive"`
	JobsQueuedBulk                int     `json:"jobs_queued_bulk"`
	AudioSecondsQueuedInteractive float64 `json:"audio_seconds_queued_interactive"`
	AudioSecondsQueuedBulk        float64 `json:"audio_seconds_queued_bulk"`
	OldestAgeSecondsInteractive   float64 `json:"oldest_age_seconds_interactive"`
	OldestAgeSecondsBulk          float64 `json:"oldest_age_seconds_bulk"`

	// DemandWorkerEquivalents is how many workers would do the queued and the running work within the drain target. It is 0 only when there
	// is none; rounding is upwards.
	DemandWorkerEquivalents float64 `json:"demand_worker_equivalents"`
	WorkersWanted           int     `json:"workers_wanted"` // the next whole number

	Throughput
}

// Throughput is how fast the system works, by what it finished in the last 5 minutes, and how long it will take at that speed for all that waits and runs.
// Both are absent as long as the speed is not known: after a start, and while nothing is finished.
type Throughput struct {
	AudioSecondsPerSecond *float64 `json:"throughput_audio_seconds_per_second,omitempty"`
	ExpectedWaitSeconds   *float64 `json:"expected_wait_seconds,omitempty"`
}

// queue answers with the backlog.
func (s *Server) queue(x *exchange, r *http.Request) error {
	if _, err := params(r); err != nil {
		return err
	}
	b, err := s.Store.Backlog(r.Context())
	if err != nil {
		return err
	}
	q := newQueue(b, s.WorkerRTFx, s.DrainTarget)
	q.Throughput = s.throughput(b)
	return x.reply(http.StatusOK, q)
}

// throughput is what is known of it.
func (s *Server) throughput(b aviary.Backlog) Throughput {
	if s.Intake.Rate == nil {
		return Throughput{}
	}
	rate, ok := s.Intake.Rate()
	if !ok || !finite(rate) || rate <= 0 {
		return Throughput{}
	}
	shown := round(rate, 3)
	wait := round((b.Queued().Audio+b.Running.Audio).Seconds()/rate, 3)
	return Throughput{&shown, &wait}
}

func newQueue(b aviary.Backlog, rtfx float64, drain time.Duration) Queue {
	queued := b.Queued()
	interactive, bulk := b.Classes[aviary.PriorityInteractive], b.Classes[aviary.PriorityBulk]
	q := Queue{
		Object:     "queue",
		JobsQueued: queued.Jobs, JobsRunning: b.Running.Jobs,
		AudioSecondsQueued: seconds(queued.Audio), AudioSecondsRunning: seconds(b.Running.Audio),
		OldestAgeSeconds:      seconds(b.Oldest),
		JobsQueuedInteractive: interactive.Jobs, AudioSecondsQueuedInteractive: seconds(interactive.Audio),
		OldestAgeSecondsInteractive: seconds(interactive.Oldest),
		JobsQueuedBulk:              bulk.Jobs, AudioSecondsQueuedBulk: seconds(bulk.Audio), OldestAgeSecondsBulk: seconds(bulk.Oldest),
	}
	workers := (queued.Audio + b.Running.Audio).Seconds() / (rtfx * drain.Seconds())
	q.DemandWorkerEquivalents = math.Ceil(workers*1000) / 1000
	q.WorkersWanted = int(math.Ceil(q.DemandWorkerEquivalents))
	return q
}
