package queue

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/aviary-asr/aviary"
)

func TestEveryJobRunsOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec).start()
		ids := slices.Concat(s.submit(aviary.PriorityBulk, 100), s.submit(aviary.PriorityInteractive, 100))
		work := func(context.Context, string) error {
			time.Sleep(time.Millisecond) // long enough for an overlap to show
			return nil
		}
		devices := []*fakeDevice{{name: "a", work: work}, {name: "b", work: work}, {name: "c", work: work}}
		w := s.worker(s.runner("w"), devices...)
		s.store.awaitDone(t, len(ids))
		s.wantOnce(ids, devices...)
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		for _, d := range devices {
			if len(d.ran()) == 0 {
				t.Errorf("device %s had nothing to do", d.name)
			}
		}
		if left := keys(t, conn, "asynq:{*}:t:*"); len(left) > 0 {
			t.Errorf("tasks are left in Redis: %v", left)
		}
		if left := keys(t, conn, "asynq:servers:*"); len(left) > 0 {
			t.Errorf("the stopped worker is still registered: %v", left)
		}
	})
}

func TestStopGivesALongJobBack(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) { c.Drain = 20 * time.Millisecond }).start()
		id := s.submit(aviary.PriorityBulk, 1)[0]
		long := newGate()
		first := s.worker(s.runner("first"), &fakeDevice{name: "a", work: long.pass})
		long.next(t)
		if err := first.Stop(context.Background()); err != nil {
			t.Fatal(err)
		}
		if r := s.store.row(id); r.State != aviary.StateQueued || r.attempts[0].Outcome != aviary.OutcomeReleased {
			t.Fatalf("after Stop the job is %s, its attempt %q", r.State, r.attempts[0].Outcome)
		}
		second := &fakeDevice{name: "b"}
		s.worker(s.runner("second"), second)
		s.store.awaitDone(t, 1)
		if r := s.store.row(id); r.Attempt != 2 || r.Fails != 0 || r.Lost != 0 || !slices.Equal(second.ran(), []string{id}) {
			t.Errorf("attempt %d, fails %d, lost %d, run by the second worker: %v", r.Attempt, r.Fails, r.Lost, second.ran())
		}
	})
}

// TestStopIsHurriedByItsContext: the caller's patience ends before the drain time.
func TestStopIsHurriedByItsContext(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	s := newSystem(t, conn, rec, func(c *Config) { c.Drain = time.Hour }).start()
	id := s.submit(aviary.PriorityBulk, 1)[0]
	long := newGate()
	w := s.worker(s.runner("w"), &fakeDevice{name: "a", work: long.pass})
	long.next(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if got := s.store.outcomes(id); !slices.Equal(got, []aviary.Outcome{aviary.OutcomeReleased}) {
		t.Errorf("outcomes: %v", got)
	}
}

func TestStopLetsAShortJobFinish(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec).start()
		ids := s.submit(aviary.PriorityBulk, 3)
		short := newGate()
		device := &fakeDevice{name: "a", work: short.pass}
		w := s.worker(s.runner("w"), device)
		running := short.next(t)
		stopped := make(chan error, 2)
		go func() { stopped <- w.Stop(context.Background()) }()
		<-w.draining
		go func() { stopped <- w.Stop(context.Background()) }() // a second signal
		close(short.open)
		for range 2 {
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}
		if err := w.Stop(context.Background()); err != nil {
			t.Error("a third Stop:", err)
		}
		if err := w.Start(); err == nil {
			t.Error("a stopped worker started again")
		}
		if got := device.ran(); !slices.Equal(got, []string{running}) {
			t.Errorf("the draining worker ran %v; only %s was running", got, running)
		}
		for _, id := range ids {
			want := aviary.StateQueued
			if id == running {
				want = aviary.StateSucceeded
			}
			if r := s.store.row(id); r.State != want || r.Attempt > 1 {
				t.Errorf("%s is %s in attempt %d, want %s", id, r.State, r.Attempt, want)
			}
		}
	})
}

func TestStopBeforeStart(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec)
	w, err := NewWorker(s.conn, s.runner("w"), []aviary.Device{&fakeDevice{name: "a"}}, s.dispatcher, s.cfg, rec.logger())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	if err := w.Start(); err == nil {
		t.Error("a stopped worker started")
	}
}

