package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	good := newRig(t, nil).config
	for name, spoil := range map[string]func(*api.Config){
		"Intake":      func(c *api.Config) { c.Intake = nil },
		"Store":       func(c *api.Config) { c.Store = nil },
		"Log":         func(c *api.Config) { c.Log = nil },
		"WorkerRTFx":  func(c *api.Config) { c.WorkerRTFx = -1 },
		"UploadIdle":  func(c *api.Config) { c.UploadIdle = -1 },
		"PollEvery":   func(c *api.Config) { c.PollEvery = -1 },
		"DrainTarget": func(c *api.Config) { c.DrainTarget = -1 },
	} {
		c := good
		spoil(&c)
		if _, err := api.New(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, path := range []string{"/", "/v1", "/v1/job", "/v1/jobs/", "/v1//jobs", "/v1/jobs/../queue", "/v1/jobs/a/b", "/V1/jobs", "/metrics"} {
		r.get(path).problem(t, 404, aviary.CodeNotFound)
	}
	for _, test := range []struct{ method, path, allow string }{
		{"PUT", "/v1/jobs", "GET, HEAD, OPTIONS, POST"},
		{"PATCH", "/v1/jobs/x", "DELETE, GET, HEAD, OPTIONS"},
		{"GET", "/v1/jobs/x/cancel", "OPTIONS, POST"},
		{"POST", "/health", "GET, HEAD, OPTIONS"},
		{"BREW", "/v1/queue", "GET, HEAD, OPTIONS"},
	} {
		a := r.do(test.method, test.path, nil)
		a.problem(t, 405, aviary.CodeMethodNotAllowed)
		if a.header.Get("Allow") != test.allow {
			t.Errorf("%s %s: Allow %q, want %q", test.method, test.path, a.header.Get("Allow"), test.allow)
		}
	}
	if a := r.do("OPTIONS", "/v1/jobs", nil); a.status != 204 || a.header.Get("Allow") == "" {
		t.Errorf("OPTIONS: %+v", a)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	made := regexp.MustCompile(`^req_[A-Z2-7]{26}$`)
	for sent, kept := range map[string]bool{
		"": false, "abc-1.2_3:4": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
		"a b": false, `a"b`: false, "é": false, "a\tb": false,
	} {
		a := r.get("/v1/nothing", "X-Request-Id", sent)
		p := a.problem(t, 404, aviary.CodeNotFound)
		if kept && p.RequestID != sent || !kept && !made.MatchString(p.RequestID) {
			t.Errorf("sent %q, got %q", sent, p.RequestID)
		}
		if !strings.Contains(r.log.String(), "request="+p.RequestID) {
			t.Errorf("the log does not know %s", p.RequestID)
		}
	}
	if r.get("/version").header.Get("X-Content-Type-Options") != "nosniff" {
		t.Error("nosniff is missing")
	}
}

// A panic answers 500, keeps the server up, and shows nothing of itself.
func TestPanic(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) {
		r.config.Ready = func(context.Context) error { panic("secret") }
		r.intake.Prober = panicProber{}
	})
	for _, a := range []reply{r.get("/readyz"), r.do("POST", "/v1/jobs", strings.NewReader("AUDIO 1"))} {
		if p := a.problem(t, 500, aviary.CodeInternal); strings.Contains(a.body, "secret") || !p.Retryable {
			t.Errorf("body: %s", a.body)
		}
	}
	r.nothing()
	if log := r.log.String(); strings.Count(log, "handler panicked") != 2 || !strings.Contains(log, "server_test.go") {
		t.Errorf("log: %s", log)
	}
	if r.get("/livez").status != 200 {
		t.Error("the server is down")
	}
}

type panicProber struct{ scriptProber }

func (panicProber) Normalize(context.Context, io.ReaderAt, int64, aviary.Normalizing, aviary.RecordingWriter) (aviary.Audio, error) {
	panic("secret")
}

func TestHealth(t *testing.T) {
	t.Parallel()
	var ready, alive error
	r := start(t, func(r *rig) {
		r.config.Ready = func(context.Context) error { return ready }
		r.config.Alive = func() error { return alive }
	})
	broken := errors.New("the database is away")
	for _, test := range []struct {
		name                           string
		ready, alive                   error
		health                         string
		healthz, livez, readyz, startz int
	}{
		{"starting", fmt.Errorf("%w: the model loads", api.ErrStarting), nil, `{"status":"loading","ready":false,"uptime_seconds":0}`, 503, 200, 503, 503},
		{"broken before it started", broken, nil, `{"status":"unhealthy","ready":false,"reason":"the database is away","uptime_seconds":0}`, 503, 200, 503, 503},
		{"ready", nil, nil, `{"status":"healthy","ready":true,"uptime_seconds":0}`, 200, 200, 200, 200},
		{"broken later", broken, nil, `{"status":"unhealthy","ready":false,"reason":"the database is away","uptime_seconds":0}`, 503, 200, 503, 200},
		{"dead", nil, errors.New("the device is lost"), `{"status":"unhealthy","ready":false,"reason":"the device is lost","uptime_seconds":0}`, 503, 503, 200, 200},
	} {
		ready, alive = test.ready, test.alive
		a := r.get("/health")
		body := regexp.MustCompile(`"uptime_seconds":[0-9.]+`).ReplaceAllString(strings.TrimSpace(a.body), `"uptime_seconds":0`)
		if a.status != test.healthz || body != test.health {
			t.Errorf("%s: %d %s", test.name, a.status, a.body)
		}
		for path, want := range map[string]int{"/livez": test.livez, "/readyz": test.readyz, "/startupz": test.startz} {
			if a := r.get(path); a.status != want {
				t.Errorf("%s: %s is %d, want %d", test.name, path, a.status, want)
			}
		}
	}
}

