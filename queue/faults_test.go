package queue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// TestWipe empties Redis three times while jobs wait and run.
func TestWipe(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec).start()
		ids := slices.Concat(s.submit(aviary.PriorityBulk, 40), s.submit(aviary.PriorityInteractive, 40))
		gates := []*gate{newGate(), newGate(), newGate()}
		var devices []*fakeDevice
		for i, name := range []string{"a", "b", "c"} {
			devices = append(devices, &fakeDevice{name: name, work: func(ctx context.Context, job string) error {
				if slices.Contains([]string{ids[5], ids[20], ids[60]}, job) {
					return gates[i].pass(ctx, job) // runs while Redis is emptied
				}
				time.Sleep(time.Millisecond)
				return nil
			}})
		}
		s.worker(s.runner("w"), devices...)
		for _, done := range []int{10, 30, 50} {
			s.store.awaitDone(t, done)
			if err := conn.client.FlushAll(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		for _, g := range gates {
			close(g.open)
		}
		s.store.awaitDone(t, len(ids))
		s.wantOnce(ids, devices...)
		if got := conn.client.SMembers(context.Background(), keyQueues).Val(); len(got) != 2 {
			t.Errorf("asynq's tools see the queues %v", got)
		}
	})
}

// TestOneSweeperHearsOfAWipe: of many that look at once, one takes the tickets back.
func TestOneSweeperHearsOfAWipe(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec)
		s.store.add(aviary.PriorityBulk, "job_a", "job_b")
		s.store.tickets(t, "job_a", "job_b")
		var mu sync.Mutex
		var wiped, returned int
		var sweepers sync.WaitGroup
		for range 8 {
			sweeper, err := NewSweeper(conn, s.store, s.dispatcher, s.cfg, rec.logger())
			if err != nil {
				t.Fatal(err)
			}
			sweepers.Go(func() {
				did, err := sweeper.Sweep(context.Background())
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if did.Wiped {
					wiped++
				}
				returned += did.Returned
			})
		}
		sweepers.Wait()
		want := 1
		if conn.memory != nil {
			want = 0 // it is empty at every start
		}
		if wiped != want || returned != 2 {
			t.Errorf("%d sweepers heard of it, %d tickets were taken back; want %d, 2", wiped, returned, want)
		}
		did, err := s.sweeper.Sweep(context.Background())
		if err != nil || did != (Swept{}) {
			t.Errorf("another sweep did %+v, %v", did, err)
		}
	})
}

// TestANewRedisIsNoWipe: it is one only when it had been there, with or without tickets.
func TestANewRedisIsNoWipe(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		ctx := context.Background()
		s := newSystem(t, conn, rec)
		for i, wiped := range []bool{false, false, true, false} {
			if i == 2 {
				if err := conn.client.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if did, err := s.sweeper.Sweep(ctx); err != nil || did.Wiped != wiped {
				t.Errorf("sweep %d: %+v, %v; want wiped: %v", i, did, err, wiped)
			}
		}
	})
}

// TestWipeWhileTheStoreIsAway: the sentinel is not left standing over tickets that could not be taken back.
func TestWipeWhileTheStoreIsAway(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec)
	s.store.add(aviary.PriorityBulk, "job_a")
	s.store.tickets(t, "job_a")
	s.store.setAway(errAway)
	if _, err := s.sweeper.Sweep(context.Background()); err == nil {
		t.Fatal("no error")
	}
	s.store.setAway(nil)
	if did, err := s.sweeper.Sweep(context.Background()); err != nil || did.Returned != 1 {
		t.Errorf("the next sweep did %+v, %v", did, err)
	}
}

// TestRedisRestartsEmpty kills the server under load, twice, and starts a new one.
func TestRedisRestartsEmpty(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	s := newSystem(t, dial(t, server, rec), rec).start()
	ids := s.submit(aviary.PriorityBulk, 60)
	work := func(context.Context, string) error {
		time.Sleep(time.Millisecond)
		return nil
	}
	devices := []*fakeDevice{{name: "a", work: work}, {name: "b", work: work}}
	s.worker(s.runner("w"), devices...)
	for _, done := range []int{15, 35} {
		s.store.awaitDone(t, done)
		server.kill()
		// The dispatcher notices, at the latest when it asks for the lanes.
		eventually(t, "the outage to be noticed", s.dispatcher.redisAway.lasting)
		server.start()
	}
	s.store.awaitDone(t, len(ids))
	s.wantOnce(ids, devices...)
}

