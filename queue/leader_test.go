package queue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// reigns is a part of a leader that reports its beginnings and ends.
type reigns struct {
	begun, ended chan string
	leading      *atomic.Int32 // shared by all that must not lead at once
}

func newReigns() *reigns {
	return &reigns{begun: make(chan string, 100), ended: make(chan string, 100), leading: &atomic.Int32{}}
}

func (r *reigns) part(t *testing.T, holder string) func(context.Context) {
	return func(ctx context.Context) {
		if r.leading.Add(1) > 1 {
			t.Error("two lead at once")
		}
		r.begun <- holder
		<-ctx.Done()
		r.leading.Add(-1)
		r.ended <- holder
	}
}

func await(t *testing.T, c <-chan string, want string) {
	t.Helper()
	select {
	case got := <-c:
		if got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("gave up waiting for %s", want)
	}
}

// lead runs a leader until the test ends, or until stop is called.
func lead(t *testing.T, store *memStore, holder string, term time.Duration, rec *recorder, parts ...func(context.Context)) (l *Leader, stop func()) {
	t.Helper()
	l, err := NewLeader(store, holder, term, rec.logger())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { l.Run(ctx, parts...) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return l, stop
}

// TestLeaderIsOne: of three, one leads; when it ends, the next does at once, long before its term is over.
func TestLeaderIsOne(t *testing.T) {
	t.Parallel()
	rec, store, r := newRecorder(t), newMemStore(), newReigns()
	stops := map[string]func(){}
	leaders := map[string]*Leader{}
	for _, holder := range []string{"a", "b", "c"} {
		leaders[holder], stops[holder] = lead(t, store, holder, time.Hour, rec, r.part(t, holder))
	}
	for range 3 {
		var first string
		select {
		case first = <-r.begun:
		case <-time.After(patience):
			t.Fatal("nobody leads")
		}
		for holder, l := range leaders {
			if l.Leads() != (holder == first) {
				t.Errorf("%s leads: %v, while %s does", holder, l.Leads(), first)
			}
		}
		stops[first]()
		await(t, r.ended, first)
		if leaders[first].Leads() {
			t.Errorf("%s leads after its end", first)
		}
		delete(leaders, first)
	}
}

// TestLeaderRenews: it leads for many terms.
func TestLeaderRenews(t *testing.T) {
	t.Parallel()
	rec, store, r := newRecorder(t), newMemStore(), newReigns()
	const term = 300 * time.Millisecond
	_, _ = lead(t, store, "a", term, rec, r.part(t, "a"))
	await(t, r.begun, "a")
	_, _ = lead(t, store, "b", term, rec, r.part(t, "b"))
	began := time.Now()
	store.await(t, "some renewals", func() bool { return store.until.Sub(began) > 4*term })
	if n := rec.count("this process leads"); n != 1 {
		t.Errorf("it was logged %d times", n)
	}
}

// TestLeaderStopsWhenTheStoreIsAway: at the latest when the term is over, by its own count, and tries again; a failure that is shorter is nothing.
func TestLeaderStopsWhenTheStoreIsAway(t *testing.T) {
	t.Parallel()
	rec, store, r := newRecorder(t), newMemStore(), newReigns()
	const term = time.Second
	l, _ := lead(t, store, "a", term, rec, r.part(t, "a"))
	await(t, r.begun, "a")
	store.setAway(errAway)
	eventually(t, "the outage to be noticed", l.storeAway.lasting)
	store.setAway(nil)
	eventually(t, "its end to be noticed", func() bool { return !l.storeAway.lasting() })
	select {
	case <-r.ended:
		t.Error("a failure for less than a term ended the lead")
	default:
	}
	store.setAway(errAway)
	await(t, r.ended, "a")
	var late time.Duration
	store.await(t, "now", func() bool { late = time.Since(store.until); return true })
	if late > term/2 {
		t.Errorf("it led on for %v after its term", late)
	}
	sleep(context.Background(), term/2, nil) // some more tries
	if n := rec.count(l.storeAway.begins); n != 2 {
		t.Errorf("two outages were logged %d times", n)
	}
	store.setAway(nil)
	await(t, r.begun, "a")
}

// TestLeaderStopsWhenTheStoreHangs: a call that does not come back, and does not hear its context, does not keep the term alive. Meanwhile another leads.
func TestLeaderStopsWhenTheStoreHangs(t *testing.T) {
	t.Parallel()
	rec, store, r := newRecorder(t), newMemStore(), newReigns()
	const term = 500 * time.Millisecond
	l, _ := lead(t, store, "a", term, rec, r.part(t, "a"))
	await(t, r.begun, "a")
	hang := make(chan struct{})
	store.mu.Lock()
	store.hang = hang
	store.mu.Unlock()
	await(t, r.ended, "a")
	store.await(t, "now", func() bool {
		if time.Until(store.until) < -term/2 {
			t.Errorf("it led on after its term")
		}
		store.hang = nil
		store.leader, store.until = "b", time.Now().Add(time.Hour) // somebody else
		return true
	})
	close(hang)
	eventually(t, "it to see that another leads", func() bool { return !l.Leads() })
	select {
	case <-r.begun:
		t.Error("it leads beside another")
	case <-time.After(2 * term):
	}
}

// TestLeaderWithAStuckPart: it does not say that it leads after its term, says what keeps it, and leads again when the part has returned.
func TestLeaderWithAStuckPart(t *testing.T) {
	t.Parallel()
	rec, store, r := newRecorder(t), newMemStore(), newReigns()
	free := make(chan struct{})
	l, _ := lead(t, store, "a", 300*time.Millisecond, rec, func(ctx context.Context) {
		r.begun <- "a"
		<-ctx.Done()
		r.ended <- "a"
		<-free
	})
	await(t, r.begun, "a")
	if !l.Leads() {
		t.Error("it does not say that it leads")
	}
	store.await(t, "now", func() bool {
		store.leader, store.until = "b", time.Now().Add(time.Hour)
		return true
	})
	await(t, r.ended, "a")
	if l.Leads() {
		t.Error("it says that it leads, while a part is stuck after the term")
	}
	eventually(t, "the stuck part to be told of", func() bool {
		return rec.count("a part of the leader does not return; this process cannot lead before it does") == 1
	})
	if err := store.Resign(context.Background(), "b"); err != nil {
		t.Fatal(err)
	}
	close(free)
	await(t, r.begun, "a")
}

// TestLeaderYields: when somebody else has become the leader, as after a clock that stood still, it stops at its next renewal.
func TestLeaderYields(t *testing.T) {
	t.Parallel()
	rec, store, r := newRecorder(t), newMemStore(), newReigns()
	causes := make(chan error, 10)
	_, _ = lead(t, store, "a", time.Second, rec, r.part(t, "a"), func(ctx context.Context) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
	})
	await(t, r.begun, "a")
	store.await(t, "now", func() bool {
		store.leader, store.until = "b", time.Now().Add(time.Hour)
		return true
	})
	await(t, r.ended, "a")
	if err := <-causes; !errors.Is(err, errSucceeded) {
		t.Errorf("the cause is %v", err)
	}
	if err := store.Resign(context.Background(), "b"); err != nil {
		t.Fatal(err)
	}
	await(t, r.begun, "a")
}

// TestLeaderCause: the parts hear why.
func TestLeaderCause(t *testing.T) {
	t.Parallel()
	rec, store := newRecorder(t), newMemStore()
	causes := make(chan error, 10)
	_, _ = lead(t, store, "a", 300*time.Millisecond, rec, func(ctx context.Context) {
		store.setAway(errAway)
		<-ctx.Done()
		causes <- context.Cause(ctx)
		store.setAway(nil)
	})
	if err := <-causes; !errors.Is(err, errTermOver) {
		t.Errorf("the cause is %v", err)
	}
}

func TestNewLeaderRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		holder string
		term   time.Duration
	}{{"", time.Second}, {"a", 0}} {
		if _, err := NewLeader(newMemStore(), c.holder, c.term, newRecorder(t).logger()); err == nil {
			t.Errorf("%q with a term of %v was taken", c.holder, c.term)
		}
	}
}
