package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// lane feeds one device: an asynq server with one slot, and a lock of our own around the device. The slot alone is not enough: when Redis is
// away for longer than a task's lease, when a task is canceled through asynq or reaches its timeout, asynq frees the slot and takes the
// next task while the handler still runs.
type lane struct {
	device aviary.Device
	runner Runner
	waker  aviary.Waker
	conn   *Conn
	log    *slog.Logger

	server   *asynq.Server
	lock     chan struct{} // holds one value while the device is in use, and for good once the lane is stopped
	draining chan struct{} // closed when the worker takes no more; shared by its lanes
	lost     chan struct{} // closed when the device is no longer good, by whoever holds the lock
	onLost   func(error)   // is told so, once

	storeAway condition
}

// errDraining sends a ticket back that came too late. errLost does the same when it is the device that has ended.
var (
	errDraining = errors.New("the worker is draining")
	errLost     = errors.New("the device is lost")
)

// errNotClaimed sends a ticket back because the store did not answer before the claim, or the ticket's recording could not be had here.
var errNotClaimed = errors.New("the job was not claimed")

// newLane makes a lane of w whose asynq server talks to Redis through client.
func newLane(w *Worker, conn *Conn, device aviary.Device, runner Runner, client redis.UniversalClient, asynqLog asynq.Logger) *lane {
	log := w.log.With("device", device.Name())
	l := &lane{
		device: device, runner: runner, waker: w.waker, conn: conn, log: log,
		lock: make(chan struct{}, 1), draining: w.draining, lost: make(chan struct{}),
		onLost:    func(err error) { w.deviceLost(device.Name(), err) },
		storeAway: condition{log: log, begins: "jobs cannot be claimed; tickets go back to the queue", over: "jobs can be claimed again"},
	}
	l.server = asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency:       1,
		Queues:            queues(),
		StrictPriority:    true,
		TaskCheckInterval: w.cfg.Poll,
		// Tickets are rarely retried (they were taken by a worker that drained, or could not reach the store), but then they have waited
		// once already.
		DelayedTaskCheckInterval: time.Second,
		RetryDelayFunc:           l.retryDelay,
		IsFailure:                l.isFailure,
		// Shutdown comes after the running job has been released, so that all that asynq waits for is its own bookkeeping. A handler that
		// is still not back then never comes back.
		ShutdownTimeout: time.Second,
		Logger:          asynqLog,
		LogLevel:        asynq.DebugLevel, // slog decides
	})
	return l
}

// start lets the lane take tickets. runs is the context of the jobs. It is never asynq's context, which ends with asynq's troubles and knows
// nothing of a drain.
func (l *lane) start(runs context.Context) error {
	return l.server.Start(asynq.HandlerFunc(func(taskCtx context.Context, task *asynq.Task) error {
		return l.handle(runs, taskCtx, task)
	}))
}

// handle is asynq's handler. Whatever it returns is about the ticket: nil when it is spent, an error when it was not claimed and shall come
// again.
func (l *lane) handle(runs, taskCtx context.Context, task *asynq.Task) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// If the job was claimed, its lease runs out; if not, the ticket comes again. Either way the next ticket runs.
			l.log.Error("recovered a panic outside of the attempt", "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	t, err := parseTask(task.Payload())
	if err != nil {
		l.log.Warn("dropped a task that is no ticket of ours", "type", task.Type(), "err", err)
		return nil
	}
	// The device comes before the claim: a job that waited for the device behind another one would look as if it ran.
	if err := l.seize(taskCtx); err != nil {
		return err
	}
	defer func() { <-l.lock }()
	if err = l.conn.claim(taskCtx); !errors.Is(err, ErrForeign) { // without an answer the ticket, which we have, is good
		err = l.runner.Run(runs, t, l.device)
	}
	if errors.Is(err, aviary.ErrDeviceLost) {
		l.lose(err)
		err = nil // the attempt's end is recorded, so that the ticket is spent
	}
	if err != nil && runs.Err() != nil {
		return errDraining // in the middle of the claim
	}
	l.storeAway.observe(err)
	if errors.Is(err, ErrForeign) || errors.Is(err, aviary.ErrStorageAway) {
		l.pause(taskCtx)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotClaimed, err)
	}
	l.waker.Wake() // there is room in the window
	l.tidy(taskCtx, t)
	return nil
}

// uselessFor is how long a lane takes no further ticket after one that none of its kind could run: it would take them from lanes that can.
const uselessFor = 5 * time.Second

// pause keeps the device, and with it the lane, while it is of no use.
func (l *lane) pause(taskCtx context.Context) {
	timer := time.NewTimer(uselessFor)
	defer timer.Stop()
	select {
	case <-l.draining:
	case <-taskCtx.Done():
	case <-timer.C:
	}
}

// lose ends the lane: its device takes no more jobs, and what asynq still hands to it goes back. The caller holds the lock.
func (l *lane) lose(err error) {
	select {
	case <-l.lost:
		return
	default:
	}
	close(l.lost)
	l.log.Error("the device takes no more jobs", "err", err)
	go l.server.Stop() // waits for asynq's processor, which may wait for Redis; a second Stop waits for the first
	go l.onLost(err)   // may want to stop the worker, which waits for the lock
}

// seize takes the lane's lock. It gives up, with nothing claimed, when asynq has given up on the task meanwhile, so that at most one handler
// waits beside the one that runs.
func (l *lane) seize(taskCtx context.Context) error {
	select {
	case <-l.draining:
		return errDraining
	case <-l.lost:
		return errLost
	case <-taskCtx.Done():
		return context.Cause(taskCtx)
	case l.lock <- struct{}{}:
	}
	// Of several that are ready, select takes any.
	select {
	case <-l.draining:
		<-l.lock
		return errDraining
	case <-l.lost:
		<-l.lock
		return errLost
	case <-taskCtx.Done():
		<-l.lock
		return context.Cause(taskCtx)
	default:
		return nil
	}
}

const tidyFor = 2 * time.Second

// tidy removes the task of a spent ticket when asynq does not: it had given up on the handler before it returned, so that the task lies in
// retry, pending (after a shutdown that did not wait) or active without a lease, until some recoverer finds it a minute later. If this
// fails, that is what happens, and the claim drops it.
func (l *lane) tidy(taskCtx context.Context, t aviary.Ticket) {
	if taskCtx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(taskCtx), tidyFor)
	defer cancel()
	if err := l.conn.forget(ctx, t); err != nil {
		l.log.Debug("a spent ticket stays in Redis until asynq finds it", "job", t.JobID, "generation", t.Generation, "err", err)
	}
}

// retryDelay says when an unclaimed ticket is tried again: soon when its worker died or drained, later while the store is away. The sweeper
// hands the job over with a new ticket if that takes too long.
func (l *lane) retryDelay(n int, err error, _ *asynq.Task) (delay time.Duration) {
	defer guard(l.log, "retry delay")
	delay = 2 * time.Second
	switch {
	case errors.Is(err, errDraining), errors.Is(err, errLost):
		return 0
	case errors.Is(err, asynq.ErrLeaseExpired):
		return rand.N(2 * time.Second)
	}
	delay = min(delay<<min(n, 10), 30*time.Second)
	return delay/2 + rand.N(delay/2)
}

// isFailure says whether an end counts towards maxRetry. A drain, a lost device and a store that is away do not: they say nothing about the task, and an
// archived task is one more thing to clear away.
func (l *lane) isFailure(err error) (failed bool) {
	defer guard(l.log, "is failure")
	failed = true
	return !errors.Is(err, errDraining) && !errors.Is(err, errLost) && !errors.Is(err, errNotClaimed)
}
