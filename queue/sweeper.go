package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// Sweeper repairs, at an interval, what a crash or an outage left behind. Everything it does is idempotent and safe beside other sweepers,
// dispatchers and workers: writes to the store repeat their condition, and a ticket taken back without need is only replaced by its job's
// next one. One Sweeper is for one goroutine: it remembers what it has seen.
type Sweeper struct {
	conn       *Conn
	inspector  *asynq.Inspector
	store      Store
	dispatcher *Dispatcher
	cfg        Config
	log        *slog.Logger

	brake   brake
	debris  debris
	planted bool // the sentinel stood after a sweep of ours: when it is missing again, Redis was wiped

	redisAway, redisUnfit, storeAway condition

	// Report, if set before Run, hears what each sweep of Run did.
	Report func(Swept)
}

// Store is what the sweeper needs of the store.
type Store interface {
	aviary.Dispatching
	Processed(ctx context.Context) (aviary.Totals, error)
}

// Swept counts what one sweep did.
type Swept struct {
	Lost        int  // attempts ended whose worker was silent
	Overdue     int  // attempts ended that ran for longer than they may
	Quarantined int  // jobs that failed with one of these: they have lost too many workers
	Braked      bool // bulk jobs are held back: too many attempts are lost
	Wiped       bool // Redis was emptied, or came back without its data. One that is new is not meant
	Returned    int  // tickets taken back
	Purged      int  // dead tasks removed from Redis
	Debris      int  // what asynq had lost track of, removed from Redis
}

// NewSweeper makes a sweeper; Run starts it. dispatcher is told when jobs wait again, and when it shall hold bulk jobs back.
func NewSweeper(conn *Conn, store Store, dispatcher *Dispatcher, cfg Config, log *slog.Logger) (*Sweeper, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Sweeper{
		conn: conn, inspector: asynq.NewInspectorFromRedisClient(conn.client), store: store, dispatcher: dispatcher, cfg: cfg, log: log,
		redisAway:  condition{log: log, begins: "the sweeper cannot work on Redis", over: "the sweeper works on Redis again"},
		redisUnfit: condition{log: log, begins: "this Redis is not fit for the queue", over: "this Redis is fit for the queue now"},
		storeAway:  condition{log: log, begins: "the store does not answer the sweeper", over: "the store answers the sweeper again"},
	}, nil
}

// Run sweeps at once and then at every interval, until ctx ends. At once, because the process before may have left much.
func (s *Sweeper) Run(ctx context.Context) {
	for ctx.Err() == nil {
		did, _ := s.Sweep(ctx) // what failed is logged, and tried again next time
		if s.Report != nil {
			s.Report(did)
		}
		sleep(ctx, s.cfg.SweepEvery, nil)
	}
}

// Sweep does everything once. It goes on after an error where it can.
func (s *Sweeper) Sweep(ctx context.Context) (Swept, error) {
	var did Swept
	var errStore error
	if len(s.brake.points) == 0 { // what this very sweep ends shall count
		errStore = s.judge(ctx, &did)
	}
	errStore = errors.Join(errStore, s.reap(ctx, &did), s.judge(ctx, &did))
	// Without Redis nothing can be said about tickets. Taking them back would be useless, as the dispatcher could not replace them.
	errRedis := s.mend(ctx, &did)
	if did.Lost > 0 || did.Overdue > 0 || did.Returned > 0 {
		s.dispatcher.Wake()
	}
	return did, errors.Join(errStore, errRedis)
}

// reap ends attempts whose lease is over: their process died, hangs, or is cut off from the store. And it ends attempts that have run for too long: their
// process lives, but its watchdog does not. The store repeats the condition in its write, so that a worker that comes back just then either keeps
// its job or finds itself fenced off. asynq would notice some of it too, but in one to two minutes, only while a server runs, and without telling the
// store.
func (s *Sweeper) reap(ctx context.Context, did *Swept) error {
	lost := func() ([]aviary.Reaped, error) { return s.store.ReapLost(ctx, s.cfg.Page) }
	overdue := func() ([]aviary.Reaped, error) { return s.store.ReapOverdue(ctx, s.cfg.Grace, s.cfg.Page) }
	return errors.Join(s.reapAll(ctx, did, &did.Lost, lost), s.reapAll(ctx, did, &did.Overdue, overdue))
}

