//go:build unix

package chaos

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
	"github.com/aviary-asr/aviary/cmd/internal/cli"
	"github.com/aviary-asr/aviary/gpu"
	"github.com/aviary-asr/aviary/queue"
)

// childVariable makes the test binary behave as aviary, as its value, a child in JSON, says.
const childVariable = "AVIARY_TEST_CHAOS_CHILD"

// child is how a process differs from one in production.
type child struct {
	Timing timing
	Folder string // of the fake engines
	Node   string // names the process's devices there
	Real   bool   // the engine of cmd/aviary in place of the fake one
	// DieAccepting makes the process kill itself when it has accepted so many jobs: after the commit, before anybody is told.
	DieAccepting int
	// PanicOn makes the process's first run panic when its n-th attempt starts: in the handler, and outside of what guards an attempt.
	PanicOn int
}

// timing is cli.Timing with the parts that tests shorten. Zero is as in production.
type timing struct {
	Lease, Heartbeat, Stall, Grace, RunFloor, Term time.Duration
	SweepEvery, StrandedAfter, Debris              time.Duration
}

// short is the timing of most tests: production's, scaled down to about a tenth.
func short() timing {
	return timing{
		Lease: 3 * time.Second, Heartbeat: 500 * time.Millisecond, Stall: 3 * time.Second, Grace: time.Second, RunFloor: 6 * time.Second,
		Term: 3 * time.Second, SweepEvery: time.Second, StrandedAfter: 3 * time.Second, Debris: time.Second,
	}
}

func (c timing) cli() cli.Timing {
	q := queue.DefaultConfig()
	if c.SweepEvery > 0 {
		q.SweepEvery = c.SweepEvery
	}
	if c.StrandedAfter > 0 {
		q.StrandedAfter = c.StrandedAfter
	}
	if c.Debris > 0 {
		q.DebrisEvery, q.DebrisAge = c.Debris, c.Debris
	}
	return cli.Timing{Lease: c.Lease, Heartbeat: c.Heartbeat, Stall: c.Stall, Grace: c.Grace, RunFloor: c.RunFloor, Term: c.Term, Queue: q}
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVariable); text != "" {
		os.Exit(runChild(text))
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen { // these tests wait for processes more than they compute
		if err := flag.Set("test.parallel", "6"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// runChild is main of a process under test.
func runChild(text string) int {
	var c child
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	go func() { // the test holds the other end: no process outlives it
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}()
	p := cli.Program{Backends: c.backends(), Timing: c.Timing.cli(), Observe: func(o aviary.Observer) aviary.Observer {
		return &failpoints{Observer: o, dieAccepting: c.DieAccepting, panicOn: c.PanicOn, once: filepath.Join(c.Folder, "panicked")}
	}}
	return p.Main(os.Args[1:], cli.Standard())
}

// backends is a machine with one device.
func (c child) backends() []cli.Backend {
	b := cli.Backend{
		Name:        "cpu",
		Devices:     func() ([]string, error) { return []string{"cpu"}, nil },
		Open:        func(string) (ml.Backend, error) { return cpu.New(cpu.Options{}), nil },
		BFloat16:    func(string) bool { return false },
		MemoryBytes: func(string) (int64, error) { return 0, nil },
		HostMemory:  true,
	}
	if !c.Real {
		b.Engine = func(_ context.Context, device string) (gpu.Engine, error) {
			return &fakeEngine{folder: c.Folder, device: c.Node + "-" + device}, nil
		}
	}
	return []cli.Backend{b}
}

// failpoints is a process's observer, which dies at a given moment.
type failpoints struct {
	aviary.Observer
	dieAccepting int
	panicOn      int
	once         string // a folder that is made when it is done
}

// AttemptStarted is called after the claim, outside of what guards an attempt.
func (f *failpoints) AttemptStarted(device string, queued time.Duration) {
	f.Observer.AttemptStarted(device, queued)
	if f.panicOn--; f.panicOn == 0 && os.Mkdir(f.once, 0o700) == nil {
		panic("the failpoint")
	}
}

// JobAccepted is called after the commit, and before the dispatcher is woken and the client answered.
func (f *failpoints) JobAccepted(a aviary.Audio, p aviary.Priority) {
	f.Observer.JobAccepted(a, p)
	if f.dieAccepting--; f.dieAccepting == 0 {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}
