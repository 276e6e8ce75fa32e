//go:build unix

package chaos

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// Test05_Flush empties Redis again and again under load.
func Test05_Flush(t *testing.T) {
	t.Parallel()
	jobs, flushes, pause := 60, 2, 1500*time.Millisecond
	if rounds() > 1 {
		jobs, flushes, pause = 200, 5, 3*time.Second
	}
	f := newFleet(t)
	api := f.api("api")
	base := api.listens()
	f.workers(4)
	for range jobs {
		f.submit(base, f.recording(modeOK, 400*time.Millisecond))
	}
	f.await("the empty Redis is noticed", func() bool { return f.redis.do("EXISTS", "aviary:epoch") == int64(1) })
	for range flushes {
		f.await("somebody works", func() bool { return f.count("SELECT count(*) FROM jobs WHERE state = 'running'") > 0 })
		f.redis.flush()
		deadline := time.Now().Add(pause)
		f.await("the wipe is noticed", func() bool { return f.redis.do("EXISTS", "aviary:epoch") == int64(1) })
		f.metrics(api)
		time.Sleep(time.Until(deadline))
	}
	f.check(90 * time.Second)
	if n := f.sum("parakeet_redis_wiped_total"); n != float64(flushes) {
		t.Errorf("%v of %d wipes were counted", n, flushes)
	}
	queues := fmt.Sprint(f.redis.do("SMEMBERS", "asynq:queues"))
	for _, class := range aviary.Priorities() {
		if !strings.Contains(queues, string(class)) {
			t.Errorf("asynq's tools see the queues %s only", queues)
		}
	}
	for _, e := range f.entries() {
		if n := len(starts(t, f.engines(), e.id)); n != 1 {
			t.Errorf("%v ran %d times", e.script, n)
		}
	}
}

// metrics reads what a process exports, by series. A scrape must never be empty: an autoscaler would take that for no work.
func (f *fleet) metrics(p *process) map[string]float64 {
	f.t.Helper()
	a := get(f.t, p.said(patience, "metrics are served").URL)
	values := map[string]float64{}
	for text := range strings.Lines(a.body) {
		if name, number, ok := strings.Cut(strings.TrimSpace(text), " "); ok && name != "#" {
			if v, err := strconv.ParseFloat(number, 64); err == nil {
				values[name] = v
			}
		}
	}
	if a.status != http.StatusOK || len(values) == 0 {
		f.t.Errorf("metrics: %d %s", a.status, a.body)
	}
	return values
}

// sum adds up a counter over all processes.
func (f *fleet) sum(name string) (total float64) {
	f.t.Helper()
	for _, p := range f.procs {
		v, ok := f.metrics(p)[name]
		if !ok {
			f.t.Errorf("%s does not export %s", p.name, name)
		}
		total += v
	}
	return total
}

