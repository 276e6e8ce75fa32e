package api

import (
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aviary-asr/aviary"
)

// Metrics counts what happens, for Prometheus. It is the aviary.Observer of a process, counts the requests of a Server, and reads the backlog
// from the store when it is scraped. Its names are the contract; all its labels come from closed sets. A nil *Metrics counts nothing.
type Metrics struct {
	registry *prometheus.Registry
	handler  http.Handler

	requests        *prometheus.CounterVec   // endpoint, status
	requestDuration *prometheus.HistogramVec // endpoint
	rejected        *prometheus.CounterVec   // code
	uploadBytes     prometheus.Counter

	audioDuration     prometheus.Histogram
	queueDuration     prometheus.Histogram
	inferenceDuration prometheus.Histogram
	rtfx              prometheus.Histogram
	unknown           prometheus.Counter

	attempts  *prometheus.CounterVec // outcome
	finished  *prometheus.CounterVec // status, code
	attention *prometheus.CounterVec // mode
	processed *prometheus.CounterVec // model, device
	busy      prometheus.Counter
	oom       prometheus.Counter
	fatal     prometheus.Counter
	fenced    prometheus.Counter
	unwritten prometheus.Counter

	sweeps sweepCounters
	braked atomic.Bool // by the last sweep of this process

	models, devices *closedSet
}

// sweepCounters count what the parts do that run in the leading process.
type sweepCounters struct {
	overdue                    prometheus.Counter
	requeued, wiped, debris    prometheus.Counter
	drift, blobs, refused      prometheus.Counter
	audio, expired, tombstones prometheus.Counter
}

var (
	// durations reach from a quick answer to the longest job, 6 h.
	durations = []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600}
	rates     = []float64{.1, .25, .5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000}
)

// NewMetrics makes collectors and a registry of their own.
func NewMetrics(c MetricsConfig) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), models: newClosedSet(), devices: newClosedSet()}
	m.requests = m.counters("requests_total", "Requests answered, by route and HTTP status.", "endpoint", "status")
	m.requestDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: metricPrefix + "request_duration_seconds",
		Help: "Time from a request's header to the end of its answer, uploads and long polls included.", Buckets: durations}, []string{"endpoint"})
	m.registry.MustRegister(m.requestDuration)
	m.rejected = m.counters("http_rejected_total", "Requests answered with a problem, by its code.", "code")
	m.uploadBytes = m.counter("upload_bytes_total", "Bytes of uploads received, those of refused uploads included.")

	m.audioDuration = m.histogram("audio_duration_seconds", "Length of the accepted audio.", durations)
	m.queueDuration = m.histogram("queue_duration_seconds", "Time from a job's creation to the start of an attempt.", durations)
	m.inferenceDuration = m.histogram("inference_duration_seconds", "Time of an attempt that succeeded, decoding included.", durations)
	m.rtfx = m.histogram("rtfx", "Audio seconds per second of the device, of attempts that succeeded.", rates)
	m.unknown = m.counter("duration_unknown_total", "Uploads refused because their duration could not be determined, and measurements that were not finite or negative; none of them is in a histogram.")

	m.attempts = m.counters("attempts_total", "Attempts that ended, by outcome.", "outcome")
	m.finished = m.counters("jobs_finished_total", "Jobs that came to an end, by final status and the code of a failure.", "status", "code")
	m.attention = m.counters("attention_total", "Attempts that succeeded, by the attention they ran with.", "mode")
	m.processed = m.counters("audio_processed_seconds_total", "Audio transcribed.", "model", "device")
	m.busy = m.counter("worker_busy_seconds_total", "Time that devices spent on attempts, whatever came of them.")
	m.oom = m.counter("gpu_oom_total", "Attempts that failed because the device's memory did not suffice.")
	m.fatal = m.counter("gpu_fatal_errors_total", "Attempts that failed because the device failed.")
	m.fenced = m.counter("attempts_fenced_total", "Attempts whose end was refused, because their job belonged to a newer attempt or was no more.")
	m.unwritten = m.counter("attempts_unrecorded_total", "Attempts whose end was not recorded, because the store was away for too long.")
	m.sweeps = newSweepCounters(m.counter)

	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "build_info", Help: "1, with what runs.",
		ConstLabels: prometheus.Labels{"version": c.Version, "go": runtime.Version()}})
	build.Set(1)
	m.registry.MustRegister(build, &collector{c, &m.braked})
	m.handler = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelError)})
	return m
}

const metricPrefix = "parakeet_"

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) counters(name, help string, labels ...string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + name, Help: help}, labels)
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: metricPrefix + name, Help: help, Buckets: buckets})
	m.registry.MustRegister(h)
	return h
}

