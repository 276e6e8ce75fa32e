package api

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/aviary-asr/aviary"
)

// MetricsConfig says where the gauges come from. All but Log may be nil: what is not there is not exported.
type MetricsConfig struct {
	Store interface {
		Backlog(ctx context.Context) (aviary.Backlog, error)
		Processed(ctx context.Context) (aviary.Totals, error)
	}
	Blobs interface {
		FreeBytes(ctx context.Context) (int64, error)
	}
	// Redis looks at the Redis of the queue. An error says that it does not answer, which is a value and fails no scrape: jobs are accepted all the same.
	Redis func(ctx context.Context) (RedisState, error)
	// Rate is the throughput of the whole system, where it is known; see aviary.Meter.
	Rate func() (audioPerSecond float64, ok bool)
	// Leads says whether this process dispatches, sweeps and keeps house for all.
	Leads   func() bool
	Version string
	Log     *slog.Logger
}

// RedisState is what a Redis tells of itself; -1 stands for what it does not tell.
type RedisState struct {
	UsedBytes, MaxBytes int64 // of memory; a MaxBytes of zero is no limit
	EvictedKeys         int64 // since it started: it must not evict
}

// collector reads gauges at scrape time.
type collector struct {
	MetricsConfig
	braked *atomic.Bool
}

var (
	descJobs = prometheus.NewDesc(metricPrefix+"jobs",
		"Jobs by status; queued ones also by priority, the others with the priority all.", []string{"status", "priority"}, nil)
	descBacklog  = prometheus.NewDesc(metricPrefix+"queue_backlog_audio_seconds", "Audio of queued jobs.", []string{"priority"}, nil)
	descInflight = prometheus.NewDesc(metricPrefix+"inflight_audio_seconds", "Audio of running jobs.", nil, nil)
	descOldest   = prometheus.NewDesc(metricPrefix+"queue_oldest_age_seconds", "Age of the oldest queued job, of each priority and of all.", []string{"priority"}, nil)
	descLost     = prometheus.NewDesc(metricPrefix+"jobs_lost_total",
		"Attempts that were lost: their worker died, hung or lost its device. Counted by the store, so that every process reports the same: take max(), not sum().", nil, nil)
	descQuarantined = prometheus.NewDesc(metricPrefix+"jobs_quarantined_total",
		"Jobs that failed with a lost attempt, as a rule for having lost too many. Counted by the store, so that every process reports the same: take max(), not sum().", nil, nil)
	descFree = prometheus.NewDesc(metricPrefix+"blob_free_bytes", "Room left for uploads, where it is known.", nil, nil)
	descRate = prometheus.NewDesc(metricPrefix+"throughput_audio_seconds_per_second",
		"Audio finished per second by the whole system in the last 5 minutes, idle time left out; absent while it is not known.", nil, nil)
	descLeader = prometheus.NewDesc(metricPrefix+"leader", "1 in the process that dispatches, sweeps and keeps house, 0 in the others.", nil, nil)
	descBraked = prometheus.NewDesc(metricPrefix+"dispatch_braked", "1 in the leading process while it holds bulk jobs back, because too many attempts are lost.", nil, nil)

	descRedisUp      = prometheus.NewDesc(metricPrefix+"redis_up", "1 if Redis answers.", nil, nil)
	descRedisUsed    = prometheus.NewDesc(metricPrefix+"redis_used_bytes", "Memory that Redis uses, where it tells.", nil, nil)
	descRedisMax     = prometheus.NewDesc(metricPrefix+"redis_max_bytes", "Memory that Redis may use, where it tells and there is a limit.", nil, nil)
	descRedisEvicted = prometheus.NewDesc(metricPrefix+"redis_evicted_keys_total", "Keys that Redis has evicted since it started, where it tells.", nil, nil)
)

