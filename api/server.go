package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aviary-asr/aviary"
)

// Config is what a Server is made of. Intake, Store and Log are required; a zero value elsewhere means the default.
type Config struct {
	Intake  *aviary.Intake
	Store   aviary.Store
	Metrics *Metrics // nil: nothing is counted
	Log     *slog.Logger
	Version string
	// Formats are the kinds of recordings that uploads may be, for GET /v1/capacity.
	Formats []aviary.Format

	// Tenant says who makes a request: what an authenticating proxy in front says, see TenantFromHeader. It is believed. nil: everybody is
	// aviary.DefaultTenant. Limits and fairness are by tenant; access is not: whoever reaches the API can read and change every job.
	Tenant func(*http.Request) string

	// Ready says whether requests can be served: nil when they can, an error that wraps ErrStarting while the process starts, another error
	// when something is broken. Its text is shown to whoever asks for /health or /readyz. A nil func means always ready.
	Ready func(context.Context) error
	// Alive fails only when a restart would help. Its text is shown too.
	Alive func() error

	UploadIdle  time.Duration // longest silence of an upload; default 30 s
	WriteIdle   time.Duration // longest time that a client may take to accept a piece of a response; default 30 s
	Answer      time.Duration // longest time that the store may take to serve a request; default 30 s
	PollEvery   time.Duration // how often a long-polled job is looked at; default 100 ms
	WorkerRTFx  float64       // audio seconds that one worker transcribes in a second, for demand and waiting times; default 30
	DrainTarget time.Duration // how fast the backlog should drain, for demand; default 10 min
}

// ErrStarting is what Ready returns, wrapped or not, while the process is not ready yet but will be.
var ErrStarting = errors.New("the server is starting")

// withDefaults fills in what is not given and names what must be.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Intake == nil:
		return c, errors.New("api: Config.Intake is missing")
	case c.Store == nil:
		return c, errors.New("api: Config.Store is missing")
	case c.Log == nil:
		return c, errors.New("api: Config.Log is missing")
	case !finite(c.WorkerRTFx) || c.WorkerRTFx < 0:
		return c, fmt.Errorf("api: Config.WorkerRTFx is %v; it must be positive", c.WorkerRTFx)
	}
	if c.Tenant == nil {
		c.Tenant = func(*http.Request) string { return aviary.DefaultTenant }
	}
	if c.Ready == nil {
		c.Ready = func(context.Context) error { return nil }
	}
	if c.Alive == nil {
		c.Alive = func() error { return nil }
	}
	if c.WorkerRTFx == 0 {
		c.WorkerRTFx = 30
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		dflt  time.Duration
	}{
		{"UploadIdle", &c.UploadIdle, 30 * time.Second},
		{"WriteIdle", &c.WriteIdle, 30 * time.Second},
		{"Answer", &c.Answer, 30 * time.Second},
		{"PollEvery", &c.PollEvery, 100 * time.Millisecond},
		{"DrainTarget", &c.DrainTarget, 10 * time.Minute},
	} {
		switch {
		case *d.value < 0:
			return c, fmt.Errorf("api: Config.%s is negative", d.name)
		case *d.value == 0:
			*d.value = d.dflt
		}
	}
	return c, nil
}

// Server answers the HTTP interface. It is an http.Handler; serve it with NewHTTPServer, which sets the limits that a handler cannot.
type Server struct {
	Config
	mux     *http.ServeMux
	watcher *watcher
	born    time.Time
	started atomic.Bool // was ready once

	drainOnce sync.Once
	draining  chan struct{} // closed by Drain
}

// New makes a Server. It starts nothing.
func New(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{Config: c, born: time.Now(), draining: make(chan struct{}), watcher: newWatcher(c.Store.Job, c.PollEvery)}
	s.mux = s.routes()
	return s, nil
}

