package api

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"context"

	"github.com/aviary-asr/aviary"
)

// gauges is a store and a blob store as the metrics see them.
type gauges struct {
	backlog aviary.Backlog
	done    aviary.Totals
	free    int64
	err     error
}

func (g *gauges) Backlog(context.Context) (aviary.Backlog, error) { return g.backlog, g.err }
func (g *gauges) Processed(context.Context) (aviary.Totals, error) {
	return g.done, g.err
}
func (g *gauges) FreeBytes(context.Context) (int64, error) { return g.free, nil }

func newTestMetrics(g *gauges) *Metrics {
	return NewMetrics(MetricsConfig{Store: g, Blobs: g, Version: "1.2.3", Log: slog.New(slog.DiscardHandler)})
}

// scrape returns the status and the lines of our own metrics.
func scrape(m *Metrics) (int, string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, _ := io.ReadAll(w.Body)
	var ours []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, metricPrefix) {
			ours = append(ours, line)
		}
	}
	return w.Code, strings.Join(ours, "")
}

func hasLine(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }

func TestMetrics(t *testing.T) {
	t.Parallel()
	g := &gauges{free: 5 << 30, done: aviary.Totals{Lost: 18, Quarantined: 6}, backlog: aviary.Backlog{
		Classes: map[aviary.Priority]aviary.ClassBacklog{"bulk": {Amount: aviary.Amount{Jobs: 3, Audio: 90 * time.Second}, Oldest: 12 * time.Second}},
		Running: aviary.Amount{Jobs: 2, Audio: 30 * time.Second}, Oldest: 12 * time.Second,
		States: map[aviary.State]int{"queued": 3, "running": 2, "succeeded": 7, "failed": 1},
	}}
	m := newTestMetrics(g)
	m.JobAccepted(aviary.Audio{Duration: 45 * time.Second}, aviary.PriorityBulk)
	m.JobRefused(aviary.CodeDurationUnknown)
	m.JobRefused(aviary.CodeAudioTooLong)
	m.AttemptStarted("cpu", 2*time.Second)
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Model: "digits", Outcome: aviary.OutcomeSucceeded, Attention: aviary.AttentionLocal,
		Audio: 45 * time.Second, Took: 3 * time.Second, RTFx: 15})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeFailed, Code: aviary.CodeDeviceOutOfMemory, Took: time.Second})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeRetried, Code: aviary.CodeDeviceFailed, Took: time.Second})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeCanceled})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeReleased})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeLost, Fenced: true})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeSucceeded, Fenced: true, Audio: time.Hour, RTFx: 1000}) // counts as nothing else
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeLost, Unrecorded: true})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeLost, Code: aviary.CodeAttemptTimeout})
	m.AttemptEnded(aviary.AttemptEnd{Device: "cpu", Outcome: aviary.OutcomeLost, Code: aviary.CodeAttemptTimeout, Quarantined: true})
	m.Reenqueued(4)
	m.AttemptsOverdue(3)
	m.JobsQuarantined(2)
	m.RedisWiped()
	m.RedisDebris(5)
	m.CounterDrift(6)
	m.BlobsCollected(7)
	m.AudioExpired(8)
	m.JobsExpired(9)
	m.TombstonesDropped(10)
	m.BlobsRefused()
	m.canceledWaiting()
	m.request("GET /v1/jobs", 200, "", 10*time.Millisecond)
	m.request("POST /v1/jobs", 413, aviary.CodeAudioTooLong, 10*time.Second)
	m.uploaded(1000)
	code, text := scrape(m)
	if code != 200 {
		t.Fatalf("status %d", code)
	}
	for _, line := range []string{
		`parakeet_requests_total{endpoint="GET /v1/jobs",status="200"} 1`,
		`parakeet_requests_total{endpoint="POST /v1/jobs",status="413"} 1`,
		`parakeet_request_duration_seconds_bucket{endpoint="POST /v1/jobs",le="10"} 1`,
		`parakeet_request_duration_seconds_bucket{endpoint="POST /v1/jobs",le="21600"} 1`,
		`parakeet_http_rejected_total{code="audio_too_long"} 1`,
		`parakeet_upload_bytes_total 1000`,
		`parakeet_audio_duration_seconds_sum 45`,
		`parakeet_queue_duration_seconds_sum 2`,
		`parakeet_inference_duration_seconds_sum 3`,
		`parakeet_inference_duration_seconds_count 1`,
		`parakeet_rtfx_sum 15`,
		`parakeet_duration_unknown_total 1`,
		`parakeet_attempts_total{outcome="retried"} 1`,
		`parakeet_jobs_finished_total{code="",status="succeeded"} 1`,
		`parakeet_jobs_finished_total{code="device_out_of_memory",status="failed"} 1`,
		`parakeet_jobs_finished_total{code="canceled",status="canceled"} 2`,
		`parakeet_jobs_finished_total{code="worker_lost",status="failed"} 2`,
		`parakeet_jobs_finished_total{code="attempt_timeout",status="failed"} 1`,
		`parakeet_attempts_total{outcome="succeeded"} 1`,
		`parakeet_attempts_total{outcome="lost"} 5`,
		`parakeet_attempts_unrecorded_total 1`,
		`parakeet_attempts_overdue_total 3`,
		`parakeet_jobs_quarantined_total 6`, // by the store, whatever this process saw of it
		`parakeet_redis_wiped_total 1`,
		`parakeet_redis_debris_total 5`,
		`parakeet_counter_drift_total 6`,
		`parakeet_blobs_collected_total 7`,
		`parakeet_audio_expired_total 8`,
		`parakeet_jobs_expired_total 9`,
		`parakeet_tombstones_dropped_total 10`,
		`parakeet_blob_collections_refused_total 1`,
		`parakeet_attention_total{mode="local"} 1`,
		`parakeet_audio_processed_seconds_total{device="cpu",model="digits"} 45`,
		`parakeet_worker_busy_seconds_total 5`,
		`parakeet_gpu_oom_total 1`,
		`parakeet_gpu_fatal_errors_total 1`,
		`parakeet_jobs_lost_total 18`,
		`parakeet_attempts_fenced_total 2`,
		`parakeet_reenqueued_total 4`,
		`parakeet_jobs{priority="bulk",status="queued"} 3`,
		`parakeet_jobs{priority="interactive",status="queued"} 0`,
		`parakeet_jobs{priority="all",status="running"} 2`,
		`parakeet_jobs{priority="all",status="expired"} 0`,
		`parakeet_queue_backlog_audio_seconds{priority="bulk"} 90`,
		`parakeet_queue_backlog_audio_seconds{priority="interactive"} 0`,
		`parakeet_inflight_audio_seconds 30`,
		`parakeet_queue_oldest_age_seconds{priority="all"} 12`,
		`parakeet_queue_oldest_age_seconds{priority="bulk"} 12`,
		`parakeet_queue_oldest_age_seconds{priority="interactive"} 0`,
		`parakeet_blob_free_bytes 5.36870912e+09`,
	} {
		if !hasLine(text, line) {
			t.Errorf("%s is missing", line)
		}
	}
	if !regexp.MustCompile(`(?m)^parakeet_build_info\{go="[^"]+",version="1\.2\.3"\} 1$`).MatchString(text) {
		t.Error("build_info is missing")
	}
	if t.Failed() {
		t.Log(text)
	}
}

