package api

import (
	"errors"
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
	return x.reply(http.StatusOK, newQueue(b, s.WorkerRTFx, s.DrainTarget))
}

func newQueue(b aviary.Backlog, rtfx float64, drain time.Duration) Queue {
	queued := queuedIn(b)
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

func queuedIn(b aviary.Backlog) aviary.Amount {
	var sum aviary.Amount
	for _, c := range b.Classes {
		sum.Jobs += c.Jobs
		sum.Audio += c.Audio
	}
	return sum
}

// withQueueWait adds to queue_full when a place is likely to be free: when one worker has done the average job that waits, 1 s to 5 min.
func (s *Server) withQueueWait(r *http.Request, err error) error {
	var e *aviary.Error
	if !errors.As(err, &e) || e.Wait > 0 {
		return err
	}
	timed := *e
	timed.Wait = 30 * time.Second
	if b, berr := s.Store.Backlog(r.Context()); berr == nil {
		if queued := queuedIn(b); queued.Jobs > 0 {
			timed.Wait = time.Duration(float64(queued.Audio) / float64(queued.Jobs) / s.WorkerRTFx)
		}
	}
	timed.Wait = min(max(timed.Wait, time.Second), 5*time.Minute)
	return &timed
}
