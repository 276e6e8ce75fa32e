//go:build unix

package chaos

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// requireRedis names the variable that turns a missing redis-server from a skipped test into a failed one.
const requireRedis = "AVIARY_TEST_REQUIRE_REDIS"

// redisServer is a real redis-server on a Unix socket in a folder of its own.
type redisServer struct {
	t      testing.TB
	binary string
	folder string
	extra  []string
	cmd    *exec.Cmd
	client *redis.Client
}

// newRedis starts a server without persistence: after a restart it is empty. extra replaces its settings. Where none is installed the test is skipped.
func newRedis(t testing.TB, extra ...string) *redisServer {
	t.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv(requireRedis) == "1" {
			t.Fatalf("%s=1, and there is no redis-server: %v", requireRedis, err)
		}
		t.Skip("no redis-server is installed")
	}
	folder, err := os.MkdirTemp("", "aviary-redis-") //nolint:usetesting // t.TempDir is longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{t: t, binary: binary, folder: folder, extra: extra}
	s.client = redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() {
		_ = s.client.Close()
		s.kill()
		_ = os.RemoveAll(folder)
	})
	s.start()
	return s
}

func (s *redisServer) socket() string { return filepath.Join(s.folder, "s") }
func (s *redisServer) url() string    { return "unix://" + s.socket() }

// start returns when the server takes connections.
func (s *redisServer) start() {
	s.t.Helper()
	args := append([]string{
		"--port", "0", "--unixsocket", s.socket(), "--save", "", "--appendonly", "no", "--maxmemory", "256mb", "--maxmemory-policy", "noeviction",
		"--dir", s.folder, "--daemonize", "no",
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
	ready := make(chan bool)
	go func() {
		lines, said := bufio.NewScanner(out), false
		for lines.Scan() {
			if !said && strings.Contains(lines.Text(), "ready to accept connections") {
				said = true
				ready <- true
			}
		}
		close(ready)
	}()
	if !<-ready {
		s.t.Fatal("redis-server ended at once")
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

// stop ends the server as its operator would: with an append-only file, all is kept.
func (s *redisServer) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
}

// freeze stops the server in the middle of whatever it does: connections stay, and nothing is answered. thaw lets it go on.
func (s *redisServer) freeze() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }
func (s *redisServer) thaw()   { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// flush empties the server.
func (s *redisServer) flush() {
	s.t.Helper()
	if err := s.client.FlushAll(context.Background()).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// do runs any command.
func (s *redisServer) do(args ...any) any {
	s.t.Helper()
	v, err := s.client.Do(context.Background(), args...).Result()
	if err != nil {
		s.t.Fatalf("redis %v: %v", args, err)
	}
	return v
}

// keys lists what the server holds, by pattern.
func (s *redisServer) keys(pattern string) []string {
	s.t.Helper()
	found, err := s.client.Keys(context.Background(), pattern).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// debris lists what is left of tasks. When no job is open, nothing should be. What a dead worker had taken is asynq's own to recover while its lease is
// noted, which takes up to two minutes: it counts only where everything is to be listed.
func (s *redisServer) debris(everything bool) (found []string, err error) {
	ctx := context.Background()
	for _, class := range aviary.Priorities() {
		prefix := "asynq:{" + string(class) + "}:"
		leased, err := s.client.ZRange(ctx, prefix+"lease", 0, -1).Result()
		if err != nil {
			return nil, err
		}
		active, err := s.client.LRange(ctx, prefix+"active", 0, -1).Result()
		if err != nil {
			return nil, err
		}
		tasks, err := s.client.Keys(ctx, prefix+"t:*").Result()
		if err != nil {
			return nil, err
		}
		recoverable := func(id string) bool { return !everything && slices.Contains(leased, id) && slices.Contains(active, id) }
		for _, id := range append(leased, active...) {
			if !recoverable(id) {
				found = append(found, "active or leased "+id)
			}
		}
		for _, key := range tasks {
			if !recoverable(strings.TrimPrefix(key, prefix+"t:")) {
				found = append(found, key)
			}
		}
		for _, part := range []string{"pending", "retry", "scheduled", "archived", "completed"} {
			keys, err := s.client.Keys(ctx, prefix+part).Result()
			if err != nil {
				return nil, err
			}
			found = append(found, keys...)
		}
	}
	slices.Sort(found)
	return found, nil
}