// scrapeTimeout bounds the reads of a scrape.
const scrapeTimeout = 5 * time.Second

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descJobs, descBacklog, descInflight, descOldest, descLost, descQuarantined, descFree, descRate, descLeader, descBraked,
		descRedisUp, descRedisUsed, descRedisMax, descRedisEvicted} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A read that fails makes the scrape fail; the scraper is not told why, the log is.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	c.collectRedis(ctx, ch)
	if c.Rate != nil {
		if rate, ok := c.Rate(); ok && finite(rate) {
			gauge(ch, descRate, rate)
		}
	}
	if c.Leads != nil {
		leads := c.Leads()
		gauge(ch, descLeader, truth(leads))
		gauge(ch, descBraked, truth(leads && c.braked.Load())) // who leads no more has not swept since
	}
	if c.Store != nil {
		b, err := c.Store.Backlog(ctx)
		if err != nil {
			c.Log.Error("scrape: the backlog cannot be read", "err", err)
			ch <- prometheus.NewInvalidMetric(descBacklog, errors.New("the store cannot be read"))
			return
		}
		collectBacklog(ch, b)
		done, err := c.Store.Processed(ctx)
		if err != nil {
			c.Log.Error("scrape: what was processed cannot be read", "err", err)
			ch <- prometheus.NewInvalidMetric(descLost, errors.New("the store cannot be read"))
			return
		}
		ch <- prometheus.MustNewConstMetric(descLost, prometheus.CounterValue, float64(done.Lost))
		ch <- prometheus.MustNewConstMetric(descQuarantined, prometheus.CounterValue, float64(done.Quarantined))
	}
	if c.Blobs != nil {
		free, err := c.Blobs.FreeBytes(ctx)
		if err != nil {
			c.Log.Error("scrape: the free space cannot be read", "err", err)
			ch <- prometheus.NewInvalidMetric(descFree, errors.New("the blob store cannot be read"))
			return
		}
		if free >= 0 {
			gauge(ch, descFree, float64(free))
		}
	}
}

// collectRedis asks no longer than half of a scrape may take: a Redis that hangs must not hide the backlog.
func (c *collector) collectRedis(ctx context.Context, ch chan<- prometheus.Metric) {
	if c.Redis == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout/2)
	defer cancel()
	state, err := c.Redis(ctx)
	if err != nil {
		c.Log.Debug("scrape: Redis does not answer", "err", err)
		gauge(ch, descRedisUp, 0)
		return
	}
	gauge(ch, descRedisUp, 1)
	if state.UsedBytes >= 0 {
		gauge(ch, descRedisUsed, float64(state.UsedBytes))
	}
	if state.MaxBytes > 0 {
		gauge(ch, descRedisMax, float64(state.MaxBytes))
	}
	if state.EvictedKeys >= 0 {
		ch <- prometheus.MustNewConstMetric(descRedisEvicted, prometheus.CounterValue, float64(state.EvictedKeys))
	}
}

// priorityAll is the label of what is not told by priority.
const priorityAll = "all"

func collectBacklog(ch chan<- prometheus.Metric, b aviary.Backlog) {
	for _, p := range aviary.Priorities() {
		gauge(ch, descJobs, float64(b.Classes[p].Jobs), string(aviary.StateQueued), string(p))
		gauge(ch, descBacklog, b.Classes[p].Audio.Seconds(), string(p))
		gauge(ch, descOldest, b.Classes[p].Oldest.Seconds(), string(p))
	}
	for _, s := range aviary.States() {
		if s != aviary.StateQueued {
			gauge(ch, descJobs, float64(b.States[s]), string(s), priorityAll)
		}
	}
	gauge(ch, descInflight, b.Running.Audio.Seconds())
	gauge(ch, descOldest, b.Oldest.Seconds(), priorityAll)
}

// truth is a bool as Prometheus knows it.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// gauge sends one value. Counters of a store cannot be NaN; should a time be negative, a clock was set back, and 0 is the truth.
func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, x float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, math.Max(x, 0), labels...)
}
