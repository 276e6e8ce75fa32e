package queue

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requireRedis names the variable that turns a missing redis-server from a skipped test into a failed one.
const requireRedis = "AVIARY_TEST_REQUIRE_REDIS"

// redisServer is a real redis-server on a Unix socket in a directory of its own, without persistence: after a restart it is empty.
type redisServer struct {
	t      *testing.T
	binary string
	socket string
	extra  []string
	cmd    *exec.Cmd
}

// newRedisServer skips the test where no redis-server is installed, unless the environment requires one. The server is not started yet.
func newRedisServer(t *testing.T, extra ...string) *redisServer {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv(requireRedis) == "1" {
			t.Fatalf("%s=1, and there is no redis-server: %v", requireRedis, err)
		}
		t.Skip("no redis-server is installed")
	}
	dir, err := os.MkdirTemp("", "aviary-redis-") //nolint:usetesting // t.TempDir is longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{t: t, binary: binary, socket: filepath.Join(dir, "s"), extra: extra}
	t.Cleanup(func() {
		s.kill()
		_ = os.RemoveAll(dir)
	})
	return s
}

// start returns when the server takes connections.
func (s *redisServer) start() {
	s.t.Helper()
	args := append([]string{
		"--port", "0", "--unixsocket", s.socket, "--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction",
		"--dir", filepath.Dir(s.socket), "--daemonize", "no",
	}, s.extra...)
	cmd := exec.Command(s.binary, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.cmd = cmd
	ready := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "ready to accept connections") {
				ready <- true
			}
		}
		close(ready)
	}()
	select {
	case ok := <-ready:
		if !ok {
			s.t.Fatal("redis-server ended at once")
		}
	case <-time.After(patience):
		s.t.Fatal("redis-server did not start")
	}
}

// kill ends the server as a crash would.
func (s *redisServer) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	s.cmd = nil
}

func (s *redisServer) url() string { return "unix://" + s.socket }

// onEach runs a test on a real redis-server and on the embedded one.
func onEach(t *testing.T, test func(t *testing.T, conn *Conn, rec *recorder)) {
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		rec := newRecorder(t)
		s := newRedisServer(t)
		s.start()
		test(t, dial(t, s, rec), rec)
	})
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		rec := newRecorder(t)
		conn := Embedded(rec.logger())
		t.Cleanup(func() { _ = conn.Close() })
		test(t, conn, rec)
	})
}

func dial(t *testing.T, s *redisServer, rec *recorder) *Conn {
	t.Helper()
	conn, err := Dial(context.Background(), s.url(), rec.logger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// eventually waits for something in Redis, which sends no signals.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// keys lists what Redis holds, by pattern.
func keys(t *testing.T, conn *Conn, pattern string) []string {
	t.Helper()
	found, err := conn.client.Keys(context.Background(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// embedded opens a connection that is closed with the test.
func embedded(t *testing.T, rec *recorder) *Conn {
	conn := Embedded(rec.logger())
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
