package queue

import (
	"context"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// lazy makes the dispatcher's ticks so long that only a wake-up explains a pass.
func lazy(c *Config) { c.BusyTick, c.IdleTick, c.StrandedAfter = time.Hour, time.Hour, time.Hour }

// TestWakeReachesTheLeader: a wake-up in a process that does not lead, and a ticket that is spent in another one, reach the dispatcher that runs, also after
// an outage of Redis.
func TestWakeReachesTheLeader(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	s := newSystem(t, dial(t, server, rec), rec, lazy)
	s.runDispatcher()
	other, err := NewDispatcher(dial(t, server, rec), s.store, s.cfg, rec.logger()) // another process; never runs
	if err != nil {
		t.Fatal(err)
	}
	subscribed := func() bool {
		return s.conn.client.PubSubNumSub(context.Background(), keyWake).Val()[keyWake] == 1
	}
	eventually(t, "the subscription", subscribed)
	s.store.add(aviary.PriorityBulk, "job_a")
	other.Wake()
	s.store.await(t, "the dispatcher to be woken", func() bool { return s.store.out(aviary.PriorityBulk) == 1 })

	server.kill()
	server.start()
	eventually(t, "the subscription to come back", subscribed)
	s.store.add(aviary.PriorityBulk, "job_b")
	other.Wake()
	s.store.await(t, "the dispatcher to be woken again", func() bool { return s.store.out(aviary.PriorityBulk) == 2 })

	// The window is full. Each ticket that the worker of the other process spends makes room.
	s.submit(aviary.PriorityBulk, 60)
	device := &fakeDevice{name: "a"}
	worker, err := NewWorker(other.conn, s.runner("w"), []aviary.Device{device}, other, s.cfg, rec.logger())
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Stop(context.Background())
	s.store.awaitDone(t, 40)
}

// TestNudgesAreFew: thousands of wake-ups become one nudge each passGap, and the last of them is not lost.
func TestNudgesAreFew(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	conn := dial(t, server, rec)
	sub := conn.client.Subscribe(context.Background(), keyWake)
	defer sub.Close()
	if _, err := sub.Receive(context.Background()); err != nil {
		t.Fatal(err)
	}
	heard := sub.Channel()
	s := newSystem(t, conn, rec)
	began := time.Now()
	for time.Since(began) < 5*passGap {
		s.dispatcher.Wake()
	}
	spent := time.Since(began)
	last := time.NewTimer(10 * passGap)
	n := 0
	for waiting := true; waiting; {
		select {
		case <-heard:
			n++
			last.Reset(10 * passGap)
		case <-last.C:
			waiting = false
		}
	}
	if most := int(spent/passGap) + 3; n < 2 || n > most {
		t.Errorf("%d nudges in %v, want 2 to %d", n, spent, most)
	}
}

// TestNoNudgesWhereItRuns: the dispatcher that runs is woken without Redis, and so is one beside an embedded Redis.
func TestNoNudgesWhereItRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, lazy)
		s.runDispatcher()
		eventually(t, "the dispatcher to run", s.dispatcher.running.Load)
		s.submit(aviary.PriorityBulk, 1)
		s.store.await(t, "the dispatcher to be woken", func() bool { return s.store.out(aviary.PriorityBulk) == 1 })
		conn.nudges.mu.Lock()
		defer conn.nudges.mu.Unlock()
		if conn.nudges.busy {
			t.Error("it was nudged through Redis")
		}
	})
}

// TestWakeWithoutRedis never blocks, and says nothing.
func TestWakeWithoutRedis(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := dial(t, newRedisServer(t), rec)
	s := newSystem(t, conn, rec)
	before := len(rec.counts)
	began := time.Now()
	for range 10_000 {
		s.dispatcher.Wake()
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("10,000 wake-ups took %v", took)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	s.dispatcher.Wake()
	if len(rec.counts) != before {
		t.Errorf("logged: %v", rec.counts)
	}
}