// A scrape fails rather than lies, and does not show why.
func TestScrapeFailsWithTheStore(t *testing.T) {
	t.Parallel()
	g := &gauges{err: errors.New("secret host name"), free: -1}
	m := newTestMetrics(g)
	if code, text := scrape(m); code != 500 || strings.Contains(text, "secret") || strings.Contains(text, "parakeet_jobs{") {
		t.Errorf("%d %s", code, text)
	}
	g.err = nil
	if code, text := scrape(m); code != 200 || strings.Contains(text, "blob_free") {
		t.Errorf("%d %s", code, text)
	}
}

// No number that is not finite, or negative, gets into any metric: each is counted instead.
func TestNothingInfiniteInMetrics(t *testing.T) {
	t.Parallel()
	m := newTestMetrics(&gauges{backlog: aviary.Backlog{Oldest: -time.Second}})
	for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		m.AttemptEnded(aviary.AttemptEnd{Outcome: aviary.OutcomeSucceeded, Took: time.Second, Audio: time.Second, RTFx: x})
		for _, into := range []func(float64){m.audioDuration.Observe, m.queueDuration.Observe, m.inferenceDuration.Observe, m.rtfx.Observe, m.busy.Add,
			m.requestDuration.WithLabelValues("x").Observe, m.processed.WithLabelValues("m", "d").Add, m.uploadBytes.Add} {
			m.observe(into, x)
		}
	}
	const negative = -time.Hour
	m.JobAccepted(aviary.Audio{Duration: negative}, aviary.PriorityBulk)
	m.AttemptStarted("cpu", negative)
	m.AttemptEnded(aviary.AttemptEnd{Outcome: aviary.OutcomeSucceeded, Took: negative, Audio: negative})
	m.request("x", 200, "", negative)
	m.JobsQuarantined(-1)
	m.Reenqueued(-1)
	for _, count := range []func(int){m.AttemptsOverdue, m.RedisDebris, m.CounterDrift, m.BlobsCollected, m.AudioExpired, m.JobsExpired, m.TombstonesDropped} {
		count(-1)
	}
	m.uploaded(-1)
	code, text := scrape(m)
	if code != 200 || regexp.MustCompile(`NaN|[^+]Inf|} -| -\d`).MatchString(strings.ReplaceAll(text, `le="+Inf"`, "")) {
		t.Errorf("%d\n%s", code, text)
	}
	// 4 numbers, 9 places each; then twice one, thrice one for an attempt, four, and seven of sweeps.
	if want := 4*9 + 2 + 3 + 4 + 7; !hasLine(text, fmt.Sprintf("parakeet_duration_unknown_total %d", want)) {
		t.Errorf("want %d:\n%s", want, text)
	}
	for _, line := range []string{"parakeet_audio_duration_seconds_count 0", "parakeet_queue_duration_seconds_count 0",
		"parakeet_inference_duration_seconds_count 4", "parakeet_rtfx_count 1", `parakeet_request_duration_seconds_count{endpoint="x"} 0`} {
		if !hasLine(text, line) {
			t.Errorf("%s is missing", line)
		}
	}
}

