package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aviary-asr/aviary"
)

// Dispatcher hands waiting jobs over to Redis, a window at a time, so that Redis is shallow: what comes next is decided as late as possible, a
// canceled job costs nothing, a wiped Redis loses next to nothing, and a job that is tried again does not queue behind a hundred
// thousand others. Interactive jobs have their own queue, which workers empty first; inside a class tenants share by audio. It runs in the process that
// leads. Several of them on one store only make the window deeper, and each is fair by itself.
//
// The Dispatcher of a process that does not lead passes on wake-ups to the one that does.
type Dispatcher struct {
	conn  *Conn
	tasks *asynq.Client
	store aviary.Dispatching
	cfg   Config

	wake    chan struct{}
	running atomic.Bool // Run is at work: wake-ups are for us
	held    atomic.Bool // bulk is: see HoldBulk

	classes map[aviary.Priority]*lineup
	tick    time.Duration // the pause while there is more to hand over

	redisAway condition
	storeAway condition
}

// lineup is what the dispatcher remembers of one class.
type lineup struct {
	fair   *fair
	window *window
}

// NewDispatcher makes a dispatcher; Run starts it.
func NewDispatcher(conn *Conn, store aviary.Dispatching, cfg Config, log *slog.Logger) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Dispatcher{
		conn: conn, tasks: asynq.NewClientFromRedisClient(conn.client), store: store, cfg: cfg,
		wake:      make(chan struct{}, 1),
		redisAway: condition{log: log, begins: "Redis takes no tickets; jobs wait in the store", over: "Redis takes tickets again"},
		storeAway: condition{log: log, begins: "the store does not answer the dispatcher", over: "the store answers the dispatcher again"},
	}
	d.begin()
	return d, nil
}

// begin forgets what was learned: another process may have led meanwhile.
func (d *Dispatcher) begin() {
	d.tick, d.classes = d.cfg.BusyTick, map[aviary.Priority]*lineup{}
	for _, class := range aviary.Priorities() {
		d.classes[class] = &lineup{fair: newFair(), window: newWindow(d.cfg.PerDevice, d.cfg.MaxPerDevice)}
	}
}

// Wake implements aviary.Waker: look for waiting jobs now, here or in the process that leads. It never blocks, and what it says may be lost.
func (d *Dispatcher) Wake() {
	d.wakeHere()
	if !d.running.Load() && d.conn.memory == nil {
		d.conn.nudges.nudge()
	}
}

func (d *Dispatcher) wakeHere() {
	select {
	case d.wake <- struct{}{}:
	default: // one is waiting already
	}
}

// HoldBulk stops, or lets go on, the handing over of bulk jobs. Interactive ones go on.
func (d *Dispatcher) HoldBulk(hold bool) { d.held.Store(hold) }

const (
	// assumedDevices is the fleet's size while nothing is registered: its first lanes shall find work.
	assumedDevices = 4
	// passGap keeps thousands of submits a second from becoming thousands of passes.
	passGap = 20 * time.Millisecond
	// firstPause is the pause after the first failure; it doubles.
	firstPause = 100 * time.Millisecond
	// enqueueFor bounds one enqueueing, with the client's own retry; takeBackFor bounds returning what was not handed over.
	enqueueFor  = 2 * ioTimeout
	takeBackFor = 5 * time.Second
)

// Run works until ctx ends. It may run again after that, but not twice at once.
func (d *Dispatcher) Run(ctx context.Context) {
	d.running.Store(true)
	defer d.running.Store(false)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { d.conn.listen(ctx, d.wakeHere) })
	d.begin()
	pause := firstPause
	for ctx.Err() == nil {
		more, err := d.pass(ctx)
		switch {
		case err != nil:
			// A wake-up does not shorten this: with Redis away, each submit would cost a dispatch and its undoing.
			sleep(ctx, pause+rand.N(pause/2), nil)
			pause = min(2*pause, d.cfg.LongestPause)
		case more:
			d.rest(ctx, d.tick)
			pause = firstPause
		default:
			d.rest(ctx, d.cfg.IdleTick)
			pause = firstPause
		}
	}
}

func (d *Dispatcher) rest(ctx context.Context, tick time.Duration) {
	sleep(ctx, passGap, nil)
	sleep(ctx, max(tick-passGap, 0), d.wake)
}

// sleep waits until d has passed, wake has a value, or ctx ends.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-timer.C:
	}
}

