package queue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// patience is how long a test waits for what must happen. It is spent only where it does not.
const patience = 2 * time.Minute

// testConfig has the times of a quick test.
func testConfig() Config {
	return Config{
		PerDevice: 2, MaxPerDevice: 16,
		FastTick: 20 * time.Millisecond, BusyTick: 30 * time.Millisecond, IdleTick: 50 * time.Millisecond, LongestPause: 200 * time.Millisecond,
		Poll: 20 * time.Millisecond, Drain: 10 * time.Second, Release: 10 * time.Second,
		SweepEvery: 50 * time.Millisecond, StrandedAfter: 2 * time.Second, Page: 10,
		DebrisEvery: time.Hour, DebrisAge: time.Hour,
	}
}

// system is one store and one Redis, with a dispatcher and a sweeper at work. Everything ends with the test, in the order of the package's
// description.
type system struct {
	t     *testing.T
	conn  *Conn
	store *memStore
	rec   *recorder
	cfg   Config

	dispatcher *Dispatcher
	sweeper    *Sweeper
}

func newSystem(t *testing.T, conn *Conn, rec *recorder, change ...func(*Config)) *system {
	t.Helper()
	s := &system{t: t, conn: conn, store: newMemStore(), rec: rec, cfg: testConfig()}
	for _, f := range change {
		f(&s.cfg)
	}
	var err error
	if s.dispatcher, err = NewDispatcher(conn, s.store, s.cfg, rec.logger()); err != nil {
		t.Fatal(err)
	}
	if s.sweeper, err = NewSweeper(conn, s.store, s.dispatcher, s.cfg, rec.logger()); err != nil {
		t.Fatal(err)
	}
	return s
}

// start plants the sentinel, then runs dispatcher and sweeper until the test ends.
func (s *system) start() *system {
	s.t.Helper()
	if _, err := s.sweeper.Sweep(context.Background()); err != nil {
		s.t.Fatal(err)
	}
	s.run()
	return s
}

// run is start where there is no Redis yet.
func (s *system) run() {
	s.background(s.sweeper.Run)
	s.runDispatcher()
}

// runDispatcher runs it without a sweeper behind it.
func (s *system) runDispatcher() { s.background(s.dispatcher.Run) }

// background runs a part until the test ends.
func (s *system) background(part func(context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { part(ctx) })
	s.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// submit queues n jobs of a class and wakes the dispatcher, as the intake does.
func (s *system) submit(class aviary.Priority, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("job_%s_%04d", class, i)
	}
	s.store.add(class, ids...)
	s.dispatcher.Wake()
	return ids
}

// runner is the real one, over fakes.
func (s *system) runner(worker string) *aviary.Runner {
	return &aviary.Runner{
		Store: s.store, Blobs: fakeBlobs{}, Prober: fakeProber{}, Observer: fakeObserver{}, Log: s.rec.logger(),
		Worker: worker, Lease: 5 * time.Second, Beat: 20 * time.Millisecond,
	}
}

// worker starts a worker, which is stopped with the test unless the test does.
func (s *system) worker(runner Runner, devices ...*fakeDevice) *Worker {
	s.t.Helper()
	var list []aviary.Device
	for _, d := range devices {
		list = append(list, d)
	}
	w, err := NewWorker(s.conn, runner, list, s.dispatcher, s.cfg, s.rec.logger())
	if err != nil {
		s.t.Fatal(err)
	}
	if err := w.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = w.Stop(context.Background()) })
	return w
}

// wantOnce checks that each job succeeded in one attempt, and that no device ran two at once.
func (s *system) wantOnce(ids []string, devices ...*fakeDevice) {
	s.t.Helper()
	runs := map[string]int{}
	for _, d := range devices {
		if d.overlapped() {
			s.t.Errorf("two jobs ran at once on %s", d.name)
		}
		for _, id := range d.ran() {
			runs[id]++
		}
	}
	for _, id := range ids {
		r := s.store.row(id)
		if r.State != aviary.StateSucceeded || r.Attempt != 1 || r.results != 1 || runs[id] != 1 {
			s.t.Errorf("%s: %s after %d attempts, with %d results and %d runs", id, r.State, r.Attempt, r.results, runs[id])
		}
	}
}

// gate is a device's work that reports its start and waits until it is opened.
type gate struct {
	started chan string
	open    chan struct{}
}

func newGate() *gate { return &gate{started: make(chan string, 100), open: make(chan struct{})} }

// pass waits for the gate or the end of ctx.
func (g *gate) pass(ctx context.Context, job string) error {
	g.started <- job
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// passDeaf waits for the gate only, as a call into a driver does.
func (g *gate) passDeaf(_ context.Context, job string) error {
	g.started <- job
	<-g.open
	return nil
}

// next is the job that started next.
func (g *gate) next(t *testing.T) string {
	t.Helper()
	select {
	case job := <-g.started:
		return job
	case <-time.After(patience):
		t.Fatal("no job started")
		return ""
	}
}
