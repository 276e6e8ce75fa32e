package queue

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// names are those of a tenant's jobs, in the order of their age.
func names(tenant string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s_%04d", tenant, i)
	}
	return ids
}

// TestTenantsShare: of each class, tenants are served the same audio, however many jobs they have and however long those are.
func TestTenantsShare(t *testing.T) {
	t.Parallel()
	for _, class := range aviary.Priorities() {
		t.Run(string(class), func(t *testing.T) {
			t.Parallel()
			onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
				s := newSystem(t, conn, rec)
				s.store.addFor("crowd", class, time.Minute, names("crowd", 500)...)
				s.store.addFor("long", class, 3*time.Minute, names("long", 30)...)
				s.store.addFor("short", class, 20*time.Second, names("short", 300)...)
				s.start()
				device := &fakeDevice{name: "a"}
				s.worker(s.runner("w"), device)
				// All have work until one of them has had 90 minutes: no sooner than at job 150.
				s.store.awaitDone(t, 150)
				served := map[string]time.Duration{}
				ran := device.ran()[:150]
				for _, id := range ran {
					r := s.store.row(id)
					served[r.Tenant] += r.Audio.Duration
				}
				// What was handed over in order runs in order, on one device.
				for _, tenant := range []string{"long", "short"} {
					if apart := served["crowd"] - served[tenant]; apart.Abs() > 4*time.Minute {
						t.Errorf("crowd was served %v, %s %v", served["crowd"], tenant, served[tenant])
					}
				}
				for _, tenant := range []string{"crowd", "long", "short"} {
					own := slices.DeleteFunc(slices.Clone(ran), func(id string) bool { return s.store.row(id).Tenant != tenant })
					if !slices.IsSorted(own) {
						t.Errorf("the oldest of %s did not run first: %v", tenant, own)
					}
				}
			})
		})
	}
}

// TestANewTenantComesSoon: behind hundreds of one tenant's interactive jobs, another's first one waits for the few that were handed over.
func TestANewTenantComesSoon(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec, func(c *Config) { c.Devices = 1 })
		s.store.addFor("crowd", aviary.PriorityInteractive, time.Minute, names("crowd", 300)...)
		s.start()
		work := newGate()
		device := &fakeDevice{name: "a", work: func(ctx context.Context, job string) error {
			work.started <- job
			<-work.open
			return nil
		}}
		s.worker(s.runner("w"), device)
		work.next(t)
		eventually(t, "the window to be full", func() bool { return len(keys(t, conn, "asynq:{interactive}:t:*")) == 1+s.cfg.PerDevice })
		s.store.addFor("new", aviary.PriorityInteractive, time.Minute, "new_1")
		s.dispatcher.Wake()
		for range 1 + s.cfg.PerDevice + 1 {
			work.open <- struct{}{}
			if work.next(t) == "new_1" {
				close(work.open)
				return
			}
		}
		close(work.open)
		t.Errorf("the new tenant's job did not run among the first: %v", device.ran())
	})
}

