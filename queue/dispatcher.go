package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aviary-asr/aviary"
)

// Dispatcher hands waiting jobs over to Redis, a window at a time, so that Redis is shallow: what comes next is decided as late as possible, a
// canceled job costs nothing, a wiped Redis loses next to nothing, and a job that is tried again does not queue behind a hundred
// thousand others. Several dispatchers on one store only make the window deeper.
type Dispatcher struct {
	conn  *Conn
	tasks *asynq.Client
	store aviary.Dispatching
	cfg   Config
	wake  chan struct{}

	redisAway condition
	storeAway condition
}

// NewDispatcher makes a dispatcher; Run starts it.
func NewDispatcher(conn *Conn, store aviary.Dispatching, cfg Config, log *slog.Logger) (*Dispatcher, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Dispatcher{
		conn: conn, tasks: asynq.NewClientFromRedisClient(conn.client), store: store, cfg: cfg, wake: make(chan struct{}, 1),
		redisAway: condition{log: log, begins: "Redis takes no tickets; jobs wait in the store", over: "Redis takes tickets again"},
		storeAway: condition{log: log, begins: "the store does not answer the dispatcher", over: "the store answers the dispatcher again"},
	}, nil
}

// Wake implements aviary.Waker: look for waiting jobs now. It never blocks.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default: // one is waiting already
	}
}

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

// Run works until ctx ends.
func (d *Dispatcher) Run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		more, err := d.pass(ctx)
		switch {
		case err != nil:
			// A wake-up does not shorten this: with Redis away, each submit would cost a dispatch and its undoing.
			sleep(ctx, pause+rand.N(pause/2), nil)
			pause = min(2*pause, d.cfg.LongestPause)
		case more:
			d.rest(ctx, d.cfg.BusyTick)
			pause = firstPause
		default:
			d.rest(ctx, d.cfg.IdleTick)
			pause = firstPause
		}
	}
}

func (d *Dispatcher) rest(ctx context.Context, tick time.Duration) {
	sleep(ctx, passGap, nil)
	sleep(ctx, tick-passGap, d.wake)
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
	// Redis is asked first: while it is away the store is left alone.
	lanes, err := d.conn.lanes(ctx)
	if err != nil {
		return false, d.observe(ctx, &d.redisAway, err)
	}
	for _, class := range aviary.Priorities() {
		full, err := d.fill(ctx, class, d.window(class, lanes))
		if err != nil {
			return false, err
		}
		more = more || full
	}
	if !more {
		d.redisAway.observe(nil) // it answers, and there is nothing that it could refuse
	}
	d.storeAway.observe(nil)
	return more, nil
}

// observe notes a failure, unless it is our own end.
func (d *Dispatcher) observe(ctx context.Context, c *condition, err error) error {
	if ctx.Err() == nil {
		c.observe(err)
	}
	return err
}

// window is how many tickets of a class may be handed over and unclaimed.
func (d *Dispatcher) window(class aviary.Priority, lanes int) int {
	if class == aviary.PriorityInteractive {
		return d.cfg.InteractiveWindow
	}
	devices := d.cfg.Devices
	if devices == 0 {
		devices = lanes
	}
	if devices == 0 {
		devices = assumedDevices
	}
	return devices * d.cfg.BulkPerDevice
}

// fill hands over as many tickets of a class as fit its window. full says that there may be more.
func (d *Dispatcher) fill(ctx context.Context, class aviary.Priority, window int) (full bool, err error) {
	out, err := d.store.Dispatched(ctx, class)
	if err != nil {
		return false, d.observe(ctx, &d.storeAway, err)
	}
	for room := window - out; room > 0; {
		limit := min(room, batch)
		if d.redisAway.lasting() {
			limit = 1 // it answers again, but it may be full and refuse every write: try with one
		}
		n, err := d.handOver(ctx, class, limit)
		if err != nil || n < limit {
			return false, err
		}
		room -= n
	}
	return true, nil
}

// batch is how many tickets are made at once. A ticket exists from the write in the store on; a small batch keeps the time short until it is in
// Redis too, in which a crash strands it, or the sweeper of another process may miss it.
const batch = 20

// handOver makes up to limit tickets and enqueues them. Those that Redis did not take go back to the store at once; should that fail too, or the
// process end in between, the sweeper finds them.
func (d *Dispatcher) handOver(ctx context.Context, class aviary.Priority, limit int) (n int, err error) {
	tickets, err := d.store.Dispatch(ctx, class, limit)
	if err != nil {
		return 0, d.observe(ctx, &d.storeAway, err)
	}
	for i, t := range tickets {
		if err := d.enqueue(ctx, t); err != nil {
			d.takeBack(ctx, tickets[i:])
			return 0, d.observe(ctx, &d.redisAway, err)
		}
		d.redisAway.observe(nil)
	}
	return len(tickets), nil
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