// A probe of a store that hangs is answered.
func TestReadyHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		r.config.Ready = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	}, func(r *rig) {
		began := time.Now()
		if a := r.get("/readyz"); a.status != 503 || time.Since(began) != 5*time.Second {
			r.t.Errorf("%d after %v", a.status, time.Since(began))
		}
	})
}

// A request whose store hangs is answered too: it can be repeated, unless the store may have done it all the same.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) { r.config.Store = hangingStore{r.store} }, func(r *rig) {
		id := r.submit("1", "").ID
		for _, c := range []struct {
			method, path string
			status       int
			code         aviary.Code
		}{
			{"GET", "/v1/jobs", 503, aviary.CodeStoreUnavailable},
			{"GET", "/v1/jobs/hanging", 503, aviary.CodeStoreUnavailable},
			{"POST", "/v1/jobs/" + id + "/retry", 500, aviary.CodeInternal},
		} {
			began := time.Now()
			a := r.do(c.method, c.path, nil)
			a.problem(r.t, c.status, c.code)
			if took := time.Since(began); took != 30*time.Second || (a.header.Get("Retry-After") != "") != (c.status == 503) {
				r.t.Errorf("%s %s: after %v, with Retry-After %q", c.method, c.path, took, a.header.Get("Retry-After"))
			}
		}
		if log := r.log.String(); !strings.Contains(log, `level=WARN msg="request refused"`) {
			r.t.Errorf("the log does not tell of it loudly: %s", log)
		}
	})
}

type hangingStore struct{ *memStore }

func (s hangingStore) Job(ctx context.Context, id string) (aviary.Job, error) {
	if id != "hanging" {
		return s.memStore.Job(ctx, id)
	}
	<-ctx.Done()
	return aviary.Job{}, ctx.Err()
}

// Retry hangs at its commit.
func (hangingStore) Retry(ctx context.Context, _ string) (aviary.Job, error) {
	<-ctx.Done()
	return aviary.Job{}, aviary.WrapError(aviary.CodeInternal, "hanging", ctx.Err(), "Who knows.")
}

func (hangingStore) Jobs(ctx context.Context, _ aviary.JobQuery) (aviary.JobPage, error) {
	<-ctx.Done()
	return aviary.JobPage{}, ctx.Err()
}

func TestVersion(t *testing.T) {
	t.Parallel()
	var v api.Version
	a := start(t, nil).get("/version")
	if err := json.Unmarshal([]byte(a.body), &v); err != nil || v.Name != "aviary" || v.Version != "1.2.3" || v.Go != runtime.Version() {
		t.Errorf("%s: %v", a.body, err)
	}
}

// A client that does not read its answer is given up.
func TestSlowReaderIsCutOff(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		id := r.submit("1", "").ID
		r.finish(id, aviary.Transcript{Text: strings.Repeat("word ", 1<<20)})
		c := r.raw()
		c.write("GET /v1/jobs/" + id + "/transcript HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		time.Sleep(31 * time.Second)
		n, err := io.Copy(io.Discard, c.conn)
		if n > 1<<20 {
			r.t.Errorf("%d bytes came (%v)", n, err)
		}
		// The deadline of one answer does not hit the next request of a connection.
		c = r.raw()
		for range 2 {
			c.write("GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
			if a := c.read(); a.status != 200 {
				r.t.Errorf("%+v", a)
			}
			time.Sleep(time.Minute)
		}
	})
}

// The handler also works where there is no connection to set deadlines on.
func TestServeOnARecorder(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	w := httptest.NewRecorder()
	r.server.ServeHTTP(w, httptest.NewRequest("POST", "/v1/jobs", strings.NewReader("AUDIO 1")))
	if w.Code != http.StatusAccepted {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The access log has no query, in which somebody may have put a secret.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.get("/v1/jobs?label.token=hunter2")
	r.get("/livez")
	log := r.log.String()
	if strings.Contains(log, "hunter2") || !strings.Contains(log, `route="GET /v1/jobs" status=200`) {
		t.Errorf("log: %s", log)
	}
	if !regexp.MustCompile(`level=DEBUG.*livez`).MatchString(log) {
		t.Error("probes must not fill the log")
	}
}

// Requests are counted by route and status, refusals by code; what no route serves has one label.
func TestRequestMetrics(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	id := r.submit("1", "").ID
	r.get("/v1/jobs/" + id)
	r.get("/v1/jobs/job_other")
	r.get("/v1/nothing")
	r.get("/v1/nothing/else")
	r.do("POST", "/v1/jobs", strings.NewReader("duration_unknown"))
	w := httptest.NewRecorder()
	r.metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`parakeet_requests_total{endpoint="POST /v1/jobs",status="202"} 1`,
		`parakeet_requests_total{endpoint="GET /v1/jobs/{id}",status="200"} 1`,
		`parakeet_requests_total{endpoint="GET /v1/jobs/{id}",status="404"} 1`,
		`parakeet_requests_total{endpoint="other",status="404"} 2`,
		`parakeet_http_rejected_total{code="not_found"} 3`,
		`parakeet_http_rejected_total{code="duration_unknown"} 1`,
		`parakeet_duration_unknown_total 1`,
		`parakeet_audio_duration_seconds_count 1`,
		`parakeet_upload_bytes_total 23`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("%s is missing", line)
		}
	}
}