// Labels come from closed sets, whatever is observed.
func TestLabelsAreClosed(t *testing.T) {
	t.Parallel()
	m := newTestMetrics(&gauges{})
	for i := range 1000 {
		word := fmt.Sprintf("w%d", i)
		m.AttemptEnded(aviary.AttemptEnd{Device: word, Model: word, Outcome: aviary.OutcomeSucceeded, Attention: aviary.AttentionMode(word)})
		m.AttemptEnded(aviary.AttemptEnd{Outcome: aviary.OutcomeFailed, Code: aviary.Code(word)})
		m.AttemptEnded(aviary.AttemptEnd{Outcome: aviary.Outcome(word)})
		m.request("r", 400, aviary.Code(word), 0)
	}
	_, text := scrape(m)
	if n := strings.Count(text, "parakeet_audio_processed_seconds_total{"); n > mostLabelValues+1 {
		t.Errorf("%d series of audio processed", n)
	}
	for _, name := range []string{"attention_total", "jobs_finished_total", "attempts_total", "http_rejected_total"} {
		if n := strings.Count(text, metricPrefix+name+"{"); n > 3 {
			t.Errorf("%d series of %s", n, name)
		}
	}
}

// A server without metrics counts nothing, and works.
func TestNoMetrics(t *testing.T) {
	t.Parallel()
	var m *Metrics
	m.request("r", 200, "", time.Second)
	m.uploaded(5)
}
