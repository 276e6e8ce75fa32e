//go:build unix

package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is the longest wait for anything that a test does not bound itself.
const patience = 30 * time.Second

// process is a place where a process runs, again and again: a supervisor restarts it when it dies, unless it is to be down.
type process struct {
	t    testing.TB
	name string
	args []string
	env  []string
	log  *os.File

	mu      sync.Mutex
	changed *sync.Cond
	cmd     *exec.Cmd // nil while it is down
	up      bool      // the supervisor keeps it up
	lines   []line    // of all runs
	exits   []exit
	runs    int
	pids    []int // of all runs
	frozen  bool
	over    sync.WaitGroup
}

// line is one of a process's log, as far as tests read it.
type line struct {
	Run     int       `json:"-"`
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`
	Msg     string    `json:"msg"`
	URL     string    `json:"url"`
	Job     string    `json:"job"`
	Attempt int       `json:"attempt"`
	Outcome string    `json:"outcome"`
	raw     string
}

// exit is the end of a run.
type exit struct {
	run    int
	at     time.Time
	code   int            // -1 after a signal
	signal syscall.Signal // 0 without
}

// A process that dies at once is restarted later each time, one that has run for a while at once.
const (
	firstBackoff   = 100 * time.Millisecond
	longestBackoff = 2 * time.Second
	settledAfter   = 3 * time.Second
)

func newProcess(t testing.TB, name, folder string, c child, args ...string) *process {
	t.Helper()
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(folder, name+".stderr"))
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, name: name, args: args, log: log, env: append(os.Environ(), childVariable+"="+string(config), "GOTRACEBACK=single")}
	p.changed = sync.NewCond(&p.mu)
	t.Cleanup(func() {
		p.kill()
		p.over.Wait()
		p.attach()
		_ = log.Close()
	})
	return p
}

// start keeps the process up from now on.
func (p *process) start() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.up {
		return
	}
	p.up = true
	if p.cmd == nil {
		p.launch(firstBackoff)
	}
}

// launch starts a run. The caller holds the lock.
func (p *process) launch(backoff time.Duration) {
	cmd := exec.Command(os.Args[0], p.args...)
	cmd.Env = p.env
	keep, err := cmd.StdinPipe()
	if err != nil {
		p.t.Errorf("%s: %v", p.name, err)
		return
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		p.t.Errorf("%s: %v", p.name, err)
		return
	}
	if err := cmd.Start(); err != nil {
		p.t.Errorf("%s: %v", p.name, err)
		return
	}
	p.runs++
	p.pids = append(p.pids, cmd.Process.Pid)
	p.cmd, p.frozen = cmd, false
	run, began := p.runs, time.Now()
	p.over.Go(func() {
		p.read(run, out)
		p.ended(run, cmd, keep, began, backoff)
	})
}

// read takes the log of a run to its end.
func (p *process) read(run int, from io.Reader) {
	reader := bufio.NewReader(from)
	for {
		text, err := reader.ReadString('\n')
		if text != "" {
			_, _ = io.WriteString(p.log, text)
			l := line{Run: run, raw: strings.TrimSpace(text)}
			_ = json.Unmarshal([]byte(text), &l) // other lines are those of the runtime
			p.mu.Lock()
			p.lines = append(p.lines, l)
			p.changed.Broadcast()
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// ended notes the end of a run, and starts the next.
func (p *process) ended(run int, cmd *exec.Cmd, keep io.Closer, began time.Time, backoff time.Duration) {
	_ = cmd.Wait()
	_ = keep.Close()
	e := exit{run: run, at: time.Now(), code: cmd.ProcessState.ExitCode()}
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		e.signal = s.Signal()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exits = append(p.exits, e)
	p.cmd = nil
	p.changed.Broadcast()
	if !p.up {
		return
	}
	if time.Since(began) > settledAfter {
		backoff = firstBackoff
	}
	p.over.Go(func() {
		time.Sleep(backoff)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.up && p.cmd == nil && p.runs == run {
			p.launch(min(2*backoff, longestBackoff))
		}
	})
}

// signal sends one to the run under way, if there is one.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(s) // it may have ended this moment
	p.frozen = s == syscall.SIGSTOP || p.frozen && s != syscall.SIGCONT
}

// crash kills the run; the supervisor starts the next.
func (p *process) crash() { p.signal(syscall.SIGKILL) }

// kill ends the process for good, until start.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// end keeps the process down from now on, and sends a signal.
func (p *process) end(s syscall.Signal) {
	p.mu.Lock()
	p.up = false
	p.mu.Unlock()
	p.signal(s)
}

// gone waits until no run is under way, and says how the last one ended.
func (p *process) gone(within time.Duration) exit {
	p.t.Helper()
	p.await(within, "it is gone", func() bool { return p.cmd == nil && len(p.exits) == p.runs })
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.exits) == 0 {
		return exit{}
	}
	return p.exits[len(p.exits)-1]
}

// await waits for a condition, which is tried after each line and each exit, with the lock held.
func (p *process) await(within time.Duration, what string, ok func() bool) {
	p.t.Helper()
	if !p.awaits(within, ok) {
		p.t.Fatalf("%s: gave up after %v waiting until %s", p.name, within, what)
	}
}

func (p *process) awaits(within time.Duration, ok func() bool) bool {
	deadline := time.Now().Add(within)
	timer := time.AfterFunc(within, func() {
		p.mu.Lock() // so that the waiter either has not looked yet or waits
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !ok() {
		if !time.Now().Before(deadline) {
			return false
		}
		p.changed.Wait()
	}
	return true
}

// said waits for a line of the run under way, or of a later one.
func (p *process) said(within time.Duration, msg string) line {
	p.t.Helper()
	var found line
	p.await(within, "it says "+msg, func() bool {
		for _, l := range slices.Backward(p.lines) {
			if l.Run == p.runs && p.cmd != nil && l.Msg == msg {
				found = l
				return true
			}
		}
		return false
	})
	return found
}

// count is how many lines of all runs have a message.
func (p *process) count(ok func(line) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if ok(l) {
			n++
		}
	}
	return n
}

func (p *process) ends() []exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.exits)
}

// had says whether one of the process's runs had a process id.
func (p *process) had(pid int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.pids, pid)
}

// attach shows the end of the log when the test has failed, and leaves the whole where -artifacts asks for it.
func (p *process) attach() {
	if !p.t.Failed() {
		return
	}
	const last = 40
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	telling := slices.DeleteFunc(slices.Clone(p.lines), func(l line) bool { return l.Level == "DEBUG" })
	for _, l := range telling[max(0, len(telling)-last):] {
		b.WriteString("\n    " + l.raw)
	}
	for _, e := range p.exits {
		b.WriteString("\n    " + e.String())
	}
	p.t.Logf("%s, the last of %d lines:%s", p.name, len(p.lines), b.String())
	if whole, err := os.ReadFile(p.log.Name()); err == nil {
		err = os.WriteFile(filepath.Join(p.t.ArtifactDir(), filepath.Base(p.log.Name())), whole, 0o600)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			p.t.Log(err)
		}
	}
}

func (e exit) String() string {
	b, _ := json.Marshal(map[string]any{"run": e.run, "at": e.at, "code": e.code, "signal": e.signal.String()})
	return "ended: " + string(b)
}
