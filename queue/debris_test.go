package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/aviary-asr/aviary"
)

// TestDebris puts tasks into each state that asynq loses track of, and into those that it does not, and looks what is left.
func TestDebris(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	const class = aviary.PriorityBulk
	const id, hash = "job_a.1", "asynq:{bulk}:t:job_a.1"
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	leased := func(t *testing.T, conn *Conn, key string) {
		must(t, conn.client.ZAdd(ctx, keyOf(class, key), redis.Z{Score: float64(time.Now().Add(time.Hour).Unix()), Member: id}).Err())
	}
	cases := map[string]struct {
		// wreck is done to a pending task.
		wreck  func(t *testing.T, conn *Conn)
		debris bool
	}{
		"pending": {func(*testing.T, *Conn) {}, false},
		"active":  {func(t *testing.T, conn *Conn) { take(t, conn, class) }, false},
		"active without a lease": {func(t *testing.T, conn *Conn) {
			take(t, conn, class)
			must(t, conn.client.Del(ctx, keyOf(class, "lease")).Err())
		}, true},
		"active, hash deleted": {func(t *testing.T, conn *Conn) { take(t, conn, class); must(t, conn.client.Del(ctx, hash).Err()) }, true},
		"active, nothing but a state": {func(t *testing.T, conn *Conn) {
			take(t, conn, class)
			must(t, conn.client.HDel(ctx, hash, "msg").Err())
		}, true},
		"pending, hash deleted": {func(t *testing.T, conn *Conn) { must(t, conn.client.Del(ctx, hash).Err()) }, true},
		"pending list deleted":  {func(t *testing.T, conn *Conn) { must(t, conn.client.Del(ctx, keyOf(class, "pending")).Err()) }, true},
		"finished, but for the hash": {func(t *testing.T, conn *Conn) {
			take(t, conn, class)
			must(t, conn.client.Del(ctx, keyOf(class, "lease"), keyOf(class, "active")).Err())
		}, true},
		"a lease and a hash": {func(t *testing.T, conn *Conn) {
			take(t, conn, class)
			must(t, conn.client.Del(ctx, keyOf(class, "active")).Err())
		}, true},
		"a lease alone": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, hash, keyOf(class, "pending")).Err())
			leased(t, conn, "lease")
		}, true},
		"a result of a task that is gone": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, hash, keyOf(class, "pending")).Err())
			must(t, conn.client.HSet(ctx, hash, "result", "x").Err())
		}, true},
		"retry": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, keyOf(class, "pending")).Err())
			leased(t, conn, "retry")
		}, false},
		"retry, hash deleted": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, keyOf(class, "pending"), hash).Err())
			leased(t, conn, "retry")
		}, true},
		"scheduled": {func(t *testing.T, conn *Conn) {
			must(t, conn.client.Del(ctx, keyOf(class, "pending")).Err())
			leased(t, conn, "scheduled")
		}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
				s := newSystem(t, conn, rec, func(c *Config) { c.DebrisEvery, c.DebrisAge = time.Nanosecond, time.Nanosecond })
				enqueue(t, conn, aviary.Ticket{JobID: "job_a", Generation: 1, Priority: class}) // of no job that waits
				c.wreck(t, conn)
				before := keys(t, conn, "asynq:{*")
				var debris int
				for range 3 { // one to see it, one to remove it, one to find nothing more
					did, err := s.sweeper.Sweep(ctx)
					must(t, err)
					debris += did.Debris
				}
				left := keys(t, conn, "asynq:{*")
				switch {
				case c.debris && (debris != 1 || len(left) > 0):
					t.Errorf("%d were removed, and %v is left", debris, left)
				case !c.debris && (debris != 0 || len(left) != len(before)):
					t.Errorf("%d were removed, of %v is left %v", debris, before, left)
				}
			})
		})
	}
}

// TestDebrisAge: nothing is removed before its time, by the age that the task itself tells, else by how long the sweeper has seen it; nor what is a
// ticket that the store knows of.
func TestDebrisAge(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		ctx := context.Background()
		s := newSystem(t, conn, rec, func(c *Config) { c.DebrisEvery, c.StrandedAfter = time.Nanosecond, time.Hour })
		s.store.add(aviary.PriorityBulk, "job_live")
		live := s.store.tickets(t, "job_live")[0]
		enqueue(t, conn, live)
		for i, age := range []time.Duration{0, time.Hour - time.Minute, time.Hour + time.Minute} {
			ticket := aviary.Ticket{JobID: fmt.Sprint("job_", i), Generation: 1, Priority: aviary.PriorityBulk}
			enqueue(t, conn, ticket)
			conn.client.HSet(ctx, keyTask(ticket), "pending_since", strconv.FormatInt(time.Now().Add(-age).UnixNano(), 10))
		}
		unknown := keyTask(aviary.Ticket{JobID: "job_unknown", Generation: 1, Priority: aviary.PriorityBulk})
		conn.client.HSet(ctx, unknown, "msg", "x")
		conn.client.HSet(ctx, keyTask(live), "pending_since", "1")
		conn.client.Del(ctx, keyOf(aviary.PriorityBulk, "pending"))

		sweep := func() []string {
			t.Helper()
			s.sweeper.debris.next = time.Time{}
			var did Swept
			if err := s.sweeper.clear(ctx, &did); err != nil {
				t.Fatal(err)
			}
			left := keys(t, conn, "asynq:{bulk}:t:*")
			slices.Sort(left)
			return left
		}
		prefix := "asynq:{bulk}:t:"
		want := []string{prefix + "job_0.1", prefix + "job_1.1", prefix + "job_live.1", prefix + "job_unknown.1"}
		for range 2 {
			if left := sweep(); !slices.Equal(left, want) {
				t.Fatalf("left: %v, want %v", left, want)
			}
		}
		s.sweeper.debris.seen[unknown] = time.Now().Add(-time.Hour)
		want = want[:3]
		if left := sweep(); !slices.Equal(left, want) {
			t.Errorf("an hour later are left: %v, want %v", left, want)
		}
		if len(s.sweeper.debris.seen) != 2 { // the two young ones
			t.Errorf("remembered: %v", s.sweeper.debris.seen)
		}
	})
}

