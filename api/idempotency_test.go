package api_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

func (r *rig) post(body string, headers ...string) reply {
	r.t.Helper()
	return r.do("POST", "/v1/jobs?name=a.wav", strings.NewReader(body), headers...)
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	first := r.post("AUDIO 1", "Idempotency-Key", "k")
	job := first.job(t, 202)
	if first.header.Get("Idempotency-Replayed") != "" {
		t.Error("the first one repeats nothing")
	}
	again := r.post("AUDIO 1", "Idempotency-Key", "k")
	if same := again.job(t, 200); same.ID != job.ID || again.header.Get("Idempotency-Replayed") != "true" ||
		again.header.Get("Location") != "/v1/jobs/"+job.ID || again.header.Get("ETag") == "" {
		t.Errorf("%v %s", again.header, again.body)
	}
	// The answer is the job as it is now, not as it was.
	r.finish(job.ID, talk())
	if now := r.post("AUDIO 1", "Idempotency-Key", "k").job(t, 200); now.Status != aviary.StateSucceeded {
		t.Errorf("%+v", now)
	}
	// A form with the same content is the same request.
	body, contentType := form(t, part{"file", "a.wav", "AUDIO 1"})
	if same := r.do("POST", "/v1/jobs", body, "Content-Type", contentType, "Idempotency-Key", "k").job(t, 200); same.ID != job.ID {
		t.Errorf("%+v", same)
	}
	r.post("AUDIO 2", "Idempotency-Key", "k").problem(t, 422, aviary.CodeIdempotencyKeyReused)
	r.do("POST", "/v1/jobs?name=b.wav", strings.NewReader("AUDIO 1"), "Idempotency-Key", "k").problem(t, 422, aviary.CodeIdempotencyKeyReused)
	if open, keys := r.blobs.state(); r.store.count() != 1 || open != 0 || len(keys) != 2 {
		t.Errorf("%d jobs, %d staged, blobs %v", r.store.count(), open, keys)
	}
	// Of a deleted job the tombstone is left.
	r.do("DELETE", "/v1/jobs/"+job.ID, nil)
	gone := r.post("AUDIO 1", "Idempotency-Key", "k")
	if p := gone.problem(t, 410, aviary.CodeJobExpired); p.Job == nil || p.Job.ID != job.ID || gone.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%v %s", gone.header, gone.body)
	}
}

func TestIdempotencyKeyIsChecked(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, key := range []string{"", "a b", "schl\u00fcssel", strings.Repeat("k", 256)} {
		r.post("AUDIO 1", "Idempotency-Key", key).problem(t, 400, aviary.CodeMalformedRequest)
	}
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/v1/jobs", strings.NewReader("AUDIO 1"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Idempotency-Key"] = []string{"a", "b"}
	resp, err := r.client.Do(req)
	if err != nil || resp.StatusCode != 400 {
		t.Fatalf("two keys: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	r.nothing()
}

// While the first request still uploads, another one with its key is told so, at once, and may come back.
func TestIdempotencyInProgress(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.blobs.staged = make(chan struct{}, 2) })
	body, feed := io.Pipe()
	done := make(chan reply)
	go func() { done <- r.do("POST", "/v1/jobs?name=a.wav", body, "Idempotency-Key", "k") }()
	<-r.blobs.staged
	r.post("AUDIO 1", "Idempotency-Key", "k").problem(t, 409, aviary.CodeIdempotencyInProgress)
	_, _ = feed.Write([]byte("AUDIO 1"))
	_ = feed.Close()
	job := (<-done).job(t, 202)
	if same := r.post("AUDIO 1", "Idempotency-Key", "k").job(t, 200); same.ID != job.ID {
		t.Errorf("%+v", same)
	}
}

