//go:build unix

package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/api"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
	"github.com/aviary-asr/aviary/gpu"
	"github.com/aviary-asr/aviary/queue"
)

// The tests here kill, freeze and break real processes of `aviary serve` whose engine does as its name says.

// faulty is a binary with an engine that has one fault, and little patience with it. Its leases and terms are so long that what waits for their end
// fails its test.
func faulty(engine string) cli.Program {
	devices := []string{"cpu"}
	if engine == "pair" || engine == "half" {
		devices = []string{"cpu:0", "cpu:1"}
	}
	return cli.Program{
		Backends: []cli.Backend{{
			Name:    "cpu",
			Devices: func() ([]string, error) { return devices, nil },
			Engine: func(_ context.Context, device string) (gpu.Engine, error) {
				switch {
				case engine == "mute":
					select {}
				case engine == "absent", engine == "half" && device == "cpu:0":
					return nil, errors.New("it does not answer on the bus")
				}
				return faultyEngine(engine), nil
			},
		}},
		Timing: cli.Timing{
			Lease: 5 * time.Minute, Term: 5 * time.Minute, Heartbeat: 200 * time.Millisecond, Stall: time.Second, Grace: time.Second, Opening: 5 * time.Second,
			Queue: queue.Config{SweepEvery: time.Second},
		},
	}
}

// faultyEngine is one of: mute, which hangs while it is opened; absent, which cannot be; half, of whose two devices one cannot be; pair, with two devices, which hangs
// with short audio and is slow with a minute of it; good; slow, which works for a minute or until it is told to stop; steady, which works for 3 s; hanging; failing, with what ends the
// use of a device; unfit, which fails the self-test too; and stuck, which hangs in it.
type faultyEngine string

func (e faultyEngine) Transcribe(ctx context.Context, pcm aviary.PCM, _ aviary.AttentionMode, _ func(time.Duration)) (aviary.Transcript, error) {
	t := aviary.Transcript{Text: "done", Segments: []aviary.Segment{}, Engine: aviary.Engine{Attention: aviary.Attention{Mode: aviary.AttentionFull}}}
	broken := aviary.Errorf(aviary.CodeDeviceFailed, "device", "It fell off the bus.")
	tested := slices.Equal(pcm, gpu.SelfTestSignal())
	switch {
	case e == "stuck", e == "hanging" && !tested, e == "pair" && !tested && len(pcm) < 30*aviary.SampleRate:
		select {}
	case e == "unfit", e == "failing" && !tested:
		return t, broken
	case (e == "slow" || e == "pair") && !tested:
		return t, work(ctx, time.Minute)
	case e == "steady" && !tested:
		return t, work(ctx, 3*time.Second)
	}
	return t, nil
}

func (faultyEngine) Close() error { return nil }

// work passes the time as an engine does, in slices.
func work(ctx context.Context, d time.Duration) error {
	const slice = 20 * time.Millisecond
	for ; d > 0; d -= slice {
		time.Sleep(slice)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// running is a process of `aviary serve` and what it logs.
type running struct {
	t   *testing.T
	cmd *exec.Cmd

	mu    sync.Mutex
	more  sync.Cond
	lines []string
	ended bool
}

// serveFaulty starts a server with a faulty engine. It is killed with the test.
func serveFaulty(t *testing.T, engine, dir string, flags ...string) *running {
	t.Helper()
	args := append([]string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--metrics-listen", "", "--log-format", "json"}, flags...)
	r := &running{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], args...)}
	r.more.L = &r.mu
	r.cmd.Env = append(os.Environ(), asAviary+"="+engine)
	log, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.kill)
	go func() {
		lines := bufio.NewScanner(log)
		lines.Buffer(nil, 32<<20) // stacks
		for lines.Scan() {
			r.add(lines.Text(), false)
		}
		r.add("", true)
	}()
	return r
}

func (r *running) add(line string, ended bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
	r.ended = ended
	r.more.Broadcast()
}

// patience is how long a process may take for what it is waited for.
const patience = time.Minute

