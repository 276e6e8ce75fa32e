package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"
)

// What is said of Redis is what it tells, and nothing else; one that does not answer fails no scrape.
func TestMetricsOfRedis(t *testing.T) {
	t.Parallel()
	state, err := RedisState{UsedBytes: 700, MaxBytes: 1000, EvictedKeys: 3}, error(nil)
	m := NewMetrics(MetricsConfig{Redis: func(context.Context) (RedisState, error) { return state, err }, Log: slog.New(slog.DiscardHandler)})
	expect := func(name string, lines ...string) {
		t.Helper()
		code, text := scrape(m)
		var redis []string
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, metricPrefix+"redis_") && !strings.HasPrefix(line, metricPrefix+"redis_wiped") && !strings.HasPrefix(line, metricPrefix+"redis_debris") {
				redis = append(redis, strings.TrimSpace(strings.TrimPrefix(line, metricPrefix+"redis_")))
			}
		}
		if got := strings.Join(redis, ", "); code != 200 || got != strings.Join(lines, ", ") {
			t.Errorf("%s: %d, %s, want %v", name, code, got, lines)
		}
	}
	expect("all", "evicted_keys_total 3", "max_bytes 1000", "up 1", "used_bytes 700")
	state = RedisState{UsedBytes: 700, EvictedKeys: 0}
	expect("no limit", "evicted_keys_total 0", "up 1", "used_bytes 700")
	state = RedisState{UsedBytes: -1, MaxBytes: -1, EvictedKeys: -1}
	expect("one that does not tell", "up 1")
	err = errors.New("connection refused")
	expect("away", "up 0")
}

// A Redis that hangs does not keep the backlog from the scrape.
func TestScrapeOutlivesAHangingRedis(t *testing.T) {
	t.Parallel()
	m := NewMetrics(MetricsConfig{Store: &gauges{}, Log: slog.New(slog.DiscardHandler), Redis: func(ctx context.Context) (RedisState, error) {
		if end, ok := ctx.Deadline(); !ok || time.Until(end) > scrapeTimeout/2 {
			t.Error("Redis may take the whole time of a scrape")
		}
		return RedisState{}, context.DeadlineExceeded
	}})
	if code, text := scrape(m); code != 200 || !hasLine(text, "parakeet_redis_up 0") || !hasLine(text, `parakeet_jobs{priority="bulk",status="queued"} 0`) {
		t.Errorf("%d %s", code, text)
	}
}

func TestMetricsOfTheThroughput(t *testing.T) {
	t.Parallel()
	rate, known := 0.0, false
	m := NewMetrics(MetricsConfig{Rate: func() (float64, bool) { return rate, known }, Log: slog.New(slog.DiscardHandler)})
	const name = "parakeet_throughput_audio_seconds_per_second"
	if _, text := scrape(m); strings.Contains(text, name) {
		t.Error("a throughput that nobody knows")
	}
	rate, known = 12.5, true
	if _, text := scrape(m); !hasLine(text, name+" 12.5") {
		t.Error(text)
	}
	for _, rate = range []float64{math.NaN(), math.Inf(1)} {
		if _, text := scrape(m); strings.Contains(text, name) {
			t.Errorf("%v is no throughput", rate)
		}
	}
}

func TestMetricsOfTheLeader(t *testing.T) {
	t.Parallel()
	leads := false
	m := NewMetrics(MetricsConfig{Leads: func() bool { return leads }, Log: slog.New(slog.DiscardHandler)})
	expect := func(name string, leader, braked int) {
		t.Helper()
		_, text := scrape(m)
		if !hasLine(text, fmt.Sprintf("parakeet_leader %d", leader)) || !hasLine(text, fmt.Sprintf("parakeet_dispatch_braked %d", braked)) {
			t.Errorf("%s: want %d and %d:\n%s", name, leader, braked, text)
		}
	}
	expect("before it leads", 0, 0)
	leads = true
	expect("it leads", 1, 0)
	m.Braked(true)
	expect("it brakes", 1, 1)
	leads = false
	expect("it leads no more, and another one decides", 0, 0)
	leads = true
	m.Braked(false)
	expect("it brakes no more", 1, 0)
}
