//go:build !unix

package pgtest

import "testing"

// Server is a Postgres server of a test's own.
type Server struct{}

// NewServer skips the test, or fails it if AVIARY_TEST_REQUIRE_POSTGRES is 1.
func NewServer(t testing.TB) *Server {
	t.Helper()
	giveUp(t, errNoServer)
	return nil
}

func newServer() (*Server, error) { return nil, errNoServer }

// URL is empty.
func (*Server) URL() string { return "" }

// Schema is empty.
func (*Server) Schema(testing.TB) string { return "" }

// Start fails.
func (*Server) Start() error { return errNoServer }

// Crash fails.
func (*Server) Crash() error { return errNoServer }

// Freeze fails.
func (*Server) Freeze() error { return errNoServer }

// Thaw fails.
func (*Server) Thaw() error { return errNoServer }