// reapAll ends attempts page by page, and counts them.
func (s *Sweeper) reapAll(ctx context.Context, did *Swept, count *int, page func() ([]aviary.Reaped, error)) error {
	for {
		reaped, err := page()
		if err != nil {
			return s.observe(ctx, &s.storeAway, fmt.Errorf("reap lost attempts: %w", err))
		}
		s.storeAway.observe(nil)
		for _, r := range reaped {
			log := s.log.With("job", r.JobID, "attempt", r.Attempt, "worker", r.Worker, "device", r.Device, "code", r.Code, "state", r.State)
			if r.State == aviary.StateFailed {
				did.Quarantined++
				log.Error("an attempt was lost, and its job is quarantined: it has lost too many workers")
			} else {
				log.Warn("an attempt was lost")
			}
		}
		*count += len(reaped)
		if len(reaped) < s.cfg.Page {
			return nil
		}
	}
}

// judge looks at the share of attempts that are lost, whoever ended them, and holds bulk jobs back while it is too high.
func (s *Sweeper) judge(ctx context.Context, did *Swept) error {
	done, err := s.store.Processed(ctx)
	if err != nil {
		return s.observe(ctx, &s.storeAway, fmt.Errorf("count what succeeded and what was lost: %w", err))
	}
	before := s.brake.on
	did.Braked = s.brake.observe(time.Now(), done.Lost, done.Jobs)
	s.dispatcher.HoldBulk(did.Braked)
	switch {
	case did.Braked && !before:
		s.log.Error("many attempts are lost: it is the fleet, not the jobs; no bulk jobs are handed over until that is over",
			"above_percent", 100/brakeShare, "within_s", brakeSpan.Seconds())
	case before && !did.Braked:
		s.log.Info("few attempts are lost; bulk jobs are handed over again")
		s.dispatcher.Wake()
	}
	return nil
}

// observe notes a failure, unless it is our own end.
func (s *Sweeper) observe(ctx context.Context, c *condition, err error) error {
	if ctx.Err() == nil {
		c.observe(err)
	}
	return err
}

// mend compares Redis with the store.
func (s *Sweeper) mend(ctx context.Context, did *Swept) error {
	switch err := s.conn.claim(ctx); {
	case errors.Is(err, ErrForeign): // what is in it says nothing about our tickets, and is not ours to remove
		return s.observe(ctx, &s.redisUnfit, err)
	case err != nil:
		return s.observe(ctx, &s.redisAway, fmt.Errorf("look whose this Redis is: %w", err))
	}
	wiped, err := s.conn.plant(ctx)
	if err != nil {
		return s.observe(ctx, &s.redisAway, fmt.Errorf("look for a wiped Redis: %w", err))
	}
	s.redisAway.observe(nil)
	if err := s.conn.recheck(ctx); !errors.Is(err, ErrUnreachable) {
		s.redisUnfit.observe(err) // loud, but not the end: what an unfit Redis loses is found below
	}
	if wiped {
		if err := s.refill(ctx, did); err != nil {
			return err
		}
	}
	s.planted = true
	return errors.Join(s.audit(ctx, did), s.purge(ctx, did), s.clear(ctx, did))
}

// keyEpoch stands in Redis from the first sweep on. When it is missing, Redis is new, was emptied, or came back without its data.
const keyEpoch = "aviary:epoch"