// Drain makes the server refuse new uploads and answer waiting long polls at once, so that http.Server.Shutdown need not wait for them. All
// else is served on.
func (s *Server) Drain() { s.drainOnce.Do(func() { close(s.draining) }) }

func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// NewHTTPServer wraps a handler with the limits of the listening side. There is no ReadTimeout and no WriteTimeout: an upload may take
// hours as long as bytes arrive, so the handlers set deadlines on idleness instead.
func NewHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// exchange is one request and its response under way. It is the http.ResponseWriter that handlers are given.
type exchange struct {
	http.ResponseWriter
	rc        *http.ResponseController
	log       *slog.Logger
	id        string      // of the request
	route     string      // method and pattern, from a closed set
	status    int         // answered; 0 before
	bytes     int64       // answered
	code      aviary.Code // of the problem answered
	writeIdle time.Duration

	afterReply func() // runs when the response has been sent
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if status >= 200 && x.status == 0 {
		x.status = status
	}
	x.extend()
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.status = http.StatusOK
	}
	x.extend()
	n, err := x.ResponseWriter.Write(p)
	x.bytes += int64(n)
	return n, err
}

// extend gives the client another while to take what is written.
func (x *exchange) extend() {
	_ = x.rc.SetWriteDeadline(time.Now().Add(x.writeIdle)) // a recorder in a test has no deadlines
}

// send answers with a whole body.
func (x *exchange) send(status int, body []byte) {
	x.Header().Set("Content-Length", strconv.Itoa(len(body)))
	x.WriteHeader(status)
	_, _ = x.Write(body) // the client went away; the log has the status
}

// empty answers without a body.
func (x *exchange) empty(status int) error {
	x.WriteHeader(status)
	return nil
}

// reply answers with v as JSON.
func (x *exchange) reply(status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return err
	}
	x.Header().Set("Content-Type", "application/json")
	x.send(status, body)
	return nil
}

// strayBody is how long a body may take that nobody wants. The server itself reads it before it sends the answer, and must not wait for ever.
// Uploads set deadlines of their own.
const strayBody = 5 * time.Second

// ServeHTTP answers one request, whatever happens in it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	id := requestID(r)
	x := &exchange{ResponseWriter: w, rc: http.NewResponseController(w), id: id, route: routeOther, writeIdle: s.WriteIdle,
		log: s.Log.With("request", id)}
	if r.ContentLength != 0 {
		_ = x.rc.SetReadDeadline(began.Add(strayBody))
	}
	h := x.Header()
	h.Set("X-Request-Id", id)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store") // a handler may allow more
	defer s.finish(x, r, began)
	if !cleanPath(r.URL.Path) { // else the mux would redirect, which turns some clients' POST into GET
		s.fail(x, r, noSuchPath())
		return
	}
	s.mux.ServeHTTP(x, r)
}

// finish ends an exchange: it catches a panic, counts, logs.
func (s *Server) finish(x *exchange, r *http.Request, began time.Time) {
	abort := false
	if p := recover(); p != nil {
		if p != http.ErrAbortHandler { //nolint:errorlint // recover gives the very value
			x.log.Error("handler panicked", "panic", p, "stack", string(debug.Stack()))
		}
		if abort = x.status != 0 || p == http.ErrAbortHandler; !abort { //nolint:errorlint // recover gives the very value
			x.Header().Set("Connection", "close")
			s.fail(x, r, aviary.Errorf(aviary.CodeInternal, "api.panic", ""))
		}
	}
	took := time.Since(began)
	s.Metrics.request(x.route, x.status, x.code, took)
	level := slog.LevelInfo
	if quiet[x.route] {
		level = slog.LevelDebug
	}
	x.log.Log(r.Context(), level, "request", "method", r.Method, "route", x.route, "status", x.status, "code", x.code,
		"bytes", x.bytes, "took_s", took.Seconds(), "remote", r.RemoteAddr)
	if abort {
		panic(http.ErrAbortHandler)
	}
	if x.afterReply != nil {
		x.afterReply()
	}
}
