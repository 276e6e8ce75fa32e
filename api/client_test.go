package api_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

// newClient talks to the rig.
func (r *rig) newClient() *api.Client {
	r.t.Helper()
	c, err := api.NewClient(api.ClientConfig{Server: r.url, HTTP: r.client})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestClient(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.newClient()
	ctx := t.Context()
	opts := aviary.Options{Name: "Zoë – 1.wav", Priority: aviary.PriorityBulk, Attention: aviary.AttentionLocal, Labels: map[string]string{"a b": "c=d"}}
	job, err := c.Submit(ctx, api.Upload{Body: strings.NewReader("AUDIO 2.5"), Size: 9, Options: opts})
	if err != nil {
		t.Fatal(err)
	}
	if job.Name != opts.Name || job.Labels["a b"] != "c=d" || job.Priority != aviary.PriorityBulk || job.ETag == "" || job.Audio.DurationSeconds != 2.5 {
		t.Errorf("submitted: %+v", job)
	}
	if stored := r.store.jobs[job.ID]; stored.Options.Attention != aviary.AttentionLocal {
		t.Errorf("stored: %+v", stored)
	}
	second, err := c.Submit(ctx, api.Upload{Body: io.MultiReader(strings.NewReader("AUDIO 1"))}) // of unknown size, and no seeker
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Job(ctx, job.ID); err != nil || got.ID != job.ID || got.Queue.Position != 1 {
		t.Errorf("job: %+v %v", got, err)
	}
	if q, err := c.Queue(ctx); err != nil || q.Object != "queue" {
		t.Errorf("queue: %+v %v", q, err)
	}
	if h, err := c.Health(ctx); err != nil || h.Status != "healthy" || !h.Ready {
		t.Errorf("health: %+v %v", h, err)
	}
	if v, err := c.Version(ctx); err != nil || v.Version != "1.2.3" {
		t.Errorf("version: %+v %v", v, err)
	}
	if got, err := c.Cancel(ctx, job.ID); err != nil || got.Status != aviary.StateCanceled {
		t.Errorf("cancel: %+v %v", got, err)
	}
	if got, err := c.Retry(ctx, job.ID); err != nil || got.Status != aviary.StateQueued {
		t.Errorf("retry: %+v %v", got, err)
	}
	if list, err := c.Attempts(ctx, job.ID); err != nil || list.Object != "list" {
		t.Errorf("attempts: %+v %v", list, err)
	}
	_, err = c.Transcript(ctx, job.ID)
	var e *aviary.Error
	if !errors.As(err, &e) || e.Code != aviary.CodeTranscriptNotReady || e.Wait == 0 {
		t.Errorf("transcript too early: %v", err)
	}
	r.finish(job.ID, talk())
	if tr, err := c.Transcript(ctx, job.ID); err != nil || tr.Text != talk().Text || len(tr.Segments) != 2 {
		t.Errorf("transcript: %+v %v", tr, err)
	}
	if text, err := c.TranscriptAs(ctx, job.ID, "text"); err != nil || string(text) != talk().Text+"\n" {
		t.Errorf("text: %q %v", text, err)
	}
	if err := c.Delete(ctx, second.ID, false); aviary.CodeOf(err) != aviary.CodeJobActive {
		t.Errorf("delete: %v", err)
	}
	if err := c.Delete(ctx, second.ID, true); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := c.Job(ctx, second.ID); aviary.CodeOf(err) != aviary.CodeJobExpired {
		t.Errorf("deleted: %v", err)
	}
	_, err = c.Job(ctx, "job_none")
	var said *api.Answer
	if aviary.CodeOf(err) != aviary.CodeNotFound || errors.Is(err, api.ErrUnreachable) || !errors.As(err, &said) || said.Status != 404 || said.Problem.RequestID == "" {
		t.Errorf("not found: %v", err)
	}
	if _, err := c.Job(ctx, "../../health"); aviary.CodeOf(err) != aviary.CodeNotFound {
		t.Errorf("an id is no path: %v", err)
	}
}

func TestClientList(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.newClient()
	for range 5 {
		r.submit("1", "?label.a%3Db=c%26d")
	}
	before := time.Now().Add(-time.Hour)
	n := 0
	for job, err := range c.Jobs(t.Context(), api.ListOptions{Limit: 2, Labels: map[string]string{"a=b": "c&d"}, CreatedAfter: before,
		Statuses: []aviary.State{aviary.StateQueued, aviary.StateRunning}, Ascending: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; job.ID == "" {
			t.Errorf("job: %+v", job)
		}
	}
	if n != 5 {
		t.Errorf("%d jobs", n)
	}
	for range c.Jobs(t.Context(), api.ListOptions{}) {
		break // must not panic
	}
	for _, err := range c.Jobs(t.Context(), api.ListOptions{Cursor: "x"}) {
		if aviary.CodeOf(err) != aviary.CodeOptionInvalid {
			t.Errorf("error: %v", err)
		}
	}
	if list, err := c.List(t.Context(), api.ListOptions{Limit: 5}); err != nil || len(list.Data) != 5 || list.HasMore {
		t.Errorf("list: %+v %v", list, err)
	}
}

// Wait sees each change and ends with the final state.
func TestClientWait(t *testing.T) {
	t.Parallel()
	inBubble(t, nil, func(r *rig) {
		c := r.newClient()
		id := r.submit("1", "").ID
		go func() {
			time.Sleep(100 * time.Second)
			r.store.set(id, func(j *aviary.Job) { j.State, j.Phase = aviary.StateRunning, aviary.PhaseDecoding })
			time.Sleep(100 * time.Second)
			r.finish(id, talk())
		}()
		began := time.Now()
		var seen []aviary.State
		job, err := c.Wait(r.t.Context(), id, func(j api.Job) { seen = append(seen, j.Status) })
		if err != nil || job.Status != aviary.StateSucceeded || len(seen) != 3 || seen[1] != aviary.StateRunning {
			r.t.Errorf("%+v %v %v", job, seen, err)
		}
		if took := time.Since(began); took > 201*time.Second {
			r.t.Errorf("took %v", took)
		}
		if n := r.store.lookups.Load(); n > 2100 {
			r.t.Errorf("%d lookups in 200 s", n)
		}
	})
	// A server that drains answers at once; the client does not spin.
	inBubble(t, nil, func(r *rig) {
		c := r.newClient()
		id := r.submit("1", "").ID
		r.server.Drain()
		ctx, cancel := context.WithTimeout(r.t.Context(), 100*time.Second)
		defer cancel()
		_, err := c.Wait(ctx, id, nil)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, api.ErrUnreachable) {
			r.t.Errorf("error: %v", err)
		}
		if n := r.store.lookups.Load(); n > 2*110 {
			r.t.Errorf("%d lookups in 100 s", n)
		}
	})
}

// scripted is a server that plays answers in order, the last one for ever.
func scripted(t *testing.T, answers ...func(w http.ResponseWriter, r *http.Request)) (*api.Client, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := min(int(n.Add(1)), len(answers)) - 1
		answers[i](w, r)
	}))
	t.Cleanup(s.Close)
	c, err := api.NewClient(api.ClientConfig{Server: s.URL, HTTP: s.Client(), Backoff: time.Millisecond, Token: "tok"})
	if err != nil {
		t.Fatal(err)
	}
	return c, &n
}