// TestClearLooksAgain: a task that was lost when it was looked for, and is not any more, is left.
func TestClearLooksAgain(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, _ *recorder) {
		const class, id = aviary.PriorityBulk, "job_a.1"
		enqueue(t, conn, aviary.Ticket{JobID: "job_a", Generation: 1, Priority: class})
		clear := func(state string, want bool) {
			t.Helper()
			if got, err := conn.clear(context.Background(), class, id, time.Now().Add(time.Hour), true); err != nil || got != want {
				t.Errorf("%s: removed %v, %v; want %v", state, got, err, want)
			}
		}
		clear("pending", false)
		take(t, conn, class)
		clear("active", false)
		conn.client.Del(context.Background(), keyOf(class, "active"))
		conn.client.ZAdd(context.Background(), keyOf(class, "retry"), redis.Z{Score: 1, Member: id})
		clear("retry", false)
		conn.client.Del(context.Background(), keyOf(class, "retry"))
		clear("in no list", true)
	})
}

// TestDebrisIsRare: it reads all keys, so that it is not done with each sweep; but with the first.
func TestDebrisIsRare(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	s := newSystem(t, conn, rec)
	ticket := aviary.Ticket{JobID: "job_a", Generation: 1, Priority: aviary.PriorityBulk}
	for i, want := range []int{1, 0} {
		enqueue(t, conn, ticket)
		conn.client.HSet(context.Background(), keyTask(ticket), "pending_since", "1")
		conn.client.Del(context.Background(), keyOf(aviary.PriorityBulk, "pending"))
		if did, err := s.sweeper.Sweep(context.Background()); err != nil || did.Debris != want {
			t.Errorf("sweep %d removed %d, %v", i, did.Debris, err)
		}
	}
}

// TestHashesDeleted deletes 10 hashes of 20 pending tasks. All jobs run, soon, and nothing of the ghosts is left, with or without a job behind them.
func TestHashesDeleted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) {
			c.PerDevice, c.MaxPerDevice, c.StrandedAfter = 20, 20, 100*time.Millisecond
			c.DebrisEvery, c.DebrisAge = 100*time.Millisecond, 100*time.Millisecond
		})
		ids := s.submit(aviary.PriorityBulk, 20)
		for i, ticket := range s.store.tickets(t, ids...) {
			enqueue(t, conn, ticket)
			ghost := aviary.Ticket{JobID: fmt.Sprint("ghost_", i), Generation: 1, Priority: aviary.PriorityBulk}
			enqueue(t, conn, ghost)
			if i%2 == 0 {
				conn.client.Del(context.Background(), keyTask(ticket), keyTask(ghost))
			}
		}
		conn.client.Set(context.Background(), keyEpoch, "x", 0) // it is no wipe
		s.run()
		device := &fakeDevice{name: "a"}
		s.worker(s.runner("w"), device)
		s.store.awaitDone(t, len(ids))
		s.wantOnce(ids, device)
		eventually(t, "nothing to be left", func() bool {
			return onlyCounters(keys(t, conn, "asynq:{*}:*"))
		})
	})
}

// onlyCounters says whether keys are asynq's statistics.
func onlyCounters(keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		for _, part := range append(slices.Clone(listParts), append(setParts, "lease")...) {
			for _, class := range aviary.Priorities() {
				if key == keyOf(class, part) {
					return true
				}
			}
		}
		return len(key) > 16 && (key[:15] == "asynq:{bulk}:t:")
	})
}

// TestLeaseKeyDeleted deletes asynq's leases while jobs run. They end once, and what asynq leaves behind goes.
func TestLeaseKeyDeleted(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) { c.DebrisEvery, c.DebrisAge = 100*time.Millisecond, 300*time.Millisecond }).start()
		work := newGate()
		devices := []*fakeDevice{{name: "a", work: work.pass}, {name: "b", work: work.pass}, {name: "c", work: work.pass}, {name: "d", work: work.pass}}
		s.worker(s.runner("w"), devices...)
		ids := s.submit(aviary.PriorityBulk, 4)
		for range devices {
			work.next(t)
		}
		if err := conn.client.Del(context.Background(), keyOf(aviary.PriorityBulk, "lease")).Err(); err != nil {
			t.Fatal(err)
		}
		close(work.open)
		s.store.awaitDone(t, len(ids))
		s.wantOnce(ids, devices...)
		eventually(t, "the debris to go", func() bool { return onlyCounters(keys(t, conn, "asynq:{*}:*")) })
	})
}
