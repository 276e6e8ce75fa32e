package api

import (
	"context"
	"sync"
	"time"

	"github.com/aviary-asr/aviary"
)

// watcher lets long polls wait for changes of jobs. The store cannot notify, and other processes change jobs too, so one goroutine for the
// whole server looks at the jobs that somebody waits for: each of them once per round, however many wait for it, and not more than
// mostLookups a second in all. A round therefore takes `every`, or longer when many jobs are waited for. Changes made through this very
// server are looked at without delay. The goroutine lives only while somebody waits.
type watcher struct {
	lookup func(ctx context.Context, id string) (aviary.Job, error)
	every  time.Duration

	mu      sync.Mutex
	waiting map[string]map[*waiter]struct{} // by job id
	running bool
	nudge   chan string // ids to look at now
}

// waiter is one request that waits for a job to have another version.
type waiter struct {
	version int64
	changed chan struct{}
}

const (
	mostLookups   = 500 // a second
	lookupTimeout = 5 * time.Second
)

func newWatcher(lookup func(context.Context, string) (aviary.Job, error), every time.Duration) *watcher {
	return &watcher{lookup: lookup, every: every, waiting: map[string]map[*waiter]struct{}{}, nudge: make(chan string, 64)}
}

// wait returns when the job has another version than the one given, when the time is over, or when stop is closed. Only an end of ctx is an
// error.
func (w *watcher) wait(ctx context.Context, job aviary.Job, atMost time.Duration, stop <-chan struct{}) error {
	me := &waiter{version: job.Version, changed: make(chan struct{})}
	w.join(job.ID, me) //nolint:contextcheck // the goroutine that it starts outlives this request, and makes contexts of its own
	defer w.leave(job.ID, me)
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-me.changed:
	case <-timer.C:
	case <-stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// look says that a job may have changed just now.
func (w *watcher) look(id string) {
	select {
	case w.nudge <- id:
	default: // the round that is under way will see it
	}
}

func (w *watcher) join(id string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[id] == nil {
		w.waiting[id] = map[*waiter]struct{}{}
	}
	w.waiting[id][me] = struct{}{}
	if !w.running {
		w.running = true
		go w.run()
	}
}

func (w *watcher) leave(id string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiting[id], me)
	if len(w.waiting[id]) == 0 {
		delete(w.waiting, id)
	}
}

// run goes round the jobs until nobody waits.
func (w *watcher) run() {
	for {
		ids := w.ids()
		if ids == nil {
			return
		}
		gap := max(w.every/time.Duration(len(ids)), time.Second/mostLookups)
		for _, id := range ids {
			w.pause(gap)
			w.inspect(id)
		}
	}
}

// ids lists the jobs that are waited for; nil ends run.
func (w *watcher) ids() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.running = false
		return nil
	}
	ids := make([]string, 0, len(w.waiting))
	for id := range w.waiting {
		ids = append(ids, id)
	}
	return ids
}

// pause lets time pass, and looks at nudged jobs meanwhile.
func (w *watcher) pause(gap time.Duration) {
	timer := time.NewTimer(gap)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return
		case id := <-w.nudge:
			w.inspect(id)
		}
	}
}

// inspect wakes those who wait for a job and know another version. Where the store does not answer they wait on: their time is bounded, and
// then they hear of it.
func (w *watcher) inspect(id string) {
	if !w.awaited(id) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	job, err := w.lookup(ctx, id)
	lost := aviary.CodeOf(err) == aviary.CodeNotFound || aviary.CodeOf(err) == aviary.CodeJobExpired
	if err != nil && !lost {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for me := range w.waiting[id] {
		if lost || me.version != job.Version {
			close(me.changed)
			delete(w.waiting[id], me)
		}
	}
}

func (w *watcher) awaited(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting[id]) > 0
}