func answer(status int, contentType, body string, headers ...string) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", contentType)
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

var (
	goodJob  = answer(200, "application/json", `{"id":"job_1","status":"queued","from_the_future":1}`)
	full     = answer(503, "application/problem+json", `{"code":"queue_full","detail":"Full."}`)
	far      = answer(503, "application/problem+json", `{"code":"queue_full","detail":"Full."}`, "Retry-After", "3600")
	limited  = answer(429, "application/problem+json", `{"code":"rate_limited","detail":"Slower."}`, "Retry-After", "0")
	inside   = answer(500, "application/problem+json", `{"code":"internal_error"}`)
	working  = answer(409, "application/problem+json", `{"code":"idempotency_in_progress"}`, "Retry-After", "0")
	reused   = answer(422, "application/problem+json", `{"code":"idempotency_key_reused"}`)
	quota    = answer(429, "application/problem+json", `{"code":"quota_exceeded"}`, "Retry-After", "3600")
	proxy502 = answer(502, "text/html", "<html>bad gateway</html>")
	strange  = answer(200, "text/html", "<html>not an Aviary</html>")
	teapot   = answer(418, "text/html", "<html>teapot</html>")
)

func TestClientRetries(t *testing.T) {
	t.Parallel()
	job := func(c *api.Client) error { _, err := c.Job(t.Context(), "job_1"); return err }
	retry := func(c *api.Client) error { _, err := c.Retry(t.Context(), "job_1"); return err }
	cancel := func(c *api.Client) error { _, err := c.Cancel(t.Context(), "job_1"); return err }
	seeker := func(c *api.Client) error {
		body := strings.NewReader("skipped,AUDIO 1")
		_, _ = body.Seek(8, io.SeekStart)
		_, err := c.Submit(t.Context(), api.Upload{Body: body, Size: 7})
		return err
	}
	keyed := func(c *api.Client) error {
		_, err := c.Submit(t.Context(), api.Upload{Body: strings.NewReader("AUDIO 1"), Size: 7, IdempotencyKey: "k"})
		return err
	}
	stream := func(c *api.Client) error {
		_, err := c.Submit(t.Context(), api.Upload{Body: io.MultiReader(strings.NewReader("AUDIO 1")), Size: 7})
		return err
	}
	type handlers = []func(http.ResponseWriter, *http.Request)
	for _, test := range []struct {
		name        string
		call        func(*api.Client) error
		answers     handlers
		tries       int64
		code        aviary.Code // empty: no error
		unreachable bool
	}{
		{"a good answer", job, handlers{goodJob}, 1, "", false},
		{"after 503, 429 and a proxy", job, handlers{full, limited, proxy502, goodJob}, 4, "", false},
		{"after a broken connection", job, handlers{hangUp, goodJob}, 2, "", false},
		{"not for ever", job, handlers{full}, 5, aviary.CodeQueueFull, false},
		{"not when it is far away", job, handlers{far}, 1, aviary.CodeQueueFull, false},
		{"a proxy is not the server", job, handlers{proxy502}, 5, aviary.CodeInternal, true},
		{"not after an error of the server's own", job, handlers{inside, goodJob}, 1, aviary.CodeInternal, false},
		{"nor after something strange", job, handlers{teapot, goodJob}, 1, aviary.CodeInternal, false},
		{"cancel is idempotent", cancel, handlers{hangUp, full, goodJob}, 3, "", false},
		{"retry is not", retry, handlers{hangUp, goodJob}, 1, aviary.CodeInternal, true},
		{"nor after 503", retry, handlers{full, goodJob}, 1, aviary.CodeQueueFull, false},
		{"an upload after 503, from where it began", seeker, handlers{full, limited, goodJob}, 3, "", false},
		{"an upload not after a broken connection", seeker, handlers{hangUp, goodJob}, 1, aviary.CodeInternal, true},
		{"an upload with a key after all that may pass", keyed, handlers{hangUp, inside, working, proxy502, goodJob}, 5, "", false},
		{"but not after a refusal", keyed, handlers{reused, goodJob}, 1, aviary.CodeIdempotencyKeyReused, false},
		{"nor for ever", keyed, handlers{hangUp}, 5, aviary.CodeInternal, true},
		{"nor when it is far away", keyed, handlers{quota, goodJob}, 1, aviary.CodeQuotaExceeded, false},
		{"an upload without a key not while another is worked on", seeker, handlers{working, goodJob}, 1, aviary.CodeIdempotencyInProgress, false},
		{"a stream not at all", stream, handlers{full, goodJob}, 1, aviary.CodeQueueFull, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, n := scripted(t, test.answers...)
			err := test.call(c)
			if aviary.CodeOf(err) != test.code || n.Load() != test.tries || errors.Is(err, api.ErrUnreachable) != test.unreachable {
				t.Errorf("after %d tries: %v", n.Load(), err)
			}
		})
	}
}