// ServeHTTP answers a scrape, on whichever port it is mounted. It fails, rather than leave the backlog out, when the store cannot be read: an
// autoscaler would take no backlog for no work.
func (m *Metrics) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.handler.ServeHTTP(w, r) }

// observe is the one way into a histogram or a sum. A number that is not finite, or negative, is counted and goes no further.
func (m *Metrics) observe(into func(float64), x float64) {
	if !finite(x) || x < 0 {
		m.unknown.Inc()
		return
	}
	into(x)
}

// JobAccepted counts an upload that became a job.
func (m *Metrics) JobAccepted(a aviary.Audio, _ aviary.Priority) {
	m.observe(m.audioDuration.Observe, a.Duration.Seconds())
}

// JobRefused counts what only the domain knows of a refusal. The refusal itself is counted where its answer is written.
func (m *Metrics) JobRefused(code aviary.Code) {
	if code == aviary.CodeDurationUnknown {
		m.unknown.Inc()
	}
}

// AttemptStarted counts the time in the queue.
func (m *Metrics) AttemptStarted(_ string, queued time.Duration) {
	m.observe(m.queueDuration.Observe, queued.Seconds())
}

// AttemptEnded counts an attempt and, where it was the last, the job.
func (m *Metrics) AttemptEnded(e aviary.AttemptEnd) {
	if e.Fenced { // whatever it would have been
		m.fenced.Inc()
		e.Outcome = aviary.OutcomeLost
	}
	m.attempts.WithLabelValues(oneOf(e.Outcome, outcomes)).Inc()
	m.observe(m.busy.Add, e.Took.Seconds())
	if e.Code == aviary.CodeDeviceOutOfMemory {
		m.oom.Inc()
	}
	if e.Code == aviary.CodeDeviceFailed {
		m.fatal.Inc()
	}
	switch e.Outcome {
	case aviary.OutcomeSucceeded:
		m.finished.WithLabelValues(string(aviary.StateSucceeded), "").Inc()
		m.observe(m.inferenceDuration.Observe, e.Took.Seconds())
		m.observe(m.rtfx.Observe, e.RTFx)
		m.attention.WithLabelValues(oneOf(e.Attention, modes)).Inc()
		m.observe(m.processed.WithLabelValues(m.models.admit(e.Model), m.devices.admit(e.Device)).Add, e.Audio.Seconds())
	case aviary.OutcomeFailed:
		m.finished.WithLabelValues(string(aviary.StateFailed), oneOf(e.Code, aviary.Codes())).Inc()
	case aviary.OutcomeCanceled:
		m.finished.WithLabelValues(string(aviary.StateCanceled), string(aviary.CodeCanceled)).Inc()
	case aviary.OutcomeLost:
		if e.Unrecorded {
			m.unwritten.Inc()
		}
		if e.Quarantined {
			m.finished.WithLabelValues(string(aviary.StateFailed), oneOf(e.Code, aviary.Codes())).Inc()
		}
	case aviary.OutcomeRetried, aviary.OutcomeReleased: // the job goes on
	}
}

// request counts an answered request. code is that of a problem, or empty.
func (m *Metrics) request(route string, status int, code aviary.Code, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.observe(m.requestDuration.WithLabelValues(route).Observe, took.Seconds())
	if code != "" {
		m.rejected.WithLabelValues(oneOf(code, aviary.Codes())).Inc()
	}
}

// uploaded counts bytes as they arrive.
func (m *Metrics) uploaded(bytes int) {
	if m != nil {
		m.observe(m.uploadBytes.Add, float64(bytes))
	}
}

var (
	outcomes = []aviary.Outcome{aviary.OutcomeSucceeded, aviary.OutcomeFailed, aviary.OutcomeRetried, aviary.OutcomeReleased,
		aviary.OutcomeCanceled, aviary.OutcomeLost}
	modes = []aviary.AttentionMode{aviary.AttentionFull, aviary.AttentionLocal}
)

// labelOther stands for what is not in a label's closed set.
const labelOther = "other"

func oneOf[T ~string](value T, set []T) string {
	for _, v := range set {
		if v == value {
			return string(v)
		}
	}
	return labelOther
}

// closedSet holds the values of a label that only the deployment knows, such as its devices. It closes after the first few, so that no mistake
// elsewhere can make series without end.
type closedSet struct {
	mu   sync.Mutex
	seen map[string]bool
}

const mostLabelValues = 32

func newClosedSet() *closedSet { return &closedSet{seen: map[string]bool{}} }

func (s *closedSet) admit(value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen[value] {
		return value
	}
	if len(s.seen) >= mostLabelValues {
		return labelOther
	}
	s.seen[value] = true
	return value
}
