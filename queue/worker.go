package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// Runner runs one attempt: it claims the ticket's job and sees it to an end. An error means that nothing was claimed, but for aviary.ErrDeviceLost: then
// the attempt's end is recorded, and the device is not to be used again. *aviary.Runner is one.
type Runner interface {
	Run(ctx context.Context, t aviary.Ticket, d aviary.Device) error
}

// Worker takes tickets from Redis and runs them, one at a time on each of its devices.
type Worker struct {
	lanes    []*lane
	client   *redis.Client // asynq's, for all lanes
	off      *offSwitch    // of client
	waker    aviary.Waker
	cfg      Config
	log      *slog.Logger
	draining chan struct{}
	refuse   func() // closes draining

	// DeviceLost, if set before Start, hears once of each device that is no longer good, on a goroutine of its own. Its lane takes no more tickets; the
	// others go on. Only a new process can try the device again.
	DeviceLost func(device string, err error)

	mu     sync.Mutex
	state  workerState
	cancel context.CancelCauseFunc // ends the running jobs
	ended  chan struct{}           // closed when Stop is done
	err    error                   // of Stop; read after ended
}

type workerState int

const (
	workerNew workerState = iota
	workerRunning
	workerStopped
)

// NewWorker makes a worker with a lane for each device; Start starts it. waker is told when a ticket was spent.
func NewWorker(conn *Conn, runner Runner, devices []aviary.Device, waker aviary.Waker, cfg Config, log *slog.Logger) (*Worker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if len(devices) == 0 {
		return nil, errors.New("queue: a worker needs a device")
	}
	w := &Worker{waker: waker, cfg: cfg, log: log, draining: make(chan struct{}), ended: make(chan struct{})}
	w.refuse = sync.OnceFunc(func() { close(w.draining) })
	names := map[string]bool{}
	for _, d := range devices {
		if names[d.Name()] {
			return nil, fmt.Errorf("queue: the device %s is given twice", d.Name())
		}
		names[d.Name()] = true
	}
	w.client, w.off = conn.switched()
	asynqLog := newAsynqLogger(log)
	for _, d := range devices {
		w.lanes = append(w.lanes, newLane(w, conn, d, runner, w.client, asynqLog))
	}
	return w, nil
}

// Start begins to take tickets, and returns at once. It does not need Redis to be there. A worker starts once.
func (w *Worker) Start() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != workerNew {
		return errors.New("queue: the worker was started or stopped before")
	}
	runs, cancel := context.WithCancelCause(context.Background())
	for i, l := range w.lanes {
		if err := l.start(runs); err != nil {
			cancel(nil)
			for _, started := range w.lanes[:i] {
				started.server.Shutdown()
			}
			return fmt.Errorf("queue: start the lane of %s: %w", l.device.Name(), err)
		}
	}
	w.state, w.cancel = workerRunning, cancel
	w.log.Info("the worker takes jobs", "devices", len(w.lanes))
	return nil
}

func (w *Worker) deviceLost(device string, err error) {
	if w.DeviceLost != nil {
		w.DeviceLost(device, err)
	}
}

// Stop drains the worker, in this order:
//
//  1. No lane takes another ticket. One that asynq has already taken goes back.
//  2. Running jobs go on until they end, Config.Drain is over, or ctx ends.
//  3. What still runs is canceled with the cause aviary.ErrDrain; the runner gives the job back to the store, uncharged. Stop waits for
//     that, at most Config.Release, whatever ctx says: a released job starts elsewhere at once, an abandoned one when its lease is over.
//  4. asynq's servers shut down, and their connections are closed. Nothing runs any more, so they requeue nothing.
//
// It returns an error when a device did not come back from a canceled job. The process should then end: only that frees the device. Calling
// Stop again waits for the first call and returns what that one did.
func (w *Worker) Stop(ctx context.Context) error {
	w.mu.Lock()
	state := w.state
	w.state = workerStopped
	w.mu.Unlock()
	switch state {
	case workerNew:
		w.err = w.client.Close()
		close(w.ended)
	case workerRunning:
		w.err = w.drain(ctx)
		close(w.ended)
	case workerStopped:
		select {
		case <-w.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return w.err
}

// GiveBack is for a process that is about to end because one of its devices hangs, and that cannot drain: it cancels what runs on the others, with the cause
// aviary.ErrDrain, and waits until their runners have given it back, at most until ctx ends. Without it these jobs would be lost with the process, and
// be charged for what another did. The worker takes no more jobs. Beside a Stop, which keeps the lanes, it may wait for all of ctx.
func (w *Worker) GiveBack(ctx context.Context, hangs string) {
	w.mu.Lock()
	cancel := w.cancel
	w.mu.Unlock()
	if cancel == nil {
		return // not started
	}
	w.refuse()
	cancel(aviary.ErrDrain)
	var others []*lane
	for _, l := range w.lanes {
		if l.device.Name() != hangs {
			others = append(others, l)
		}
	}
	busy := seizeAll(ctx, others)
	w.log.Info("the other devices' jobs are given back", "devices", len(others), "stuck", len(busy))
}

func (w *Worker) drain(ctx context.Context) error {
	w.log.Info("the worker drains", "at_most_s", w.cfg.Drain.Seconds())
	w.refuse()
	var stopping sync.WaitGroup
	for _, l := range w.lanes {
		stopping.Go(l.server.Stop) // may wait for Redis; the jobs' time runs meanwhile
	}
	soft, cancel := context.WithTimeout(ctx, w.cfg.Drain)
	busy := seizeAll(soft, w.lanes)
	cancel()
	if len(busy) > 0 {
		w.log.Info("the drain time is over; running jobs are given back", "devices", len(busy))
	}
	w.cancel(aviary.ErrDrain)
	hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), w.cfg.Release)
	defer cancel()
	busy = seizeAll(hard, busy)

	var errs []error
	for _, l := range busy {
		errs = append(errs, fmt.Errorf("queue: the device %s does not come back from a canceled job", l.device.Name()))
	}
	errs = append(errs, w.shutdown(&stopping))
	w.waker.Wake() // for the jobs that were given back
	w.log.Info("the worker has stopped", "stuck", len(busy))
	return errors.Join(errs...)
}

// seizeAll takes the locks of lanes, for good, and returns those lanes that were still busy when ctx ended.
func seizeAll(ctx context.Context, lanes []*lane) (busy []*lane) {
	for _, l := range lanes {
		select {
		case l.lock <- struct{}{}:
			continue
		default:
		}
		select {
		case l.lock <- struct{}{}:
		case <-ctx.Done():
			busy = append(busy, l)
		}
	}
	return busy
}

// The times of asynq's shutdown. It takes about a second as a rule. While Redis hangs, each of asynq's goroutines waits for a command, and then is
// cut off from Redis: that is when the command and its second try are given up.
const (
	shutdownFor = 5 * time.Second
	cutOffFor   = 2*ioTimeout + 4*time.Second
)

// shutdown ends asynq's servers, whatever state Redis is in. Tasks that they could not account for are dropped by the claim.
func (w *Worker) shutdown(stopping *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		stopping.Wait()
		var all sync.WaitGroup
		for _, l := range w.lanes {
			all.Go(l.server.Shutdown)
		}
		all.Wait()
	}()
	if waitFor(done, shutdownFor) {
		return w.client.Close()
	}
	w.log.Warn("Redis hangs; leaving without telling it")
	w.off.off.Store(true)
	if waitFor(done, cutOffFor) {
		return w.client.Close()
	}
	return errors.New("queue: asynq does not end") // its client stays open, see offSwitch
}

// waitFor says whether done was closed in time.
func waitFor(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