// plant sets the sentinel if it is missing, and says whether it was: of several sweepers, one hears true. It also names our queues to asynq,
// whose clients do so only once in their life: after a wipe its tools and metrics would see no queues, and report an empty system while
// jobs wait.
func (c *Conn) plant(ctx context.Context) (missing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	var set *redis.BoolCmd
	_, err = c.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		set = p.SetNX(ctx, keyEpoch, time.Now().UTC().Format(time.RFC3339Nano), 0)
		for _, class := range aviary.Priorities() {
			p.SAdd(ctx, keyQueues, string(class))
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	return set.Val(), nil
}

// refill takes all tickets back after a wipe, so that the dispatcher hands the jobs over anew. Tickets handed over since the wipe are taken
// back too; they are dropped when they are run. A crash between plant and here leaves the tickets to the audit.
func (s *Sweeper) refill(ctx context.Context, did *Swept) error {
	n, err := s.store.UndispatchAll(ctx)
	if err != nil {
		// Pull the sentinel again, so that the next sweep repeats this. If that fails too, the audit does the work.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ioTimeout)
		defer cancel()
		err = errors.Join(fmt.Errorf("take all tickets back: %w", err), s.conn.client.Del(ctx, keyEpoch).Err())
		return s.observe(ctx, &s.storeAway, err)
	}
	// A sentinel that was never there tells of a wipe only if Redis had been given tickets. The embedded one is empty at every start, as it should be.
	did.Wiped, did.Returned = s.planted || n > 0 && s.conn.memory == nil, did.Returned+n
	if n > 0 {
		level := slog.LevelWarn
		if s.conn.memory != nil {
			level = slog.LevelInfo // it is empty at every start
		}
		s.log.Log(ctx, level, "Redis was empty; its tickets are handed over again", "tickets", n)
	}
	return nil
}

// auditLimit bounds one look. Windows together may hold more, with very many devices: then the oldest come first, and the next sweep sees the next ones once these
// are claimed or taken back.
const auditLimit = 10_000

// audit looks after tickets that were handed over a while ago and are still not claimed. Those that wait in asynq's pending list are well,
// however long they wait. The others are taken back:
//
//   - missing: the enqueueing was lost, or the process ended between store and Redis, or the key was evicted or deleted;
//   - pending by its own account but in no list: the list was deleted;
//   - active: the answer to the taking was lost in the network, or the worker died before the claim, or it waits for a device that does
//     not come back. (Or it was taken this very moment and is about to be claimed: then either the claim comes first and taking back does
//     nothing, or the job is handed over once more.)
//   - retry: it was taken by a worker that drained, or that could not reach the store;
//   - archived, completed, scheduled: nobody will run it.
//
// The task of a ticket that was taken back is removed, so that nothing of it stays in Redis.
func (s *Sweeper) audit(ctx context.Context, did *Swept) error {
	tickets, err := s.store.Stranded(ctx, s.cfg.StrandedAfter, auditLimit)
	if err != nil {
		return s.observe(ctx, &s.storeAway, fmt.Errorf("list stranded tickets: %w", err))
	}
	for _, class := range aviary.Priorities() {
		suspects := slices.DeleteFunc(slices.Clone(tickets), func(t aviary.Ticket) bool { return t.Priority != class })
		stranded, err := s.conn.stranded(ctx, class, suspects)
		if err != nil {
			return s.observe(ctx, &s.redisAway, fmt.Errorf("look at the tasks of stranded tickets: %w", err))
		}
		for _, t := range stranded {
			if err := s.takeBack(ctx, t); err != nil {
				return err
			}
			did.Returned++
		}
	}
	return nil
}

// strandedTicket is a ticket that nobody will run, and what asynq says of it.
type strandedTicket struct {
	aviary.Ticket
	state string // asynq's; empty when there is no such task
}

// stranded picks those tickets of a class that do not wait in the pending list. One transaction, so that a task on its way from pending to
// active is seen in one of the two.
func (c *Conn) stranded(ctx context.Context, class aviary.Priority, tickets []aviary.Ticket) ([]strandedTicket, error) {
	if len(tickets) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*ioTimeout)
	defer cancel()
	var pending *redis.StringSliceCmd
	states := make([]*redis.StringCmd, len(tickets))
	_, err := c.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		pending = p.LRange(ctx, keyOf(class, "pending"), 0, -1)
		for i, t := range tickets {
			states[i] = p.HGet(ctx, keyTask(t), "state")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // Nil: a task is missing
		return nil, err
	}
	waiting := make(map[string]bool, len(pending.Val()))
	for _, id := range pending.Val() {
		waiting[id] = true
	}
	var found []strandedTicket
	for i, t := range tickets {
		if state := states[i].Val(); state != "pending" || !waiting[taskID(t)] {
			found = append(found, strandedTicket{t, state})
		}
	}
	return found, nil
}

// takeBack returns one ticket to the store, then removes its task: in this order, since the other one would forget the ticket in a crash in
// between only to find it stranded again.
func (s *Sweeper) takeBack(ctx context.Context, t strandedTicket) error {
	if err := s.store.Undispatch(ctx, t.Ticket); err != nil {
		return s.observe(ctx, &s.storeAway, fmt.Errorf("take back the ticket of job %s: %w", t.JobID, err))
	}
	s.log.Info("took back a stranded ticket", "job", t.JobID, "generation", t.Generation, "task", t.state)
	if err := s.conn.forget(ctx, t.Ticket); err != nil {
		return s.observe(ctx, &s.redisAway, fmt.Errorf("remove the task of job %s: %w", t.JobID, err))
	}
	return nil
}

// purge removes tasks that asynq has archived or completed. Of ours that should be none: tickets are not charged for trouble, and are not
// retained. But a task that killed maxRetry workers before any claim is archived, without a word to us; its ticket is the audit's.
func (s *Sweeper) purge(ctx context.Context, did *Swept) error {
	for _, class := range aviary.Priorities() {
		for part, remove := range map[string]func(string) (int, error){
			"archived": s.inspector.DeleteAllArchivedTasks, "completed": s.inspector.DeleteAllCompletedTasks,
		} {
			// Asked first, since removing from a queue that asynq does not know, after a wipe, is an error.
			n, err := s.conn.client.ZCard(ctx, keyOf(class, part)).Result()
			if err == nil && n > 0 {
				var purged int
				purged, err = remove(string(class))
				did.Purged += purged
			}
			if err != nil {
				return s.observe(ctx, &s.redisAway, fmt.Errorf("remove %s tasks: %w", part, err))
			}
		}
	}
	return nil
}
