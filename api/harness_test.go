package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime/multipart"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a server on fakes, and what a client needs to talk to it.
type rig struct {
	t       *testing.T
	store   *memStore
	blobs   *memBlobs
	bell    *bell
	intake  *aviary.Intake
	metrics *api.Metrics
	config  api.Config
	server  *api.Server
	http    *http.Server
	log     *lockedBuffer
	url     string
	client  *http.Client
	dial    func() (net.Conn, error)
}

// lockedBuffer is a log that tests read.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newRig makes a server that does not listen yet. change may be nil.
func newRig(t *testing.T, change func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, store: newMemStore(), blobs: newMemBlobs(), bell: &bell{}, log: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.metrics = api.NewMetrics(api.MetricsConfig{Store: r.store, Blobs: r.blobs, Version: "1.2.3", Log: log})
	r.intake = &aviary.Intake{Store: r.store, Blobs: r.blobs, Prober: scriptProber{}, Waker: r.bell, Observer: r.metrics, Log: log,
		NewID: numberedIDs(), Limits: aviary.IntakeLimits{Duration: time.Hour, UploadBytes: 1 << 20, MaxAttempts: 3}}
	r.config = api.Config{Intake: r.intake, Store: r.store, Metrics: r.metrics, Log: log, Version: "1.2.3"}
	if change != nil {
		change(r)
	}
	var err error
	if r.server, err = api.New(r.config); err != nil {
		t.Fatal(err)
	}
	r.http = api.NewHTTPServer(r.server, log)
	return r
}

// start serves on a free port.
func start(t *testing.T, change func(*rig)) *rig {
	t.Helper()
	r := newRig(t, change)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + l.Addr().String()
	r.dial = func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }
	r.client = &http.Client{Transport: &http.Transport{}}
	r.serve(l)
	t.Cleanup(r.stop)
	return r
}

// inBubble serves in memory, in a bubble where time passes only when nothing else happens.
func inBubble(t *testing.T, change func(*rig), test func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change)
		l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
		r.url = "http://bubble"
		r.dial = l.dial
		r.client = &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial() }, ExpectContinueTimeout: time.Hour}}
		r.serve(l)
		defer func() {
			r.stop()
			time.Sleep(time.Minute) // a bubble's clock stands still when its test has returned
		}()
		test(r)
	})
}

func (r *rig) serve(l net.Listener) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			r.t.Errorf("serve: %v", err)
		}
	}()
	r.http.RegisterOnShutdown(func() { <-done })
}

func (r *rig) stop() {
	r.client.CloseIdleConnections()
	r.server.Drain()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := r.http.Shutdown(ctx); err != nil {
		r.t.Errorf("shutdown: %v", err)
	}
}

// pipeListener accepts connections in memory.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial() (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// reply is a response, read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

// do makes a request. body may be nil; headers are pairs.
func (r *rig) do(method, path string, body io.Reader, headers ...string) reply {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.url+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return reply{resp.StatusCode, resp.Header, string(text)}
}

func (r *rig) get(path string, headers ...string) reply {
	r.t.Helper()
	return r.do("GET", path, nil, headers...)
}

// object is the body as JSON.
func (a reply) object(t *testing.T) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(a.body), &o); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	return o
}

// job is the body as a job; the status must be the one wanted.
func (a reply) job(t *testing.T, status int) api.Job {
	t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("status %d, %s; want %d: %s", a.status, a.header.Get("Content-Type"), status, a.body)
	}
	var j api.Job
	if err := json.Unmarshal([]byte(a.body), &j); err != nil {
		t.Fatal(err)
	}
	return j
}

// problem checks that the answer is a whole problem with the code, and returns it.
func (a reply) problem(t *testing.T, status int, code aviary.Code) api.Problem {
	t.Helper()
	if a.status != status || a.header.Get("Content-Type") != "application/problem+json" {
		t.Fatalf("status %d, %s; want a problem with status %d: %s", a.status, a.header.Get("Content-Type"), status, a.body)
	}
	var p api.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil {
		t.Fatalf("body %q: %v", a.body, err)
	}
	if p.Code != code || p.Status != status || p.Title != code.Title() || p.Retryable != code.Retryable() || p.Detail == "" ||
		!strings.HasSuffix(p.Type, "/"+string(code)) || p.RequestID != a.header.Get("X-Request-Id") || p.RequestID == "" {
		t.Fatalf("want a whole problem %s with status %d: %s", code, status, a.body)
	}
	if (status == 503 || status == 429 || code == aviary.CodeIdempotencyInProgress) && (p.RetryAfterSeconds < 1 || a.header.Get("Retry-After") == "") {
		t.Fatalf("it must say when to come back: %s", a.body)
	}
	return p
}

// submit makes a job of so many seconds and returns it.
func (r *rig) submit(seconds, query string) api.Job {
	r.t.Helper()
	return r.do("POST", "/v1/jobs"+query, strings.NewReader("AUDIO "+seconds)).job(r.t, http.StatusAccepted)
}

// nothing checks that no trace of an upload is left.
func (r *rig) nothing() {
	r.t.Helper()
	if open, keys := r.blobs.state(); open != 0 || len(keys) != 0 || r.store.count() != 0 {
		r.t.Fatalf("left behind: %d staged, blobs %v, %d jobs", open, keys, r.store.count())
	}
}

// part is one part of a multipart body.
type part struct{ name, filename, text string }

// form makes a multipart body and its content type.
func form(t *testing.T, parts ...part) (io.Reader, string) {
	t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, p := range parts {
		var dst io.Writer
		var err error
		if p.filename != "" {
			dst, err = w.CreateFormFile(p.name, p.filename)
		} else {
			dst, err = w.CreateFormField(p.name)
		}
		if err == nil {
			_, err = io.WriteString(dst, p.text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b, w.FormDataContentType()
}

// finish makes a job succeed with a transcript.
func (r *rig) finish(id string, t aviary.Transcript) {
	r.store.mu.Lock()
	r.store.transcripts[id] = t
	r.store.mu.Unlock()
	r.store.set(id, func(j *aviary.Job) {
		j.State, j.FinishedAt = aviary.StateSucceeded, time.Now()
		j.Attention = &aviary.Attention{Mode: aviary.AttentionFull, Reason: "shorter than 300 s"}
	})
}