// TestDeviceThatIgnoresItsContext is asynq's slot fault: asynq gives up on a running task and takes the next one. Two ways to make it do so
// in a test; losing the lease takes the same way out of asynq, half a minute later.
func TestDeviceThatIgnoresItsContext(t *testing.T) {
	t.Parallel()
	giveUps := map[string]func(t *testing.T, s *system) (id string, giveUp func()){
		"canceled through asynq": func(t *testing.T, s *system) (string, func()) {
			id := s.submit(aviary.PriorityBulk, 1)[0]
			return id, func() {
				eventually(t, "asynq to listen for cancels", func() bool {
					return s.conn.client.PubSubNumSub(context.Background(), "asynq:cancel").Val()["asynq:cancel"] > 0
				})
				inspector := asynq.NewInspectorFromRedisClient(s.conn.client)
				if err := inspector.CancelProcessing(id + ".1"); err != nil {
					t.Fatal(err)
				}
			}
		},
		"asynq's timeout": func(t *testing.T, s *system) (string, func()) {
			s.store.add(aviary.PriorityBulk, "job_timeout")
			tickets := s.store.tickets(t, "job_timeout")
			enqueue(t, s.conn, tickets[0], asynq.Timeout(time.Second))
			return "job_timeout", func() {}
		},
	}
	for name, prepare := range giveUps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
				// No sweeper: it would take the waiting ticket back, to another device.
				s := newSystem(t, conn, rec)
				first, giveUp := prepare(t, s)
				s.runDispatcher()

				deaf := newGate()
				device := &fakeDevice{name: "a", work: func(ctx context.Context, job string) error {
					err := deaf.passDeaf(ctx, job)
					if ctx.Err() != nil {
						t.Errorf("the context of %s ended with asynq's: %v", job, context.Cause(ctx))
					}
					return err
				}}
				s.worker(s.runner("w"), device)
				if got := deaf.next(t); got != first {
					t.Fatalf("%s runs, want %s", got, first)
				}
				giveUp()
				s.store.add(aviary.PriorityInteractive, "job_next")
				s.dispatcher.Wake()
				eventually(t, "asynq to take the next task beside the running one", func() bool {
					active, err := conn.client.LRange(context.Background(), keyOf(aviary.PriorityInteractive, "active"), 0, -1).Result()
					return err == nil && slices.Equal(active, []string{"job_next.1"})
				})
				if r := s.store.row("job_next"); r.State != aviary.StateQueued {
					t.Errorf("the next job is %s while the device is busy", r.State)
				}
				close(deaf.open)
				s.store.awaitDone(t, 2)
				s.wantOnce([]string{first, "job_next"}, device)
				eventually(t, "all tasks to be gone from Redis", func() bool { return len(keys(t, conn, "asynq:{*}:t:*")) == 0 })
			})
		})
	}
}

// enqueue puts a ticket into Redis as the dispatcher does, with other options.
func enqueue(t *testing.T, conn *Conn, ticket aviary.Ticket, options ...asynq.Option) {
	t.Helper()
	task, err := newTask(ticket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asynq.NewClientFromRedisClient(conn.client).Enqueue(task, options...); err != nil {
		t.Fatal(err)
	}
}

func TestStopReportsADeviceThatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	s := newSystem(t, conn, rec, func(c *Config) { c.Drain, c.Release = 10*time.Millisecond, 50*time.Millisecond }).start()
	id := s.submit(aviary.PriorityBulk, 1)[0]
	deaf := newGate()
	w := s.worker(s.runner("w"), &fakeDevice{name: "cuda:7", work: deaf.passDeaf})
	deaf.next(t)
	for range 2 {
		if err := w.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "cuda:7") {
			t.Fatalf("Stop said %v", err)
		}
	}
	close(deaf.open)
	// It came back in the end, in time for its lease: no other worker could have it, so its result stands.
	s.store.awaitDone(t, 1)
	if r := s.store.row(id); r.Attempt != 1 || r.results != 1 {
		t.Errorf("attempt %d, results %d", r.Attempt, r.results)
	}
	// asynq's shutdown had put the task back to the front; the lane tidied it away.
	eventually(t, "the task to be gone", func() bool { return len(keys(t, conn, "asynq:{*}:t:*")) == 0 })
}

func TestDoubledTicketRunsOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec)
		s.store.add(aviary.PriorityInteractive, "job_a")
		tickets := s.store.tickets(t, "job_a")
		for _, taskID := range []string{"one", "two", "three", "four", "five"} {
			enqueue(t, conn, tickets[0], asynq.TaskID(taskID))
		}
		devices := []*fakeDevice{{name: "a"}, {name: "b"}}
		s.worker(s.runner("w"), devices...)
		eventually(t, "all five to be spent", func() bool { return len(keys(t, conn, "asynq:{*}:t:*")) == 0 })
		s.wantOnce([]string{"job_a"}, devices...)
	})
}