// logged waits for a line of the log, and gives its attributes.
func (r *running) logged(msg string) map[string]any {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	defer time.AfterFunc(patience, r.more.Broadcast).Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := 0; ; i++ {
		for i == len(r.lines) {
			if r.ended || !time.Now().Before(deadline) {
				r.t.Fatalf("the process has not said %q (ended: %v):\n%s", msg, r.ended, strings.Join(r.lines, "\n"))
			}
			r.more.Wait()
		}
		var line map[string]any
		if json.Unmarshal([]byte(r.lines[i]), &line) == nil && line["msg"] == msg {
			return line
		}
	}
}

// said tells whether the log has the text so far.
func (r *running) said(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.lines, "\n"), text)
}

func (r *running) client() *api.Client {
	r.t.Helper()
	url, _ := r.logged("the API listens")["url"].(string)
	c, err := api.NewClient(api.ClientConfig{Server: url})
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *running) signal(s os.Signal) {
	r.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.t.Fatal(err)
	}
}

// exit waits for the end, and gives the exit code; -1 after a signal, which a process that does not end is sent.
func (r *running) exit() int {
	defer time.AfterFunc(patience, func() { _ = r.cmd.Process.Kill() }).Stop()
	r.mu.Lock()
	for !r.ended {
		r.more.Wait()
	}
	r.mu.Unlock()
	if err := r.cmd.Wait(); err != nil && r.cmd.ProcessState == nil {
		r.t.Error(err)
	}
	return r.cmd.ProcessState.ExitCode()
}

func (r *running) kill() {
	if r.cmd.ProcessState == nil {
		_ = r.cmd.Process.Kill()
		r.exit()
	}
}

func isRunning(j api.Job) bool { return j.Status == aviary.StateRunning }

