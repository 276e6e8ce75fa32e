package api_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/probe"
	"github.com/aviary-asr/aviary/store"
)

// What metrics say of an attempt's end is what the store made of the job, though the runner meant something else.
func TestMetricsFollowTheStore(t *testing.T) {
	t.Parallel()
	const canceled, failed = `parakeet_jobs_finished_total{code="canceled",status="canceled"} 1`, `parakeet_jobs_finished_total{code="engine_failed",status="failed"} 1`
	for _, tt := range []struct {
		name    string
		losses  int // before
		err     error
		cancel  bool // while it runs
		outcome aviary.Outcome
		state   aviary.State
		lines   []string
	}{
		{"the only try fails", 0, aviary.Errorf(aviary.CodeEngineFailed, "engine", "It does not know."), false, aviary.OutcomeFailed, aviary.StateFailed,
			[]string{failed, "parakeet_jobs_lost_total 0", "parakeet_jobs_quarantined_total 0"}},
		{"it fails, and is to be canceled", 0, aviary.Errorf(aviary.CodeEngineFailed, "engine", "It does not know."), true, aviary.OutcomeCanceled,
			aviary.StateCanceled, []string{canceled, "parakeet_jobs_lost_total 0"}},
		{"a third loss", 2, aviary.Errorf(aviary.CodeDeviceFailed, "device", "gone"), false, aviary.OutcomeLost, aviary.StateFailed,
			[]string{`parakeet_jobs_finished_total{code="device_failed",status="failed"} 1`, "parakeet_jobs_lost_total 3", "parakeet_jobs_quarantined_total 1"}},
		{"a third loss, and it is to be canceled", 2, aviary.Errorf(aviary.CodeDeviceFailed, "device", "gone"), true, aviary.OutcomeCanceled,
			aviary.StateCanceled, []string{canceled, "parakeet_jobs_lost_total 3", "parakeet_jobs_quarantined_total 0"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, dir := t.Context(), t.TempDir()
			db, err := store.Open(ctx, "sqlite:"+dir+"/aviary.db", store.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			blobs, err := store.OpenBlobs(ctx, "file:"+dir+"/blobs")
			if err != nil {
				t.Fatal(err)
			}
			log := &lockedBuffer{}
			metrics := api.NewMetrics(api.MetricsConfig{Store: db, Log: slog.New(slog.DiscardHandler)})
			prober := probe.New(probe.Config{MaxDuration: time.Hour})
			r := start(t, func(r *rig) {
				r.intake.Store, r.intake.Blobs, r.intake.Prober, r.intake.Limits.MaxAttempts = db, blobs, prober, 1
				r.config.Store = db
			})
			defer r.stop()
			audio := wav(time.Second)
			job, err := r.newClient().Submit(ctx, api.Upload{Body: bytes.NewReader(audio), Size: int64(len(audio))})
			if err != nil {
				t.Fatal(err)
			}
			ticket := func() aviary.Ticket {
				tickets, err := db.Dispatch(ctx, []string{job.ID})
				if err != nil || len(tickets) != 1 {
					t.Fatalf("%+v, %v", tickets, err)
				}
				return tickets[0]
			}
			for range tt.losses {
				running, err := db.StartAttempt(ctx, ticket(), aviary.Claim{Worker: "w", Device: "cpu", Lease: time.Minute})
				if err == nil {
					_, err = db.FailAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: running.Attempt}, aviary.Failure{Retry: true, Lost: true})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			runner := &aviary.Runner{Store: db, Blobs: blobs, Prober: prober, Observer: metrics, Log: slog.New(slog.NewTextHandler(log, nil)),
				Worker: "w", Lease: time.Minute, Beat: time.Minute, MaxDuration: time.Hour}
			_ = runner.Run(ctx, ticket(), brokenDevice(func() error { // the device that failed is reported, too
				if tt.cancel {
					if _, err := db.Cancel(ctx, job.ID); err != nil {
						t.Error(err)
					}
				}
				return tt.err
			}))
			if now, err := db.Job(ctx, job.ID); err != nil || now.State != tt.state {
				t.Errorf("%s, %v", now.State, err)
			}
			w := httptest.NewRecorder()
			metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
			text := "\n" + w.Body.String()
			for _, line := range append(tt.lines, `parakeet_attempts_total{outcome="`+string(tt.outcome)+`"} 1`) {
				if !strings.Contains(text, "\n"+line+"\n") {
					t.Errorf("no %s in the metrics", line)
				}
			}
			if n := strings.Count(text, "\nparakeet_jobs_finished_total{"); n != 1 {
				t.Errorf("the job came to %d ends", n)
			}
			quarantined := tt.losses+1 == aviary.MaxLost && tt.state == aviary.StateFailed
			if said := strings.Contains(log.String(), "level=ERROR msg=\"the job is quarantined"); said != quarantined {
				t.Errorf("an error says that it is quarantined: %v\n%s", said, log)
			}
		})
	}
}

// brokenDevice is a device that cannot do its work.
type brokenDevice func() error

func (brokenDevice) Name() string { return "cpu" }

func (d brokenDevice) Transcribe(context.Context, aviary.PCM, aviary.AttentionMode, func(time.Duration)) (aviary.Transcript, error) {
	return aviary.Transcript{}, d()
}