// load posts recordings until it is stopped, and says how long the longest answer took.
func (f *fleet) load(base string, pause time.Duration, next func() script) (stop func() (n int, longest time.Duration)) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var n int
	var longest time.Duration
	wg.Go(func() {
		for ctx.Err() == nil {
			e := &entry{script: next()}
			a, err := f.post(context.Background(), base, e)
			if err != nil || a.status != http.StatusAccepted {
				f.t.Errorf("post under load: %d %s, %v", a.status, a.body, err)
			}
			n, longest = n+1, max(longest, a.took)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
	return func() (int, time.Duration) {
		cancel()
		wg.Wait()
		return n, longest
	}
}

// Test06_RedisDies kills Redis under load; it comes back empty.
func Test06_RedisDies(t *testing.T) {
	t.Parallel()
	for range rounds() {
		f := newFleet(t)
		base := f.api("api").listens()
		f.workers(4)
		stop := f.load(base, 50*time.Millisecond, func() script { return f.recording(modeOK, 100*time.Millisecond) })
		f.busy(f.procs["w3"], patience)
		f.redis.kill()
		time.Sleep(3 * time.Second) // the outage
		f.redis.start()
		back := time.Now()
		last := &entry{script: f.recording(modeOK, 0)}
		f.mustPost(base, last)
		if n, longest := stop(); longest > 2*time.Second || n == 0 {
			t.Errorf("the longest of %d posts took %v", n, longest)
		}
		// The jobs that had come meanwhile go first; all are short.
		f.await("a worker has resumed", func() bool {
			return slices.ContainsFunc(engineEvents(t, f.engines()), func(e engineEvent) bool { return e.time().After(back) })
		})
		if took := time.Since(back); took > 5*time.Second {
			t.Errorf("the workers resumed %v after Redis was back", took)
		}
		f.check(60 * time.Second)
	}
}

// Test07_RedisAwayAtTheEnd has Redis away when a job ends: with a file that keeps what was there, its task comes again much later.
func Test07_RedisAwayAtTheEnd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, withRedis("--appendonly", "yes", "--appendfsync", "always"))
	base := f.api("api").listens()
	f.workers(1)
	e := f.submit(base, f.recording(modeOK, 2*time.Second))
	f.onDevice(e.script, 1, patience)
	f.redis.stop()
	job := f.state(e.job, patience, func(j aviary.Job) bool { return j.State.Final() })
	if a := get(t, base+"/v1/jobs/"+e.job+"/transcript"); a.status != http.StatusOK || !strings.Contains(a.body, e.text()) {
		t.Errorf("the result of %+v while Redis is away: %d %s", job, a.status, a.body)
	}
	if rounds() > 1 {
		time.Sleep(8 * time.Second) // longer than asynq keeps trying
	}
	f.redis.start()
	f.everything = rounds() > 1 // until the task has come again
	f.check(patience)
	f.uncharged(e, 1)
}

// Test08_RedisHangs freezes Redis, while nothing is to be done and while all are busy. Posts go on.
func Test08_RedisHangs(t *testing.T) {
	t.Parallel()
	long(t, "Redis hangs for 8 s, twice")
	f := newFleet(t)
	base := f.api("api").listens()
	f.workers(4)
	for _, work := range []time.Duration{0, 3 * time.Second} {
		if work > 0 {
			for range 8 {
				f.submit(base, f.recording(modeOK, work))
			}
			for i := range 4 {
				f.busy(f.procs[fmt.Sprintf("w%d", i)], patience)
			}
		}
		f.redis.freeze()
		stop := f.load(base, 200*time.Millisecond, func() script { return f.recording(modeOK, 50*time.Millisecond) })
		time.Sleep(8 * time.Second) // the outage
		f.redis.thaw()
		if n, longest := stop(); longest > 2*time.Second || n == 0 {
			t.Errorf("the longest of %d posts took %v", n, longest)
		}
		f.check(60 * time.Second)
	}
}

// Test09_DeviceLock has Redis away for longer than asynq believes a task alive, during a job that cannot be interrupted: asynq frees its slot and takes the next
// task. All times are those of production.
func Test09_DeviceLock(t *testing.T) {
	t.Parallel()
	long(t, "with asynq's own times it takes some three minutes")
	f := newFleet(t, withTiming(func(c *timing) { *c = timing{RunFloor: 5 * time.Minute, SweepEvery: time.Second} }))
	base := f.api("api").listens()
	f.workers(1)
	first := f.submit(base, f.recording(modeDeaf, 90*time.Second))
	began := f.onDevice(first.script, 1, patience)[0]
	second := f.submit(base, f.recording(modeOK, 0))
	time.Sleep(time.Until(began.Add(3 * time.Second)))
	f.redis.freeze()
	time.Sleep(time.Until(began.Add(48 * time.Second)))
	f.redis.thaw()
	f.check(150 * time.Second)
	f.uncharged(first, 1)
	f.uncharged(second, 1)
	if at := starts(t, f.engines(), second.id)[0]; at.Before(began.Add(90 * time.Second)) {
		t.Errorf("the second job began %v after the first, which takes 90 s", at.Sub(began))
	}
}

