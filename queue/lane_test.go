package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aviary-asr/aviary"
)

// broken is a runner whose device is lost in the first attempt on it, once that is recorded.
type broken struct {
	Runner
	device string
	runs   atomic.Int32
}

func (b *broken) Run(ctx context.Context, t aviary.Ticket, d aviary.Device) error {
	err := b.Runner.Run(ctx, t, d)
	if d.Name() == b.device {
		b.runs.Add(1)
		return fmt.Errorf("%w: it fell off the bus", aviary.ErrDeviceLost)
	}
	return err
}

// TestDeviceLost: the lane of a device that is lost takes no more tickets, and says so once; the others go on; the worker can be stopped as ever.
func TestDeviceLost(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec).start()
		good := newGate()
		devices := []*fakeDevice{{name: "a"}, {name: "b", work: good.pass}}
		runner := &broken{Runner: s.runner("w"), device: "a"}
		w, err := NewWorker(conn, runner, []aviary.Device{devices[0], devices[1]}, s.dispatcher, s.cfg, rec.logger())
		if err != nil {
			t.Fatal(err)
		}
		heard := make(chan string, 10)
		w.DeviceLost = func(device string, err error) {
			if !errors.Is(err, aviary.ErrDeviceLost) {
				t.Errorf("the error is %v", err)
			}
			heard <- device
		}
		if err := w.Start(); err != nil {
			t.Fatal(err)
		}
		ids := s.submit(aviary.PriorityBulk, 30)
		await(t, heard, "a")
		// asynq may have taken another ticket already.
		if err := w.lanes[0].seize(context.Background()); !errors.Is(err, errLost) {
			t.Errorf("the lost device was given out: %v", err)
		}
		close(good.open)
		s.store.awaitDone(t, len(ids))
		s.wantOnce(ids, devices...)
		if n := runner.runs.Load(); n != 1 {
			t.Errorf("%d jobs ran on the lost device", n)
		}
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if len(heard) > 0 {
			t.Error("it was told more than once")
		}
		if n := rec.count("the device takes no more jobs"); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		eventually(t, "all tasks to be gone from Redis", func() bool { return len(keys(t, conn, "asynq:{*}:t:*")) == 0 })
	})
}

// TestDeviceLostStopsTheWorker: the callback may stop the worker, and what else runs is given back.
func TestDeviceLostStopsTheWorker(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec, func(c *Config) { c.Drain = time.Millisecond }).start()
	long := newGate()
	runner := &broken{Runner: s.runner("w"), device: "a"}
	first := newGate()
	w, err := NewWorker(s.conn, runner, []aviary.Device{&fakeDevice{name: "a", work: first.pass}, &fakeDevice{name: "b", work: long.pass}},
		s.dispatcher, s.cfg, rec.logger())
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	w.DeviceLost = func(string, error) { stopped <- w.Stop(context.Background()) }
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	s.submit(aviary.PriorityBulk, 2)
	held := long.next(t)
	first.next(t)
	close(first.open)
	select {
	case err := <-stopped:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("it does not stop")
	}
	if got := s.store.outcomes(held); !slices.Equal(got, []aviary.Outcome{aviary.OutcomeReleased}) {
		t.Errorf("outcomes: %v", got)
	}
}

// TestSeize: a lock that is free does not count when there is a reason not to start. The reasons and the lock are ready at the same time, so
// that a fault shows in some of many tries.
func TestSeize(t *testing.T) {
	t.Parallel()
	given, cancel := context.WithCancel(context.Background())
	cancel()
	over := make(chan struct{})
	close(over)
	for range 100 {
		l := &lane{lock: make(chan struct{}, 1), draining: over}
		if err := l.seize(context.Background()); !errors.Is(err, errDraining) || len(l.lock) > 0 {
			t.Fatalf("while draining: %v, lock %d", err, len(l.lock))
		}
		l.draining, l.lost = make(chan struct{}), over
		if err := l.seize(context.Background()); !errors.Is(err, errLost) || len(l.lock) > 0 {
			t.Fatalf("with a lost device: %v, lock %d", err, len(l.lock))
		}
		l.lost = make(chan struct{})
		if err := l.seize(given); !errors.Is(err, context.Canceled) || len(l.lock) > 0 {
			t.Fatalf("after asynq gave up: %v, lock %d", err, len(l.lock))
		}
		if err := l.seize(context.Background()); err != nil || len(l.lock) != 1 {
			t.Fatalf("without a reason: %v, lock %d", err, len(l.lock))
		}
	}
}

func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	l := &lane{log: newRecorder(t).logger()}
	notClaimed := errors.Join(errNotClaimed, errAway)
	for name, c := range map[string]struct {
		err     error
		n       int
		atLeast time.Duration
		atMost  time.Duration
		failure bool
	}{
		"drain":                       {errDraining, 3, 0, 0, false},
		"device lost":                 {errLost, 3, 0, 0, false},
		"lease lost":                  {asynq.ErrLeaseExpired, 3, 0, 2 * time.Second, true},
		"store away":                  {notClaimed, 0, time.Second, 2 * time.Second, false},
		"store away for long":         {notClaimed, 9, 15 * time.Second, 30 * time.Second, false},
		"store away for a long while": {notClaimed, 1 << 30, 15 * time.Second, 30 * time.Second, false},
		"panic":                       {errors.New("panic: x"), 0, time.Second, 2 * time.Second, true},
	} {
		if got := l.retryDelay(c.n, c.err, nil); got < c.atLeast || got > c.atMost {
			t.Errorf("%s: the delay is %v, want %v to %v", name, got, c.atLeast, c.atMost)
		}
		if got := l.isFailure(c.err); got != c.failure {
			t.Errorf("%s: failure is %v", name, got)
		}
	}
}