// What a server was doing when it was killed goes on when it is back: not after its lease or term, and without a charge.
func TestKillInTheMiddleOfAJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := serveFaulty(t, "slow", dir)
	client := first.client()
	id := submit(t, client, "interrupted", clip(t)).ID
	waitFor(t, client, id, isRunning)
	first.kill()
	back := time.Now()
	second := serveFaulty(t, "good", dir)
	client = second.client()
	if line := second.logged("took over from a worker that is gone"); line["job"] != id {
		t.Errorf("took over %v", line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	job, err := client.Wait(ctx, id, nil)
	if took := time.Since(back); err != nil || job.Status != aviary.StateSucceeded || job.Lost != 1 || job.Attempt != 1 || took > 20*time.Second {
		t.Errorf("after %v: %+v, %v", took, job, err)
	}
	second.signal(syscall.SIGTERM)
	if code := second.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A call that hangs ends the process each time; the job that does it is quarantined at the third, and the next job runs.
func TestAHangEndsTheProcessAndQuarantinesTheJob(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	id := ""
	for lost := 1; lost <= aviary.MaxLost; lost++ {
		server := serveFaulty(t, "hanging", dir)
		client := server.client()
		if id == "" {
			id = submit(t, client, "poison", clip(t)).ID
		}
		if code := server.exit(); code != 70 {
			t.Fatalf("exit code %d, want 70", code)
		}
		if stacks, _ := server.logged("what all goroutines do")["stacks"].(string); !strings.Contains(stacks, "faultyEngine") {
			t.Error("the stacks do not show what hangs")
		}
	}
	if list := failures(t, dir, "cpu"); len(list) != 1 || list[0].Job != id { // one poison does not make an ill device
		t.Errorf("remembered: %+v", list)
	}
	server := serveFaulty(t, "good", dir)
	client := server.client()
	job, err := client.Job(t.Context(), id)
	if err != nil || job.Status != aviary.StateFailed || job.Lost != aviary.MaxLost || job.Error.Code != aviary.CodeAttemptTimeout ||
		!strings.Contains(job.Error.Detail, "quarantined") {
		t.Errorf("the poison: %+v (%+v), %v", job, job.Error, err)
	}
	next := submit(t, client, "next", clip(t))
	if job, err = client.Wait(t.Context(), next.ID, nil); err != nil || job.Status != aviary.StateSucceeded {
		t.Errorf("the next job: %+v, %v", job, err)
	}
}

// A process that is frozen for longer than it may be silent is not hanging when it thaws.
func TestAFrozenProcessDoesNotHang(t *testing.T) {
	t.Parallel()
	server := serveFaulty(t, "steady", t.TempDir())
	client := server.client()
	id := submit(t, client, "frozen", clip(t)).ID
	waitFor(t, client, id, isRunning)
	server.signal(syscall.SIGSTOP)
	time.Sleep(3 * time.Second) // what is tested is that nothing comes of the time that passes
	server.signal(syscall.SIGCONT)
	if job, err := client.Wait(t.Context(), id, nil); err != nil || job.Status != aviary.StateSucceeded || job.Lost != 0 {
		t.Errorf("%+v, %v", job, err)
	}
}

// sharedRedis is the URL of a real redis-server. It skips the test where none is installed, unless the environment requires one.
func sharedRedis(t *testing.T) string {
	t.Helper()
	const required = "AVIARY_TEST_REQUIRE_REDIS"
	binary, err := exec.LookPath("redis-server")
	if err != nil && os.Getenv(required) == "1" {
		t.Fatalf("%s=1, and there is no redis-server: %v", required, err)
	}
	if err != nil {
		t.Skip("no redis-server is installed")
	}
	dir, err := os.MkdirTemp("", "aviary-redis-") //nolint:usetesting // t.TempDir is longer than a socket's path may be
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.CommandContext(t.Context(), binary, "--port", "0", "--unixsocket", socket, "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(dir)
	})
	eventually(t, "redis-server is there", func() bool { _, err := os.Stat(socket); return err == nil })
	return "unix://" + socket
}

// Of two workers on one data directory, one has the device. The other waits, says so, and goes on with the work of the first when that is dead.
func TestASecondWorkerWaitsForTheDevice(t *testing.T) {
	t.Parallel()
	dir, redis := t.TempDir(), sharedRedis(t)
	shared := []string{"--redis-url", redis}
	client := serveFaulty(t, "good", dir, append(shared, "--role", "api")...).client()
	first := serveFaulty(t, "slow", dir, append(shared, "--role", "worker")...)
	first.logged("the worker takes jobs")
	second := serveFaulty(t, "good", dir, append(shared, "--role", "worker")...)
	third := serveFaulty(t, "good", dir, append(shared, "--role", "worker")...)
	for _, waiting := range []*running{second, third} {
		line := waiting.logged("another process uses the device; waiting for its end")
		if lock, _ := line["lock"].(string); line["pid"] != strconv.Itoa(first.cmd.Process.Pid) || filepath.Base(lock) != "cpu.lock" {
			t.Errorf("it waits for %v", line)
		}
	}
	began := time.Now()
	third.signal(syscall.SIGTERM)
	if code := third.exit(); code != 0 || time.Since(began) > 5*time.Second {
		t.Errorf("one that waits ended after %v with exit code %d", time.Since(began), code)
	}
	id := submit(t, client, "handed on", clip(t)).ID
	waitFor(t, client, id, isRunning)
	if second.said("the worker takes jobs") {
		t.Error("two workers have one device")
	}
	first.kill()
	if line := second.logged("took over from a worker that is gone"); line["job"] != id {
		t.Errorf("took over %v", line)
	}
	if job, err := client.Wait(t.Context(), id, nil); err != nil || job.Status != aviary.StateSucceeded || job.Lost != 1 {
		t.Errorf("%+v, %v", job, err)
	}
}

// A copy of a worker's data directory is another node: what runs on the first one is none of its business.
func TestACopiedDirectoryTakesNothingOver(t *testing.T) {
	t.Parallel()
	dir, redis := t.TempDir(), sharedRedis(t)
	shared := []string{"--redis-url", redis, "--database-url", "sqlite:" + filepath.Join(dir, "aviary.db"), "--blob-url", "file:" + filepath.Join(dir, "blobs")}
	client := serveFaulty(t, "good", dir, append(shared, "--role", "api")...).client()
	first, second := t.TempDir(), t.TempDir()
	serveFaulty(t, "slow", first, append(shared, "--role", "worker")...).logged("the worker takes jobs")
	id := submit(t, client, "of the first", clip(t)).ID
	waitFor(t, client, id, isRunning)
	if err := os.CopyFS(second, os.DirFS(first)); err != nil {
		t.Fatal(err)
	}
	worker := serveFaulty(t, "good", second, append(shared, "--role", "worker")...)
	worker.logged("the worker takes jobs")
	next := submit(t, client, "of the second", clip(t)).ID
	if job, err := client.Wait(t.Context(), next, nil); err != nil || job.Status != aviary.StateSucceeded {
		t.Errorf("the copy does no work: %+v, %v", job, err)
	}
	if job, err := client.Job(t.Context(), id); err != nil || !isRunning(job) || job.Lost != 0 || worker.said("took over") {
		t.Errorf("the job of the first: %+v, %v", job, err)
	}
}

// Who does not want to wait for the running job signals twice: the job goes back, and nobody believes it lost.
func TestASecondSignalGivesTheJobBack(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			server := serveFaulty(t, "slow", dir)
			client := server.client()
			id := submit(t, client, "a", clip(t)).ID
			waitFor(t, client, id, isRunning)
			server.signal(s)
			server.logged("stopping; signal again to hurry")
			began := time.Now()
			server.signal(s)
			if code := server.exit(); code != 0 || time.Since(began) > 10*time.Second {
				t.Errorf("it ended after %v with exit code %d", time.Since(began), code)
			}
			server = serveFaulty(t, "good", dir)
			client = server.client()
			job, err := client.Wait(t.Context(), id, nil)
			if err != nil || job.Status != aviary.StateSucceeded || job.Lost != 0 || job.Attempt != 1 || server.said("took over") {
				t.Errorf("%+v, %v", job, err)
			}
			attempts, err := client.Attempts(t.Context(), id)
			if err != nil || len(attempts.Data) != 2 || attempts.Data[0].Outcome != aviary.OutcomeReleased {
				t.Errorf("attempts %+v, %v; the first should be released", attempts.Data, err)
			}
		})
	}
}