// Test10_TakenUnheard loses the reply with which a worker takes a task.
func Test10_TakenUnheard(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base := f.api("api").listens()
	p := newProxy(t, "unix", f.redis.socket())
	direct := f.redisURL
	f.redisURL = "redis://" + p.address()
	f.workers(1)
	f.redisURL = direct
	first := f.submit(base, f.recording(modeOK, 0)) // the script that takes tasks is loaded
	f.state(first.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
	p.loseRepliesTo(func(said []byte) bool { return bytes.Contains(said, []byte("asynq:{interactive}:paused")) }) // asked by the taking alone
	e := f.submit(base, f.recording(modeOK, 0))
	f.await("the task is taken", func() bool { return f.redis.do("LLEN", "asynq:{interactive}:active") == int64(1) })
	p.loseRepliesTo(nil)
	posted := time.Now()
	at := f.onDevice(e.script, 1, patience)
	if took, limit := at[0].Sub(posted), f.timing.StrandedAfter+f.timing.SweepEvery+4*time.Second; took > limit {
		t.Errorf("the job began %v after its task was lost, %v are allowed", took, limit)
	}
	f.everything = rounds() > 1 // until asynq has found what it gave to a worker that did not hear
	f.check(patience)
	f.uncharged(e, 1)
}

// Test11_HandOverUnheard loses the reply to the hand-over of a ticket. The client of Redis asks again, and hears that the task is there.
func Test11_HandOverUnheard(t *testing.T) {
	t.Parallel()
	p := &proxy{}
	f := newFleet(t, func(f *fleet) {
		withRedis()(f)
		p = newProxy(t, "unix", f.redis.socket())
		f.redisURL = "redis://" + p.address()
	})
	base := f.api("api").listens()
	f.await("the empty Redis is noticed", func() bool { return f.redis.do("EXISTS", "aviary:epoch") == int64(1) })
	f.submit(base, f.recording(modeOK, 0)) // the script that hands over is loaded: otherwise the reply that is lost says only that it is not
	f.await("the first ticket is in Redis", func() bool { return len(f.redis.keys("asynq:{interactive}:t:*")) == 1 })
	e := &entry{script: f.recording(modeOK, 0)}
	var once sync.Once
	p.loseRepliesTo(func(said []byte) (lose bool) {
		if bytes.Contains(said, []byte("asynq:{interactive}:t:job_")) && bytes.Contains(said, []byte("aviary:ticket")) {
			once.Do(func() { lose = true })
		}
		return lose
	})
	f.mustPost(base, e)
	f.await("the reply was lost", func() bool { return p.losses.Load() > 0 })
	f.await("the ticket is out", func() bool {
		return f.count("SELECT count(*) FROM jobs WHERE dispatched_at IS NOT NULL") == 2
	})
	time.Sleep(f.timing.SweepEvery) // whatever would be handed over again has been
	if tasks := f.redis.keys("asynq:{*}:t:*"); len(tasks) != 2 || !slices.Contains(tasks, "asynq:{interactive}:t:"+e.job+".1") {
		t.Errorf("the tasks are %v; want two, both of generation 1", tasks)
	}
	f.workers(1)
	f.check(patience)
	if job, err := f.store.Job(t.Context(), e.job); err != nil || job.Generation != 1 {
		t.Errorf("generation %d, %v", job.Generation, err)
	}
}

// Test12_TasksDeleted deletes tasks behind asynq's back; and a Redis that would do so by itself is refused.
func Test12_TasksDeleted(t *testing.T) {
	t.Parallel()
	t.Run("deleted", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		base := f.api("api").listens()
		f.await("the empty Redis is noticed", func() bool { return f.redis.do("EXISTS", "aviary:epoch") == int64(1) })
		for range 30 {
			f.submit(base, f.recording(modeOK, 0))
		}
		f.await("the window is full", func() bool {
			out := f.count("SELECT count(*) FROM jobs WHERE dispatched_at IS NOT NULL")
			// More, where the first sweep of the new Redis came after the first ticket: its task is void, and stays until it is taken.
			return out >= 8 && len(f.redis.keys("asynq:{interactive}:t:*")) >= out
		})
		for i, key := range f.redis.keys("asynq:{interactive}:t:*") {
			if i%2 == 0 {
				f.redis.do("DEL", key)
			}
		}
		f.workers(2)
		f.check(60 * time.Second)
		for _, e := range f.entries() {
			f.uncharged(e, 1)
		}
	})
	t.Run("evicting", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, withRedis("--maxmemory-policy", "allkeys-lru"))
		w := f.add("w0", "worker", child{})
		w.start()
		w.await(patience, "it refuses to start", func() bool { return len(w.exits) > 0 })
		if e := w.ends()[0]; e.code == 0 || e.signal != 0 {
			t.Errorf("it ended with %v", e)
		}
		if w.count(func(l line) bool { return strings.Contains(l.raw, "maxmemory-policy") }) == 0 {
			t.Error("it does not say why")
		}
		w.kill()
	})
}

