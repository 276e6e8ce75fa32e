package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/aviary-asr/aviary"
)

func newSweepCounters(counter func(name, help string) prometheus.Counter) sweepCounters {
	return sweepCounters{
		overdue:    counter("attempts_overdue_total", "Attempts ended because they ran longer than they may, though their worker still renewed its lease."),
		requeued:   counter("reenqueued_total", "Jobs handed to the queue again."),
		wiped:      counter("redis_wiped_total", "Times that Redis was found emptied, or back without its data; every wipe is repaired. One that is new is not counted."),
		debris:     counter("redis_debris_total", "Dead tasks and other remains removed from Redis."),
		drift:      counter("counter_drift_total", "Counters of the store that a recount found wrong, and set right."),
		blobs:      counter("blobs_collected_total", "Blobs deleted that belonged to no job."),
		refused:    counter("blob_collections_refused_total", "Scans that found so many blobs without a job that they deleted none: the log says what to do."),
		audio:      counter("audio_expired_total", "Jobs whose audio was deleted at the end of its retention."),
		expired:    counter("jobs_expired_total", "Jobs purged at the end of their retention."),
		tombstones: counter("tombstones_dropped_total", "Rows of purged jobs deleted at the end of their retention."),
	}
}

// Braked says whether a sweep holds bulk jobs back, because too many attempts are lost.
func (m *Metrics) Braked(on bool) { m.braked.Store(on) }

// AttemptsOverdue counts attempts that a sweep ended because they ran for too long.
func (m *Metrics) AttemptsOverdue(n int) { m.observe(m.sweeps.overdue.Add, float64(n)) }

// JobsQuarantined counts, among the finished jobs, those that somebody else than their worker failed because they had lost too many workers. Those whose last
// attempt was overdue are not told apart, so that all count as worker_lost.
func (m *Metrics) JobsQuarantined(n int) {
	m.observe(m.finished.WithLabelValues(string(aviary.StateFailed), string(aviary.CodeWorkerLost)).Add, float64(n))
}

// Reenqueued counts jobs that a sweep handed over again.
func (m *Metrics) Reenqueued(n int) { m.observe(m.sweeps.requeued.Add, float64(n)) }

// RedisWiped counts a Redis that was found emptied.
func (m *Metrics) RedisWiped() { m.sweeps.wiped.Inc() }

// RedisDebris counts what a sweep removed from Redis.
func (m *Metrics) RedisDebris(n int) { m.observe(m.sweeps.debris.Add, float64(n)) }

// CounterDrift counts counters that a recount set right.
func (m *Metrics) CounterDrift(n int) { m.observe(m.sweeps.drift.Add, float64(n)) }

// BlobsCollected counts deleted blobs that belonged to no job.
func (m *Metrics) BlobsCollected(n int) { m.observe(m.sweeps.blobs.Add, float64(n)) }

// BlobsRefused counts scans that found so many blobs without a job that they deleted none.
func (m *Metrics) BlobsRefused() { m.sweeps.refused.Inc() }

// AudioExpired counts jobs whose audio was deleted for its age.
func (m *Metrics) AudioExpired(n int) { m.observe(m.sweeps.audio.Add, float64(n)) }

// JobsExpired counts jobs that were purged for their age.
func (m *Metrics) JobsExpired(n int) { m.observe(m.sweeps.expired.Add, float64(n)) }

// TombstonesDropped counts rows of purged jobs that were deleted for their age.
func (m *Metrics) TombstonesDropped(n int) { m.observe(m.sweeps.tombstones.Add, float64(n)) }

// canceledWaiting counts a job that was canceled before any attempt had it.
func (m *Metrics) canceledWaiting() {
	if m != nil {
		m.finished.WithLabelValues(string(aviary.StateCanceled), string(aviary.CodeCanceled)).Inc()
	}
}