// Retry-After is obeyed, and the last word of a client that is stopped meanwhile is the server's.
func TestClientHonoursRetryAfter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		r.store.createErr = &aviary.Error{Code: aviary.CodeQueueFull, Detail: "Full.", Wait: 40 * time.Second}
	}, func(r *rig) {
		c := r.newClient()
		go func() {
			time.Sleep(100 * time.Second)
			r.store.mu.Lock()
			r.store.createErr = nil
			r.store.mu.Unlock()
		}()
		began := time.Now()
		upload := api.Upload{Body: strings.NewReader("AUDIO 1"), Size: 7}
		if _, err := c.Submit(r.t.Context(), upload); err != nil || time.Since(began) < 120*time.Second {
			r.t.Errorf("after %v: %v", time.Since(began), err)
		}
		r.store.createErr = &aviary.Error{Code: aviary.CodeQueueFull, Detail: "Full.", Wait: 40 * time.Second}
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		upload.Body = strings.NewReader("AUDIO 1")
		if _, err := c.Submit(ctx, upload); aviary.CodeOf(err) != aviary.CodeQueueFull {
			r.t.Errorf("stopped: %v", err)
		}
	})
}

func TestClientUnreachable(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := "http://" + l.Addr().String()
	_ = l.Close()
	c, err := api.NewClient(api.ClientConfig{Server: server, Retries: -1})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Job(t.Context(), "job_1")
	var u *api.UnreachableError
	var op *net.OpError
	if !errors.Is(err, api.ErrUnreachable) || !errors.As(err, &u) || u.Server != server || !errors.As(err, &op) || !strings.Contains(err.Error(), server) {
		t.Errorf("error: %v", err)
	}
	if _, err := c.Health(t.Context()); !errors.Is(err, api.ErrUnreachable) {
		t.Errorf("health: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Job(ctx, "job_1"); !errors.Is(err, context.Canceled) || errors.Is(err, api.ErrUnreachable) {
		t.Errorf("stopped by the caller: %v", err)
	}
	for _, bad := range []string{"", "localhost:8080", "ftp://x", "http://", "http://%zz"} {
		if _, err := api.NewClient(api.ClientConfig{Server: bad}); err == nil {
			t.Errorf("server %q was accepted", bad)
		}
	}
}

// A server that never answers is unreachable after a while, also without a deadline of the caller's.
func TestClientGivesUp(t *testing.T) {
	t.Parallel()
	inBubble(t, func(r *rig) {
		r.config.Ready = func(ctx context.Context) error { <-ctx.Done(); time.Sleep(2 * time.Minute); return nil }
	}, func(r *rig) {
		began := time.Now()
		if _, err := r.newClient().Health(r.t.Context()); !errors.Is(err, api.ErrUnreachable) || time.Since(began) != 30*time.Second {
			r.t.Errorf("after %v: %v", time.Since(began), err)
		}
		time.Sleep(5 * time.Minute)
	})
}

// A file that cannot be read is our own error, not the server's, and leaves nothing there.
func TestClientLocalError(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.intake.Limits.UploadBytes = 0 })
	broken := &os.PathError{Op: "read", Path: "a.wav", Err: errors.New("bad sector")}
	for _, size := range []int64{0, 100, 10 << 20} {
		_, err := r.newClient().Submit(t.Context(), api.Upload{Body: io.MultiReader(strings.NewReader("AUDIO 1\n"), failing{broken}), Size: size})
		var path *os.PathError
		if !errors.As(err, &path) || errors.Is(err, api.ErrUnreachable) {
			t.Errorf("size %d: %v", size, err)
		}
	}
	for _, size := range []int64{6, 8} {
		_, err := r.newClient().Submit(t.Context(), api.Upload{Body: strings.NewReader("AUDIO 1"), Size: size})
		if err == nil || errors.Is(err, api.ErrUnreachable) || !strings.Contains(err.Error(), "changed") {
			t.Errorf("size %d of 7: %v", size, err)
		}
	}
	r.stop() // waits for the requests
	r.nothing()
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// A refusal reaches the client while it uploads, and before it uploads where that is possible.
func TestClientHearsEarlyRefusals(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	c := r.newClient()
	c.HTTP.Transport.(*http.Transport).ExpectContinueTimeout = time.Minute
	big := &zeros{64 << 20}
	_, err := c.Submit(t.Context(), api.Upload{Body: big, Size: 64 << 20})
	if aviary.CodeOf(err) != aviary.CodeUploadTooLarge || big.left != 64<<20 {
		t.Errorf("announced: %v, %d bytes not sent", err, big.left)
	}
	_, err = c.Submit(t.Context(), api.Upload{Body: &zeros{64 << 20}})
	if aviary.CodeOf(err) != aviary.CodeUploadTooLarge {
		t.Errorf("not announced: %v", err)
	}
}