// Test13_RedisFull has no room in Redis. Posts go on, and nothing is lost; with room again, everything runs.
func Test13_RedisFull(t *testing.T) {
	t.Parallel()
	posts, full := 10, 2*time.Second
	if rounds() > 1 {
		posts, full = 50, 20*time.Second
	}
	f := newFleet(t)
	api := f.api("api")
	base := api.listens()
	f.workers(1)
	warm := f.submit(base, f.recording(modeOK, 0)) // scripts are loaded
	f.state(warm.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
	f.redis.do("CONFIG", "SET", "maxmemory", "1")
	for range posts {
		e := &entry{script: f.recording(modeOK, 0)}
		if a, err := f.post(t.Context(), base, e); err != nil || a.status != http.StatusAccepted || a.took > 2*time.Second {
			t.Errorf("post with a full Redis: %d %s after %v, %v", a.status, a.body, a.took, err)
		}
	}
	time.Sleep(full) // the time without room
	if n := f.count("SELECT count(*) FROM jobs WHERE state = 'queued'"); n != posts {
		t.Errorf("%d jobs wait with a full Redis, want %d", n, posts)
	}
	if n := len(f.redis.keys("asynq:{*}:t:*")); n > 0 {
		t.Errorf("%d tasks in a full Redis", n)
	}
	if m := f.metrics(api); m["parakeet_redis_used_bytes"] < 0.7*m["parakeet_redis_max_bytes"] || m["parakeet_redis_max_bytes"] == 0 {
		t.Errorf("the metrics say that Redis uses %v bytes of %v", m["parakeet_redis_used_bytes"], m["parakeet_redis_max_bytes"])
	}
	f.redis.do("CONFIG", "SET", "maxmemory", "256mb")
	f.check(60 * time.Second)
}

// Test14_LeaseDeleted deletes asynq's leases under running jobs, of which one then loses its worker.
func Test14_LeaseDeleted(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base := f.api("api").listens()
	workers := f.workers(4)
	for range 4 {
		f.submit(base, f.recording(modeOK, 2*time.Second))
	}
	for _, w := range workers {
		f.busy(w, patience)
	}
	f.redis.do("DEL", "asynq:{interactive}:lease")
	id := f.busy(workers[2], patience)
	workers[2].signal(syscall.SIGKILL)
	f.check(60 * time.Second)
	for _, e := range f.entries() {
		want := 1
		if e.id == id {
			want = 2
		}
		if n := len(starts(t, f.engines(), e.id)); n != want {
			t.Errorf("%v ran %d times, want %d", e.script, n, want)
		}
	}
	again := f.submit(base, f.recording(modeOK, 0))
	f.state(again.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
}