func TestForeignTaskIsDropped(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	s := newSystem(t, conn, rec).start()
	client := asynq.NewClientFromRedisClient(conn.client)
	for _, p := range []string{"", "not json", `{"job":"","generation":1}`, `{"job":"x","generation":1,"priority":"urgent"}`} {
		if _, err := client.Enqueue(asynq.NewTask("other", []byte(p)), asynq.Queue("bulk")); err != nil {
			t.Fatal(err)
		}
	}
	ids := s.submit(aviary.PriorityBulk, 1)
	device := &fakeDevice{name: "a"}
	s.worker(s.runner("w"), device)
	s.store.awaitDone(t, 1)
	s.wantOnce(ids, device)
	eventually(t, "the others to be gone", func() bool { return len(keys(t, conn, "asynq:{*}:t:*")) == 0 })
}

func TestInteractiveBeforeBulk(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) { c.PerDevice = 5 }).start()
		s.submit(aviary.PriorityBulk, 20)
		work := newGate()
		device := &fakeDevice{name: "a", work: work.pass}
		s.worker(s.runner("w"), device)
		work.next(t) // the device is busy with bulk, and the window of bulk is full
		interactive := s.submit(aviary.PriorityInteractive, 5)
		s.store.await(t, "the interactive jobs to be handed over", func() bool { return s.store.out(aviary.PriorityInteractive) == 5 })
		eventually(t, "their tasks to wait", func() bool {
			return conn.client.LLen(context.Background(), keyOf(aviary.PriorityInteractive, "pending")).Val() == 5
		})
		close(work.open)
		s.store.awaitDone(t, 25)
		if got := device.ran()[1:6]; !slices.Equal(got, interactive) {
			t.Errorf("after the running job came %v", got)
		}
	})
}

// panicky panics twice: before a claim, and behind the runner's back after one.
type panicky struct {
	Runner
	store         *memStore
	before, after atomic.Bool
}

func (p *panicky) Run(ctx context.Context, t aviary.Ticket, d aviary.Device) error {
	if p.before.CompareAndSwap(false, true) {
		panic("before the claim")
	}
	if p.after.CompareAndSwap(false, true) {
		if _, err := p.store.StartAttempt(ctx, t, aviary.Claim{Worker: "w", Device: d.Name(), Lease: 100 * time.Millisecond}); err == nil {
			panic("after the claim")
		}
		p.after.Store(false)
	}
	return p.Runner.Run(ctx, t, d)
}

func TestPanicInTheRunner(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec).start()
		ids := s.submit(aviary.PriorityBulk, 3)
		device := &fakeDevice{name: "a"}
		s.worker(&panicky{Runner: s.runner("w"), store: s.store}, device)
		s.store.awaitDone(t, 3)
		lost := 0
		for _, id := range ids {
			r := s.store.row(id)
			lost += r.Lost
			if r.results != 1 {
				t.Errorf("%s has %d results", id, r.results)
			}
		}
		if lost != 1 || len(device.ran()) != 3 {
			t.Errorf("%d attempts lost, want the one after whose claim the runner panicked; ran %v", lost, device.ran())
		}
	})
}

// TestStoreAwayBeforeTheClaim: the ticket goes back, uncharged, and the job runs when the store has come back.
func TestStoreAwayBeforeTheClaim(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	s := newSystem(t, conn, rec)
	ids := s.submit(aviary.PriorityBulk, 1)
	tickets := s.store.tickets(t, ids...)
	enqueue(t, conn, tickets[0])
	s.store.setAway(errAway)
	device := &fakeDevice{name: "a"}
	s.worker(s.runner("w"), device)
	eventually(t, "the ticket to go back", func() bool {
		return conn.client.ZCard(context.Background(), keyOf(aviary.PriorityBulk, "retry")).Val() == 1
	})
	s.store.setAway(nil)
	s.store.awaitDone(t, 1) // by asynq's retry: no dispatcher and no sweeper run
	s.wantOnce(ids, device)
	if r := s.store.row(ids[0]); r.Fails != 0 {
		t.Errorf("the job was charged %d failures", r.Fails)
	}
}

func TestNewWorkerRefuses(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	conn := embedded(t, rec)
	a := &fakeDevice{name: "a"}
	bad := testConfig()
	bad.Poll = 0
	for name, c := range map[string]struct {
		devices []aviary.Device
		cfg     Config
		want    string
	}{
		"no device":    {nil, testConfig(), "needs a device"},
		"device twice": {[]aviary.Device{a, a}, testConfig(), "device a is given twice"},
		"bad config":   {[]aviary.Device{a}, bad, "Poll is 0s"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewWorker(conn, &aviary.Runner{}, c.devices, nil, c.cfg, rec.logger()); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