// A process that does not come to its end can still be killed by hand.
func TestAThirdSignalKills(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serveFaulty(t, "slow", dir)
	client := server.client()
	waitFor(t, client, submit(t, client, "a", clip(t)).ID, isRunning)
	defer lockDatabase(t, filepath.Join(dir, "aviary.db"))() // so that the job cannot be given back
	server.signal(syscall.SIGTERM)
	server.logged("stopping; signal again to hurry")
	server.signal(syscall.SIGTERM)
	server.logged("hurrying; signal again to kill")
	server.signal(syscall.SIGTERM)
	if code := server.exit(); code != -1 {
		t.Errorf("exit code %d, want death by the signal", code)
	}
}

// A server that is told to stop while its store is away ends in bounded time, and its successor takes the job over.
func TestSIGTERMWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	server := serveFaulty(t, "slow", dir, "--drain-timeout", "0")
	client := server.client()
	id := submit(t, client, "a", clip(t)).ID
	waitFor(t, client, id, isRunning)
	free := lockDatabase(t, filepath.Join(dir, "aviary.db"))
	began := time.Now()
	server.signal(syscall.SIGTERM)
	code := server.exit()
	free()
	if took := time.Since(began); code != 0 || took > 40*time.Second {
		t.Errorf("it ended after %v with exit code %d", took, code)
	}
	job, err := serveFaulty(t, "good", dir).client().Wait(t.Context(), id, nil)
	if err != nil || job.Status != aviary.StateSucceeded || job.Lost > 1 {
		t.Errorf("%+v, %v", job, err)
	}
}

// lockDatabase keeps a SQLite database from being written, as another process does that writes for long: it takes the write lock of the log.
func lockDatabase(t *testing.T, name string) (free func()) {
	t.Helper()
	f, err := os.OpenFile(name+"-shm", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Start: 120, Len: 1} // by the format of the file
	eventually(t, "the database is locked", func() bool { return syscall.FcntlFlock(f.Fd(), syscall.F_SETLK, &lock) == nil })
	return func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}