func TestClientSubmitsFiles(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	file := filepath.Join(t.TempDir(), "a.wav")
	content := append([]byte("AUDIO 1\n"), bytes.Repeat([]byte("x"), 100_000)...)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	job, err := r.newClient().Submit(t.Context(), api.Upload{Body: f, Size: int64(len(content))})
	if err != nil || job.Audio.Bytes != int64(len(content)) || !bytes.Equal(r.blobs.blobs[job.ID], content) {
		t.Errorf("%+v %v", job, err)
	}
}

func TestClientSendsItsToken(t *testing.T) {
	t.Parallel()
	c, _ := scripted(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer tok" || r.Header.Get("User-Agent") != "aviary-client" {
			t.Errorf("headers: %v", r.Header)
		}
		goodJob(w, r)
	})
	if job, err := c.Job(t.Context(), "job_1"); err != nil || job.ID != "job_1" {
		t.Errorf("%+v %v", job, err)
	}
}

func TestClientStrangeAnswers(t *testing.T) {
	t.Parallel()
	c, _ := scripted(t, strange)
	if _, err := c.Job(t.Context(), "job_1"); err == nil {
		t.Error("a page is no job")
	}
	c, _ = scripted(t, answer(503, "application/json", `{"status":"loading","ready":false}`))
	if h, err := c.Health(t.Context()); err != nil || h.Status != "loading" {
		t.Errorf("health: %+v %v", h, err)
	}
	// Codes of a newer server pass through.
	c, _ = scripted(t, answer(451, "application/problem+json", `{"code":"of_the_future","title":"T"}`))
	_, err := c.Job(t.Context(), "job_1")
	var e *aviary.Error
	if !errors.As(err, &e) || e.Code != "of_the_future" || e.Detail != "T" {
		t.Errorf("error: %v", err)
	}
}
