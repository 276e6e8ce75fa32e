package api

import (
	"context"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
)

// handler answers one kind of request, or returns why it was refused.
type handler func(x *exchange, r *http.Request) error

// endpoint is a method and a pattern of http.ServeMux, which together are the value of the metrics' label endpoint.
type endpoint struct {
	method, pattern string
	handle          handler
	unbounded       bool // sets its own deadlines
}

// routeOther is the label of what no endpoint serves.
const routeOther = "other"

// quiet lists the routes that probes ask all day: they are logged at debug.
var quiet = map[string]bool{
	"GET /health": true, "GET /livez": true, "GET /readyz": true, "GET /startupz": true, "GET /v1/queue": true,
}

// endpoints is the whole interface.
func (s *Server) endpoints() []endpoint {
	return []endpoint{
		{method: "POST", pattern: "/v1/jobs", handle: s.submit, unbounded: true},
		{method: "GET", pattern: "/v1/jobs", handle: s.list},
		{method: "GET", pattern: "/v1/jobs/{id}", handle: s.job, unbounded: true},
		{method: "DELETE", pattern: "/v1/jobs/{id}", handle: s.delete},
		{method: "POST", pattern: "/v1/jobs/{id}/cancel", handle: s.cancel},
		{method: "POST", pattern: "/v1/jobs/{id}/retry", handle: s.retry},
		{method: "GET", pattern: "/v1/jobs/{id}/transcript", handle: s.transcript},
		{method: "GET", pattern: "/v1/jobs/{id}/attempts", handle: s.attempts},
		{method: "GET", pattern: "/v1/queue", handle: s.queue},
		{method: "GET", pattern: "/v1/capacity", handle: s.capacity},
		{method: "GET", pattern: "/version", handle: s.version},
		{method: "GET", pattern: "/health", handle: s.health},
		{method: "GET", pattern: "/livez", handle: s.livez},
		{method: "GET", pattern: "/readyz", handle: s.readyz},
		{method: "GET", pattern: "/startupz", handle: s.startupz},
	}
}

// routes builds the mux. Methods are told apart here and not by the mux, which answers a wrong one in plain text.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	byPattern := map[string][]endpoint{}
	for _, e := range s.endpoints() {
		byPattern[e.pattern] = append(byPattern[e.pattern], e)
	}
	for pattern, list := range byPattern {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			x := w.(*exchange)
			s.dispatch(x, r, list)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w.(*exchange), r, noSuchPath())
	})
	return mux
}

// dispatch picks the endpoint by method. HEAD is GET whose body net/http drops.
func (s *Server) dispatch(x *exchange, r *http.Request, list []endpoint) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	for _, e := range list {
		if e.method != method {
			continue
		}
		x.route = e.method + " " + e.pattern
		if err := s.handle(x, r, e); err != nil {
			s.fail(x, r, err)
		}
		return
	}
	allow := []string{"OPTIONS"}
	for _, e := range list {
		allow = append(allow, e.method)
		if e.method == http.MethodGet {
			allow = append(allow, "HEAD")
		}
	}
	slices.Sort(allow)
	x.Header().Set("Allow", strings.Join(allow, ", "))
	if r.Method == http.MethodOptions {
		_ = x.empty(http.StatusNoContent)
		return
	}
	s.fail(x, r, aviary.Errorf(aviary.CodeMethodNotAllowed, "api.route", "%s is not allowed here; allowed: %s.", r.Method, strings.Join(allow, ", ")))
}

// handle gives the handler the server's time for an answer, unless it sets deadlines of its own. Only the store can use it up: see aviary.OutOfTime.
func (s *Server) handle(x *exchange, r *http.Request, e endpoint) error {
	if e.unbounded {
		return e.handle(x, r)
	}
	ctx, cancel := s.bounded(r.Context(), 0)
	defer cancel()
	return aviary.OutOfTime(r.Context(), opAnswer, e.handle(x, r.WithContext(ctx)))
}

func noSuchPath() error {
	e := aviary.Errorf(aviary.CodeNotFound, "api.route", "Nothing is served under this path.")
	e.Hint = "Jobs are at /v1/jobs."
	return e
}

// cleanPath says whether a path has no empty, "." or ".." element and no slash at its end.
func cleanPath(p string) bool { return p == "/" || strings.HasPrefix(p, "/") && path.Clean(p) == p }

// opAnswer is the operation of errors about a store that does not answer.
const opAnswer = "api.answer"

// bounded gives the store the server's time for an answer, after the time that the client asked to wait.
func (s *Server) bounded(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, wait+s.Answer)
}
