//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a Postgres server of a test's own. It syncs what it commits, and listens to a Unix socket only.
type Server struct {
	bin, folder string
	user        *syscall.SysProcAttr // whom it runs as
	process     *exec.Cmd            // nil while it is down
	alive       *os.File             // the server ends when this pipe is closed, and so when the test's process ends, however it does
}

// NewServer starts a server that belongs to one test. Without the binaries the test is skipped, or fails if AVIARY_TEST_REQUIRE_POSTGRES is 1.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, err := newServer()
	if err != nil {
		giveUp(t, err)
	}
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Crash(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(s.folder); err != nil {
			t.Error(err)
		}
	})
	return s
}

// newServer makes the files of a server.
func newServer() (*Server, error) {
	s := &Server{user: &syscall.SysProcAttr{}}
	var err error
	if s.bin, err = binaries(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "aviary-postgres-"); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 { // Postgres refuses to run as root
		uid, gid, err := somebody()
		if err != nil {
			return nil, err
		}
		s.user.Credential = &syscall.Credential{Uid: uid, Gid: gid}
		if err := os.Chown(s.folder, int(uid), int(gid)); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(context.Background(), filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--username", "aviary", "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = s.folder, s.user
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return s, nil
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// URL of the server's database.
func (s *Server) URL() string { return "postgres:///postgres?user=aviary&host=" + s.folder }

// Schema makes an empty schema on the server: see the function of that name.
func (s *Server) Schema(t testing.TB) string {
	t.Helper()
	return schemaOn(t, server{url: s.URL(), own: s})
}

// guard runs the server and ends it, at once and without ceremony, when the pipe at its standard input is closed. Then it removes its files too.
const guard = `
exec 3<&0
"$@" </dev/null &
server=$!
{ read -r line <&3; : >"$FOLDER/over"; kill -QUIT "$server"; } &
wait "$server"
kill $!
[ ! -e "$FOLDER/over" ] || rm -rf "$FOLDER"
`

// Start starts the server, and returns when it takes connections. After a crash it recovers first.
func (s *Server) Start() error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reader.Close() //nolint:errcheck // the child has its own
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return errors.Join(err, writer.Close())
	}
	defer log.Close() //nolint:errcheck // the child has its own
	cmd := exec.CommandContext(context.Background(), "sh", "-c", guard, "sh", filepath.Join(s.bin, "postgres"), "-D", s.data(),
		"-c", "listen_addresses=", "-c", "unix_socket_directories="+s.folder, "-c", "fsync=on", "-c", "max_connections=200", "-c", "shared_buffers=32MB")
	cmd.Dir, cmd.SysProcAttr, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.folder, s.user, reader, log, log
	cmd.Env = append(os.Environ(), "FOLDER="+s.folder)
	if err := cmd.Start(); err != nil {
		return errors.Join(err, writer.Close())
	}
	s.process, s.alive = cmd, writer
	var conn *pgx.Conn
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithDeadline(context.Background(), deadline)
		if conn, err = pgx.Connect(ctx, s.URL()); err == nil {
			err = conn.Close(ctx)
		}
		cancel()
		if err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("the server does not answer: %w\n%s", err, text)
	}
	return nil
}

// Crash ends the server at once, as pg_ctl stop -m immediate does: nothing is finished, nothing is flushed. It returns when it is gone.
func (s *Server) Crash() error {
	if s.process == nil {
		return nil
	}
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGQUIT); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	if err := s.signal(syscall.SIGCONT); err != nil { // a frozen one would not end
		return err
	}
	_ = s.process.Wait() // it did not end well, as it should
	s.process = nil
	return s.alive.Close()
}

// Freeze stops all processes of the server, as a paused virtual machine is stopped: connections stay open, and nothing is answered.
func (s *Server) Freeze() error { return s.signal(syscall.SIGSTOP) }

// Thaw lets a frozen server go on.
func (s *Server) Thaw() error { return s.signal(syscall.SIGCONT) }

func (s *Server) pid() (int, error) {
	text, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.SplitN(string(text), "\n", 2)[0])
}

// signal reaches the server's main process first, so that it starts no others meanwhile, and then those that it started.
func (s *Server) signal(sig syscall.Signal) error {
	pid, err := s.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, sig); err != nil {
		return fmt.Errorf("signal the server: %w", err)
	}
	out, err := exec.CommandContext(context.Background(), "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		var child, parent int
		if _, err := fmt.Sscan(line, &child, &parent); err != nil || parent != pid {
			continue
		}
		if err := syscall.Kill(child, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("signal a process of the server: %w", err)
		}
	}
	return nil
}

// binaries is the folder of initdb and postgres, of the newest version.
func binaries() (string, error) {
	list, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	if len(list) > 0 {
		version := func(path string) int {
			n, _ := strconv.Atoi(strings.Split(path, "/")[4])
			return n
		}
		newest := slices.MaxFunc(list, func(a, b string) int { return version(a) - version(b) })
		return filepath.Dir(newest), nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", errNoServer
	}
	return filepath.Dir(path), nil
}

// somebody is who runs the server in place of root.
func somebody() (uid, gid uint32, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return uint32(uid), uint32(gid), errors.Join(err1, err2)
	}
	return 0, 0, errors.New("there is no user to run Postgres as, other than root")
}