// TestRefusedJobsAreNotCharged: tenants do not pay for what Redis did not take.
func TestRefusedJobsAreNotCharged(t *testing.T) {
	t.Parallel()
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	conn := dial(t, server, rec)
	s := newSystem(t, conn, rec)
	s.store.addFor("a", aviary.PriorityBulk, time.Hour, "a_1")
	if err := conn.client.ConfigSet(context.Background(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.dispatcher.pass(context.Background()); err == nil {
		t.Fatal("a full Redis took a ticket")
	}
	if clock := s.dispatcher.classes[aviary.PriorityBulk].fair.clocks["a"]; clock != 0 {
		t.Errorf("a was charged %v", clock)
	}
}

// TestWindowFollowsTheDevices: while a device is faster than the ticks, the window and the ticks follow; when it is not any more, they come back. Nothing but
// the ticks wakes the dispatcher.
func TestWindowFollowsTheDevices(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec, func(c *Config) { c.Devices, c.BusyTick = 1, 40*time.Millisecond })
	s.store.add(aviary.PriorityBulk, names("job", 1000)...)
	line := s.dispatcher.classes[aviary.PriorityBulk]
	// pass runs one, after the devices have claimed all but left of the tickets that were out.
	pass := func(left int) {
		t.Helper()
		out, err := s.store.Stranded(ctx, 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, ticket := range out[:max(len(out)-left, 0)] {
			if _, err := s.store.StartAttempt(ctx, ticket, aviary.Claim{Worker: "w", Lease: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		if more, err := s.dispatcher.pass(ctx); err != nil || !more {
			t.Fatalf("more %v, %v", more, err)
		}
		if out, _ := s.store.Dispatched(ctx, aviary.PriorityBulk); out != max(line.window.size, left) {
			t.Errorf("%d tickets are out, the window is %d", out, line.window.size)
		}
	}
	var sizes []int
	const ms = time.Millisecond
	var ticks []time.Duration
	for range 5 {
		pass(0)
		sizes, ticks = append(sizes, line.window.size), append(ticks, s.dispatcher.tick)
	}
	if want := []int{2, 4, 8, 16, 16}; !slices.Equal(sizes, want) {
		t.Errorf("windows %v, want %v", sizes, want)
	}
	if want := []time.Duration{40 * ms, 20 * ms, 20 * ms, 20 * ms, 20 * ms}; !slices.Equal(ticks, want) {
		t.Errorf("ticks %v, want %v", ticks, want)
	}
	for range calmPasses - 1 {
		pass(line.window.size)
	}
	if line.window.size != 16 || s.dispatcher.tick != s.cfg.BusyTick {
		t.Errorf("the window is %d, the tick %v", line.window.size, s.dispatcher.tick)
	}
	pass(12) // more than the new window holds: none is handed over
	if line.window.size != 8 {
		t.Errorf("the window came back to %d", line.window.size)
	}
}

// TestBrakeSeesAllLosses: those that workers recorded themselves, and those from before a sweeper's first look do not count.
func TestBrakeSeesAllLosses(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	rec := newRecorder(t)
	s := newSystem(t, embedded(t, rec), rec)
	lose := func(ids []string) {
		t.Helper()
		s.store.add(aviary.PriorityBulk, ids...)
		for _, ticket := range s.store.tickets(t, ids...) {
			job, err := s.store.StartAttempt(ctx, ticket, aviary.Claim{Worker: "hangs", Lease: time.Hour})
			if err == nil {
				_, err = s.store.FailAttempt(ctx, aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}, aviary.Failure{Retry: true, Lost: true})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	lose(names("before", brakeLost))
	if did, err := s.sweeper.Sweep(ctx); err != nil || did.Braked {
		t.Fatalf("swept %+v, %v", did, err)
	}
	lose(names("since", brakeLost))
	if did, err := s.sweeper.Sweep(ctx); err != nil || !did.Braked || did.Lost > 0 {
		t.Fatalf("swept %+v, %v", did, err)
	}
}

// TestBrakeHoldsBulk: after many losses bulk jobs wait, interactive ones do not, and an error tells once.
func TestBrakeHoldsBulk(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		s := newSystem(t, conn, rec)
		ids := names("lost", 25)
		s.store.add(aviary.PriorityBulk, ids...)
		for _, ticket := range s.store.tickets(t, ids...) {
			if _, err := s.store.StartAttempt(ctx, ticket, aviary.Claim{Worker: "dead", Lease: -time.Second}); err != nil {
				t.Fatal(err)
			}
		}
		const message = "many attempts are lost: it is the fleet, not the jobs; no bulk jobs are handed over until that is over"
		for range 3 {
			if did, err := s.sweeper.Sweep(ctx); err != nil || !did.Braked {
				t.Fatalf("swept %+v, %v", did, err)
			}
		}
		if n := rec.count(message); n != 1 {
			t.Errorf("it was logged %d times", n)
		}
		interactive := s.submit(aviary.PriorityInteractive, 20)
		s.run()
		device := &fakeDevice{name: "a"}
		s.worker(s.runner("w"), device)
		s.store.awaitDone(t, len(interactive))
		s.wantOnce(interactive, device)
		if out, _ := s.store.Dispatched(ctx, aviary.PriorityBulk); out > 0 || len(device.ran()) != len(interactive) {
			t.Errorf("%d bulk tickets are out, %d jobs ran", out, len(device.ran()))
		}
		// 100 more succeed: 25 of 145 are lost.
		s.store.addFor("more", aviary.PriorityInteractive, time.Second, names("more", 100)...)
		s.dispatcher.Wake()
		s.store.awaitDone(t, len(interactive)+100+len(ids))
	})
}