// TestRedisAwayFromTheStart: everything starts without Redis, jobs are accepted, the store is left alone and the log is not flooded; when
// Redis comes, all jobs run.
func TestRedisAwayFromTheStart(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	server := newRedisServer(t)
	conn := dial(t, server, rec)
	s := newSystem(t, conn, rec)
	s.run()
	ids := s.submit(aviary.PriorityInteractive, 20)
	device := &fakeDevice{name: "a"}
	s.worker(s.runner("w"), device)
	eventually(t, "the outage to be noticed", s.dispatcher.redisAway.lasting)
	for range 1000 {
		s.dispatcher.Wake()
	}
	sleep(context.Background(), time.Second, nil) // what follows is about what does not happen
	s.store.await(t, "nothing", func() bool {
		if s.store.dispatches > 0 {
			t.Errorf("%d times were tickets made for a Redis that is away", s.store.dispatches)
		}
		return true
	})
	server.start()
	s.store.awaitDone(t, len(ids))
	s.wantOnce(ids, device)
	eventually(t, "the return to be noticed", func() bool { return !s.dispatcher.redisAway.lasting() })
	for _, message := range []string{
		s.dispatcher.redisAway.begins, s.dispatcher.redisAway.over, s.sweeper.redisAway.begins, s.sweeper.redisAway.over, "Dequeue error",
	} {
		if n := rec.count(message); n > 1 {
			t.Errorf("%q was logged %d times", message, n)
		}
	}
	if n := rec.count(s.dispatcher.redisAway.begins); n != 1 {
		t.Errorf("the outage was logged %d times", n)
	}
	eventually(t, "Redis to be checked", conn.fit.Load)
}

// TestFullRedis: a Redis that refuses writes (noeviction) fails no submit; the log tells it once; each ticket goes back at once, by the
// dispatcher alone.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	conn := dial(t, server, rec)
	s := newSystem(t, conn, rec)
	s.runDispatcher()
	limit := func(bytes string) {
		if err := conn.client.ConfigSet(context.Background(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	ids := s.submit(aviary.PriorityBulk, 10)
	device := &fakeDevice{name: "a"}
	s.worker(s.runner("w"), device)
	var dispatches, made int
	s.store.await(t, "some tries", func() bool {
		dispatches, made = s.store.dispatches, s.store.made
		return dispatches >= 8
	})
	if window := assumedDevices * s.cfg.PerDevice; made > window+dispatches {
		t.Errorf("%d tickets were made in %d tries; after the first refusal it shall be one a try", made, dispatches)
	}
	if n := rec.count(s.dispatcher.redisAway.begins); n != 1 {
		t.Errorf("the refusals were logged %d times", n)
	}
	limit("0")
	s.store.awaitDone(t, len(ids))
	s.wantOnce(ids, device)
	if n := rec.count(s.dispatcher.redisAway.over); n != 1 {
		t.Errorf("the end of the refusals was logged %d times", n)
	}
}

// TestWindowIsShallow: of thousands that wait, Redis holds a few of each class.
func TestWindowIsShallow(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) { c.StrandedAfter = time.Minute }).start()
		s.submit(aviary.PriorityBulk, 5000)
		s.submit(aviary.PriorityInteractive, 300)
		full := func(bulk, interactive int) {
			t.Helper()
			eventually(t, "the windows to be full", func() bool {
				return len(keys(t, conn, "asynq:{bulk}:t:*")) >= bulk && len(keys(t, conn, "asynq:{interactive}:t:*")) >= interactive
			})
			for range 5 { // more passes change nothing
				s.dispatcher.Wake()
				sleep(context.Background(), 30*time.Millisecond, nil)
			}
			if b, i := len(keys(t, conn, "asynq:{bulk}:t:*")), len(keys(t, conn, "asynq:{interactive}:t:*")); b != bulk || i != interactive {
				t.Errorf("Redis holds %d bulk and %d interactive tickets, want %d and %d", b, i, bulk, interactive)
			}
		}
		full(assumedDevices*s.cfg.PerDevice, assumedDevices*s.cfg.PerDevice)

		// Three devices, all busy: two tickets of each class for each. The interactive ones in their hands are no longer waiting.
		work := newGate()
		devices := []*fakeDevice{{name: "a", work: work.pass}, {name: "b", work: work.pass}, {name: "c", work: work.pass}}
		w := s.worker(s.runner("w"), devices...)
		for range devices {
			work.next(t)
		}
		// The windows were filled for four devices before the three were there.
		full(assumedDevices*s.cfg.PerDevice, 2*len(devices)+len(devices))
		stopped := make(chan error)
		go func() { stopped <- w.Stop(context.Background()) }()
		<-w.draining
		close(work.open)
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}