// dropping is a proxy before the rig that forwards each request and drops the first answers to submits, when the rig has given them: the client sees a
// connection that broke, and the job exists.
func (r *rig) dropping(drops int64) (url string, dropped *atomic.Int64) {
	r.t.Helper()
	dropped = &atomic.Int64{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, in *http.Request) {
		out, err := http.NewRequestWithContext(in.Context(), in.Method, r.url+in.URL.RequestURI(), in.Body)
		if err != nil {
			panic(err)
		}
		out.Header, out.ContentLength = in.Header.Clone(), in.ContentLength
		resp, err := r.client.Do(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		if in.Method == "POST" && dropped.Add(1) <= drops {
			_, _ = io.Copy(io.Discard, resp.Body)
			panic(http.ErrAbortHandler)
		}
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	r.t.Cleanup(proxy.Close)
	return proxy.URL, dropped
}

// An answer that is lost after the commit makes no second job when the request has a key. Without one the client gives up, since it cannot know.
func TestClientSurvivesALostAnswer(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	url, posts := r.dropping(2)
	c, err := api.NewClient(api.ClientConfig{Server: url, Backoff: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.HTTP.CloseIdleConnections()
	job, err := c.Submit(t.Context(), api.Upload{Body: strings.NewReader("AUDIO 1"), Size: 7, IdempotencyKey: "k"})
	if err != nil || posts.Load() != 3 || r.store.count() != 1 || job.ID == "" {
		t.Errorf("after %d posts there are %d jobs: %+v, %v", posts.Load(), r.store.count(), job, err)
	}
	posts.Store(0)
	_, err = c.Submit(t.Context(), api.Upload{Body: strings.NewReader("AUDIO 1"), Size: 7})
	if !errors.Is(err, api.ErrUnreachable) || posts.Load() != 1 || r.store.count() != 2 {
		t.Errorf("without a key, after %d posts there are %d jobs: %v", posts.Load(), r.store.count(), err)
	}
}

// Many clients repeat one request at the same time, as one does whose retries overtake each other: all get the one job.
func TestManyClientsWithOneKey(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	var wg sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		wg.Go(func() {
			c, err := api.NewClient(api.ClientConfig{Server: r.url, HTTP: r.client, Backoff: time.Millisecond, Retries: 100})
			if err != nil {
				t.Error(err)
				return
			}
			job, err := c.Submit(t.Context(), api.Upload{Body: strings.NewReader("AUDIO 1"), Size: 7, IdempotencyKey: "k"})
			if err != nil {
				t.Error(err)
			}
			ids[i] = job.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("jobs %v", ids)
		}
	}
	if r.store.count() != 1 {
		t.Errorf("%d jobs", r.store.count())
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) {
		r.config.Tenant = api.TenantFromHeader("X-Caller")
		r.intake.Limits.Queue.TenantJobs = 1
	})
	nobody := r.post("AUDIO 1", "Idempotency-Key", "k")
	if nobody.job(t, 202); nobody.object(t)["tenant"] != nil || r.store.jobs["job_00000000000000000000000001"].Tenant != aviary.DefaultTenant {
		t.Errorf("%s, %+v", nobody.body, r.store.jobs)
	}
	ann := r.post("AUDIO 1", "Idempotency-Key", "k", "X-Caller", "ann")
	if job := ann.job(t, 202); job.Tenant != "ann" || r.get("/v1/jobs/"+job.ID).job(t, 200).Tenant != "ann" {
		t.Errorf("the same key of somebody else is another request: %s", ann.body)
	}
	full := r.post("AUDIO 1", "X-Caller", "ann")
	if p := full.problem(t, 429, aviary.CodeQuotaExceeded); *p.Limit != 1 || *p.Actual != 2 || p.Unit != "jobs" || p.RetryAfterSeconds != 30 || !p.Retryable {
		t.Errorf("%s", full.body)
	}
	r.post("AUDIO 1", "X-Caller", "bob").job(t, 202)
	r.post("AUDIO 1", "X-Caller", strings.Repeat("x", 129)).problem(t, 400, aviary.CodeMalformedRequest)
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.url+"/v1/jobs", strings.NewReader("AUDIO 1"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header["X-Caller"] = []string{"eve", "ann"} // a caller's own header that the proxy did not remove
	resp, err := r.client.Do(req)
	if err != nil || resp.StatusCode != 400 {
		t.Fatalf("two callers: %+v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if r.store.count() != 3 {
		t.Errorf("%d jobs", r.store.count())
	}
}

// A job that is canceled while it waits comes to its end in the API, and is counted there, once.
func TestCanceledWhileWaitingIsCounted(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	waiting, running := r.submit("1", "").ID, r.submit("1", "").ID
	r.store.set(running, func(j *aviary.Job) { j.State = aviary.StateRunning })
	for _, id := range []string{waiting, waiting, running} {
		r.do("POST", "/v1/jobs/"+id+"/cancel", nil)
	}
	w := httptest.NewRecorder()
	r.metrics.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if want := `parakeet_jobs_finished_total{code="canceled",status="canceled"} 1`; !strings.Contains(w.Body.String(), want+"\n") {
		t.Errorf("no %s in the metrics", want)
	}
}

// A client whose answer is lost waits before it comes back, and not on top of others.
func TestClientWaitsForTheRequestInProgress(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		r.store.created = func(aviary.Job) { time.Sleep(3 * time.Second) }
	}, func(r *rig) {
		go func() { r.post("AUDIO 1", "Idempotency-Key", "k") }()
		synctest.Wait()
		began := time.Now()
		job, err := r.newClient().Submit(r.t.Context(), api.Upload{Body: strings.NewReader("AUDIO 1"), Size: 7, IdempotencyKey: "k", Options: aviary.Options{Name: "a.wav"}})
		if took := time.Since(began); err != nil || job.ID == "" || took < 3*time.Second || r.store.count() != 1 {
			r.t.Errorf("after %v: %+v, %v", took, job, err)
		}
	})
}
