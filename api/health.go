package api

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"runtime/debug"
	"time"
)

// Health is the body of /health, as clients of the omi Parakeet service know it.
type Health struct {
	Status        string  `json:"status"` // healthy, loading or unhealthy
	Ready         bool    `json:"ready"`
	Reason        string  `json:"reason,omitempty"` // of unhealthy
	UptimeSeconds float64 `json:"uptime_seconds"`
}

// readyTimeout bounds Config.Ready: a probe that hangs tells as much as one that fails.
const readyTimeout = 5 * time.Second

// ready asks Config.Ready, and notes when it says yes for the first time. It is meant to read only: a store that takes no writes for a while, being
// full or between two primaries, still serves states and transcripts, and refuses uploads with a code of their own. To fail all requests then would help nobody.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := s.Ready(ctx); err != nil {
		return err
	}
	s.started.Store(true)
	return nil
}

// health answers healthy (200), loading or unhealthy (503).
func (s *Server) health(x *exchange, r *http.Request) error {
	h := Health{Status: "healthy", Ready: true, UptimeSeconds: seconds(time.Since(s.born))}
	err := s.Alive()
	if err == nil {
		err = s.ready(r.Context())
	}
	switch {
	case err == nil:
		return x.reply(http.StatusOK, h)
	case errors.Is(err, ErrStarting):
		h.Status = "loading"
	default:
		h.Status, h.Reason = "unhealthy", err.Error()
	}
	h.Ready = false
	return x.reply(http.StatusServiceUnavailable, h)
}

// probeAnswer is the body of the three probes.
type probeAnswer struct {
	Status string `json:"status"` // ok or unavailable
	Reason string `json:"reason,omitempty"`
}

func (x *exchange) probe(err error) error {
	if err != nil {
		return x.reply(http.StatusServiceUnavailable, probeAnswer{"unavailable", err.Error()})
	}
	return x.reply(http.StatusOK, probeAnswer{Status: "ok"})
}

// livez fails only when a restart would help.
func (s *Server) livez(x *exchange, _ *http.Request) error { return x.probe(s.Alive()) }

// readyz fails while requests should go elsewhere. That all workers are busy, or away, is no reason: uploads queue, and states are served.
func (s *Server) readyz(x *exchange, r *http.Request) error {
	if s.isDraining() {
		return x.probe(errors.New("the server is shutting down"))
	}
	return x.probe(s.ready(r.Context()))
}

// startupz fails until the server was ready once.
func (s *Server) startupz(x *exchange, r *http.Request) error {
	if s.started.Load() {
		return x.probe(nil)
	}
	return x.probe(s.ready(r.Context()))
}

// version says what answers.
func (s *Server) version(x *exchange, _ *http.Request) error {
	v := Version{Name: "aviary", Version: s.Version, Go: runtime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.Commit = setting.Value
			}
		}
	}
	return x.reply(http.StatusOK, v)
}
