package queue

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// TestAudit puts a ticket's task into each state that it can be stuck in, as asynq itself does where that can be had.
func TestAudit(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	inspector := func(conn *Conn) *asynq.Inspector { return asynq.NewInspectorFromRedisClient(conn.client) }
	const class, id = aviary.PriorityBulk, "job_a.1"
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		strand   func(t *testing.T, conn *Conn)
		returned int
	}{
		"waits in the list": {func(*testing.T, *Conn) {}, 0},
		"waits in the list behind others": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.RPush(ctx, keyOf(class, "pending"), "x", "y", "z").Err())
		}, 0},
		"missing": {func(t *testing.T, conn *Conn) {
			must(t, inspector(conn).DeleteTask(string(class), id))
		}, 1},
		"hash evicted": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, "asynq:{bulk}:t:job_a.1").Err())
		}, 1},
		"list deleted": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, "asynq:{bulk}:pending").Err())
		}, 1},
		"taken, and the answer was lost": {func(t *testing.T, conn *Conn) {
			take(t, conn, class)
		}, 1},
		"archived": {func(t *testing.T, conn *Conn) {
			must(t, inspector(conn).ArchiveTask(string(class), id))
		}, 1},
		"retry": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.LRem(ctx, keyOf(class, "pending"), 0, id).Err())
			must(t, conn.client.ZAdd(ctx, keyOf(class, "retry"), redis.Z{Score: 1e12, Member: id}).Err())
			must(t, conn.client.HSet(ctx, "asynq:{bulk}:t:job_a.1", "state", "retry").Err())
		}, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
				s := newSystem(t, conn, rec, func(c *Config) { c.StrandedAfter = time.Nanosecond })
				_, err := s.sweeper.Sweep(ctx) // plants the sentinel
				must(t, err)
				s.store.add(class, "job_a")
				tickets := s.store.tickets(t, "job_a")
				must(t, s.dispatcher.enqueue(ctx, tickets[0]))
				must(t, s.dispatcher.enqueue(ctx, tickets[0])) // a conflict is a success
				c.strand(t, conn)
				did, err := s.sweeper.Sweep(ctx)
				must(t, err)
				if did.Returned != c.returned {
					t.Errorf("%d tickets were taken back, want %d", did.Returned, c.returned)
				}
				if c.returned == 0 {
					return
				}
				for _, key := range keys(t, conn, "*") {
					switch key {
					case keyEpoch, keyQueues:
					default:
						t.Errorf("%s is left in Redis", key)
					}
				}
				// The job is not stuck: its next ticket runs, whatever its last one was stuck in.
				s.sweeper.cfg.StrandedAfter = time.Minute
				s.run()
				device := &fakeDevice{name: "a"}
				s.worker(s.runner("w"), device)
				s.store.awaitDone(t, 1)
				if r := s.store.row("job_a"); r.Generation != 2 || r.Attempt != 1 {
					t.Errorf("generation %d, attempt %d", r.Generation, r.Attempt)
				}
			})
		})
	}
}

// take does what asynq's dequeue script does to Redis, for a worker that never hears of it.
func take(t *testing.T, conn *Conn, class aviary.Priority) {
	t.Helper()
	ctx := context.Background()
	id, err := conn.client.RPopLPush(ctx, keyOf(class, "pending"), keyOf(class, "active")).Result()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.client.HSet(ctx, keyOf(class, "t:"+id), "state", "active").Err()
	if err == nil {
		err = conn.client.ZAdd(ctx, keyOf(class, "lease"), redis.Z{Score: float64(time.Now().Add(30 * time.Second).Unix()), Member: id}).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestAuditLeavesAClaimedTicket: the claim comes between the sweeper's look at the store and its write.
func TestAuditLeavesAClaimedTicket(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec)
	s.store.add(aviary.PriorityBulk, "job_a")
	tickets := s.store.tickets(t, "job_a")
	if _, err := s.store.StartAttempt(ctx, tickets[0], aviary.Claim{Worker: "w", Lease: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := s.sweeper.takeBack(ctx, strandedTicket{tickets[0], "active"}); err != nil {
		t.Fatal(err)
	}
	if r := s.store.row("job_a"); r.State != aviary.StateRunning || r.Attempt != 1 {
		t.Errorf("the job is %s in attempt %d", r.State, r.Attempt)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec)
		client, inspector := asynq.NewClientFromRedisClient(conn.client), asynq.NewInspectorFromRedisClient(conn.client)
		for _, class := range []string{"bulk", "interactive"} {
			for _, id := range []string{"a", "b"} {
				if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.Queue(class), asynq.TaskID(id)); err != nil {
					t.Fatal(err)
				}
				if err := inspector.ArchiveTask(class, id); err != nil {
					t.Fatal(err)
				}
			}
		}
		did, err := s.sweeper.Sweep(context.Background())
		if err != nil || did.Purged != 4 {
			t.Errorf("swept %+v, %v", did, err)
		}
		if left := keys(t, conn, "asynq:{*"); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}