// TestLostWorker: the sweeper ends an attempt whose lease is over, and the job runs elsewhere, uncharged.
func TestLostWorker(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec)
	var ids []string
	for i := range 25 { // more than two pages
		id := "job_" + string(rune('a'+i))
		ids = append(ids, id)
	}
	s.store.add(aviary.PriorityInteractive, ids...) // so many lost ones hold bulk jobs back
	for _, ticket := range s.store.tickets(t, ids...) {
		if _, err := s.store.StartAttempt(context.Background(), ticket, aviary.Claim{Worker: "dead", Lease: -time.Second}); err != nil {
			t.Fatal(err)
		}
	}
	did, err := s.sweeper.Sweep(context.Background())
	if err != nil || did.Lost != len(ids) {
		t.Fatalf("swept %+v, %v", did, err)
	}
	s.run()
	device := &fakeDevice{name: "a"}
	s.worker(s.runner("w"), device)
	s.store.awaitDone(t, len(ids))
	for _, id := range ids {
		if r := s.store.row(id); r.Attempt != 2 || r.Lost != 1 || r.Fails != 0 {
			t.Errorf("%s: attempt %d, lost %d, fails %d", id, r.Attempt, r.Lost, r.Fails)
		}
	}
}

// TestOverdueAttempt: an attempt that runs for longer than its limit and the grace is ended however alive its worker is; its job runs elsewhere, and what
// it comes with later is refused. The third such end is the last.
func TestOverdueAttempt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec, func(c *Config) { c.Grace = 20 * time.Millisecond })
	s.store.add(aviary.PriorityBulk, "job_a", "job_b", "job_c")
	claim := aviary.Claim{Worker: "w", Device: "a", Lease: time.Hour, Limit: 10 * time.Millisecond}
	start := func(id string, c aviary.Claim) aviary.AttemptRef {
		t.Helper()
		job, err := s.store.StartAttempt(ctx, s.store.tickets(t, id)[0], c)
		if err != nil {
			t.Fatal(err)
		}
		return aviary.AttemptRef{JobID: id, Attempt: job.Attempt}
	}
	unlimited, patient := claim, claim
	unlimited.Limit, patient.Limit = 0, time.Hour
	start("job_b", unlimited)
	start("job_c", patient)
	for i := range aviary.MaxLost {
		ref := start("job_a", claim)
		sleep(ctx, 2*(claim.Limit+s.cfg.Grace), nil)
		did, err := s.sweeper.Sweep(ctx)
		last := i == aviary.MaxLost-1
		if err != nil || did.Overdue != 1 || did.Lost != 0 || (did.Quarantined == 1) != last {
			t.Fatalf("swept %+v, %v", did, err)
		}
		if err := s.store.FinishAttempt(ctx, ref, aviary.Transcript{}); !errors.Is(err, aviary.ErrStale) {
			t.Errorf("the late result: %v", err)
		}
	}
	if r := s.store.row("job_a"); r.State != aviary.StateFailed || r.Lost != aviary.MaxLost {
		t.Errorf("job_a is %s, lost %d", r.State, r.Lost)
	}
	for _, id := range []string{"job_b", "job_c"} {
		if r := s.store.row(id); r.State != aviary.StateRunning {
			t.Errorf("%s is %s", id, r.State)
		}
	}
	for message, want := range map[string]int{
		"an attempt was lost": 2, "an attempt was lost, and its job is quarantined: it has lost too many workers": 1,
	} {
		if n := rec.count(message); n != want {
			t.Errorf("%q was logged %d times, want %d", message, n, want)
		}
	}
}

// TestStoreAway: dispatcher and sweeper outlive it, and say so once.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec).start()
	s.store.setAway(errAway)
	eventually(t, "both to notice", func() bool { return s.dispatcher.storeAway.lasting() && s.sweeper.storeAway.lasting() })
	ids := s.submit(aviary.PriorityBulk, 5)
	s.store.setAway(nil)
	device := &fakeDevice{name: "a"}
	s.worker(s.runner("w"), device)
	s.store.awaitDone(t, len(ids))
	s.wantOnce(ids, device)
	for _, c := range []*condition{&s.dispatcher.storeAway, &s.sweeper.storeAway} {
		eventually(t, "the return to be noticed", func() bool { return !c.lasting() })
		if begins, over := rec.count(c.begins), rec.count(c.over); begins != 1 || over != 1 {
			t.Errorf("%q was logged %d times, %q %d times", c.begins, begins, c.over, over)
		}
	}
}