// pass fills the window of each class once. more says that a window was filled to the brim, so that more may wait.
func (d *Dispatcher) pass(ctx context.Context) (more bool, err error) {
	// Redis is asked first: while it is away, or another system's, the store is left alone.
	if err := d.conn.claim(ctx); err != nil {
		return false, d.observe(ctx, &d.redisAway, err)
	}
	devices, err := d.devices(ctx)
	if err != nil {
		return false, d.observe(ctx, &d.redisAway, err)
	}
	dry := false
	for _, class := range aviary.Priorities() {
		if class == aviary.PriorityBulk && d.held.Load() {
			continue
		}
		ranDry, full, err := d.fill(ctx, class, devices)
		if err != nil {
			return false, err
		}
		dry, more = dry || ranDry, more || full
	}
	if !more {
		d.redisAway.observe(nil) // it answers, and there is nothing that it could refuse
	}
	d.storeAway.observe(nil)
	if dry {
		d.tick = max(d.tick/2, d.cfg.FastTick)
	} else {
		d.tick = min(2*d.tick, d.cfg.BusyTick)
	}
	return more, nil
}

// observe notes a failure, unless it is our own end.
func (d *Dispatcher) observe(ctx context.Context, c *condition, err error) error {
	if ctx.Err() == nil {
		c.observe(err)
	}
	return err
}

// devices is the size of the fleet.
func (d *Dispatcher) devices(ctx context.Context) (int, error) {
	lanes, err := d.conn.lanes(ctx) // also where the number is given: to hear from Redis
	switch {
	case err != nil:
		return 0, err
	case d.cfg.Devices > 0:
		return d.cfg.Devices, nil
	case lanes > 0:
		return lanes, nil
	}
	return assumedDevices, nil
}

// fill hands over as many tickets of a class as fit its window. dry says that the devices may have waited for this, full that there may be more.
func (d *Dispatcher) fill(ctx context.Context, class aviary.Priority, devices int) (dry, full bool, err error) {
	out, err := d.store.Dispatched(ctx, class)
	if err != nil {
		return false, false, d.observe(ctx, &d.storeAway, err)
	}
	w := d.classes[class].window
	dry = w.look(out, devices)
	defer func() { w.filled(full) }()
	for room := w.size*devices - out; room > 0; {
		limit := min(room, batch)
		if d.redisAway.lasting() {
			limit = 1 // it answers again, but it may be full and refuse every write: try with one
		}
		n, more, err := d.handOver(ctx, class, limit)
		if err != nil || !more {
			return dry, false, err
		}
		room -= n
	}
	return dry, true, nil
}

// batch is how many tickets are made at once. A ticket exists from the write in the store on; a small batch keeps the time short until it is in
// Redis too, in which a crash strands it, or the sweeper of another process may miss it.
const batch = 20

// handOver makes up to limit tickets and enqueues them, in the order that is fair. It returns how many, and whether there may be more. Those that Redis
// did not take go back to the store at once; should that fail too, or the process end in between, the sweeper finds them.
func (d *Dispatcher) handOver(ctx context.Context, class aviary.Priority, limit int) (n int, more bool, err error) {
	waiting, err := d.store.Waiting(ctx, class, limit)
	if err != nil {
		return 0, false, d.observe(ctx, &d.storeAway, err)
	}
	fair := d.classes[class].fair
	plan := fair.plan(waiting, limit)
	if len(plan) == 0 {
		return 0, false, nil
	}
	ids, jobs := make([]string, len(plan)), make(map[string]aviary.Candidate, len(plan))
	for i, c := range plan {
		ids[i], jobs[c.JobID] = c.JobID, c
	}
	tickets, err := d.store.Dispatch(ctx, ids)
	if err != nil {
		return 0, false, d.observe(ctx, &d.storeAway, err)
	}
	for i, t := range tickets {
		if err := d.enqueue(ctx, t); err != nil {
			d.takeBack(ctx, tickets[i:])
			return 0, false, d.observe(ctx, &d.redisAway, err)
		}
		fair.charge(jobs[t.JobID]) // what was not handed over is not charged
		d.redisAway.observe(nil)
	}
	// Some may have been canceled since they were listed, but not all of them, again and again.
	return len(tickets), len(plan) == limit && len(tickets) > 0, nil
}

// enqueue puts one ticket into Redis.
func (d *Dispatcher) enqueue(ctx context.Context, t aviary.Ticket) error {
	task, err := newTask(t)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, enqueueFor)
	defer cancel()
	_, err = d.tasks.EnqueueContext(ctx, task)
	// No ticket has been handed over twice by us, so a conflict means that the answer to our own first try was lost and the client tried
	// again. Were it debris with the same id, from a store that was set back, the sweeper would notice that it does not run.
	if err == nil || errors.Is(err, asynq.ErrTaskIDConflict) {
		return nil
	}
	return fmt.Errorf("enqueue job %s: %w", t.JobID, err)
}

// takeBack returns tickets to the store, also when ctx has ended. If one has arrived in Redis all the same, the job's next generation makes it
// void.
func (d *Dispatcher) takeBack(ctx context.Context, tickets []aviary.Ticket) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackFor)
	defer cancel()
	for _, t := range tickets {
		if err := d.store.Undispatch(ctx, t); err != nil {
			d.storeAway.observe(err)
			return
		}
	}
}
