//go:build unix

package chaos

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// lostDelay is how long, at most, the store lets a job rest after the first worker that it cost; then twice that.
const lostDelay = 7500 * time.Millisecond

// noticed is the longest time from the loss of a worker to the end of its attempt: its lease, a sweep, and 1 s for the way.
func (f *fleet) noticed() time.Duration { return f.timing.Lease + f.timing.SweepEvery + time.Second }

// rerun is the longest time from there to the next attempt on a free device.
func (f *fleet) rerun() time.Duration { return f.noticed() + lostDelay + time.Second }

// Test01_KillAWorker kills a worker at a random moment of its work.
func Test01_KillAWorker(t *testing.T) {
	t.Parallel()
	for round := range rounds() {
		r := chance(t, round)
		jobs, shortest, longest := 6, 500*time.Millisecond, 2*time.Second
		if rounds() > 1 {
			jobs, shortest, longest = 20, 3*time.Second, 8*time.Second
		}
		f := newFleet(t, withTiming(func(c *timing) { c.RunFloor = 12 * time.Second }))
		base := f.api("api").listens()
		workers := f.workers(4)
		for range jobs {
			f.submit(base, f.recording(modeOK, between(r, shortest, longest)))
		}
		victim := workers[1]
		hit := f.busy(victim, patience)
		time.Sleep(between(r, 0, 300*time.Millisecond)) // the random moment
		killed := time.Now()
		victim.crash()
		f.check(90 * time.Second)
		lost := 0
		for _, e := range f.entries() {
			job, err := f.store.Job(t.Context(), e.job)
			if err != nil {
				t.Fatal(err)
			}
			if lost += job.Lost; job.Lost > 1 {
				t.Errorf("%v is charged with %d workers", e.script, job.Lost)
			}
			if job.Lost == 0 {
				continue
			}
			at := starts(t, f.engines(), e.id)
			if took := f.attempts(e.job)[0].EndedAt.Sub(killed); took > f.noticed() {
				t.Errorf("the loss of %v was noticed %v after the kill, %v are allowed", e.script, took, f.noticed())
			}
			if took := at[len(at)-1].Sub(killed); rounds() == 1 && took > f.rerun() { // in a long run no device is free
				t.Errorf("%v ran again %v after the kill, %v are allowed", e.script, took, f.rerun())
			}
		}
		if lost > 1 {
			t.Errorf("one kill cost %d attempts (it hit %d)", lost, hit)
		}
	}
}

// busy waits until a worker's engine has a recording in hand, and names it.
func (f *fleet) busy(p *process, within time.Duration) int32 {
	f.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		var last engineEvent
		for _, e := range engineEvents(f.t, f.engines()) {
			if strings.HasPrefix(e.Device, p.name+"-") {
				last = e
			}
		}
		if last.Event == eventStart && p.had(last.PID) {
			return last.ID
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%s has nothing to do", p.name)
		}
	}
}

// Test02_KillEverybody kills all processes at once. When they are back, each attempt that was under way is charged once.
func Test02_KillEverybody(t *testing.T) {
	t.Parallel()
	jobs, away := 8, time.Second
	if rounds() > 1 {
		jobs, away = 40, 20*time.Second
	}
	f := newFleet(t, withTiming(func(c *timing) { c.RunFloor = 12 * time.Second }))
	base := f.api("api").listens()
	workers := f.workers(4)
	r := chance(t, 0)
	for range jobs {
		f.submit(base, f.recording(modeOK, between(r, 500*time.Millisecond, 2*time.Second)))
	}
	for _, w := range workers {
		f.busy(w, patience)
	}
	killed := time.Now()
	for _, p := range f.procs {
		p.kill()
	}
	for _, p := range f.procs {
		p.gone(patience)
	}
	time.Sleep(away) // the time without anybody
	for _, p := range f.procs {
		p.start()
	}
	f.check(90 * time.Second)
	for _, e := range f.entries() {
		lost := 0
		for i, a := range f.attempts(e.job) {
			if a.Outcome == aviary.OutcomeLost {
				lost++
			}
			// Only who has the device's lock may know before the lease's end that the worker is dead.
			if i > 0 && a.StartedAt.Before(killed.Add(away)) {
				t.Errorf("attempt %d of %v began while nobody was there", a.Attempt, e.script)
			}
		}
		if lost > 1 {
			t.Errorf("%v was charged with %d workers for one kill", e.script, lost)
		}
	}
}

// Test15_Hang has an engine that never returns, between good jobs on the same device.
func Test15_Hang(t *testing.T) {
	t.Parallel()
	long(t, "each of three hangs is waited for, and each loss is rested from")
	f := newFleet(t)
	base := f.api("api").listens()
	w := f.workers(1)[0]
	var hang *entry
	for i := range 7 {
		m := modeOK
		if i == 3 {
			m = modeHang
		}
		if e := f.submit(base, f.recording(m, 200*time.Millisecond)); m == modeHang {
			hang = e
		}
	}
	f.check(120 * time.Second)
	hung := starts(t, f.engines(), hang.id)
	if len(hung) != aviary.MaxLost {
		t.Errorf("the hanging recording was begun %d times, want %d", len(hung), aviary.MaxLost)
	}
	ends := w.ends()
	if len(ends) != aviary.MaxLost {
		t.Errorf("the worker ended %d times: %v", len(ends), ends)
	}
	for i, e := range ends {
		if e.code != 70 {
			t.Errorf("the watchdog ended the process with %v, want code 70", e)
		}
		if limit := f.timing.Stall + f.timing.Grace + 3*time.Second; i < len(hung) && e.at.Sub(hung[i]) > limit {
			t.Errorf("the watchdog took %v, %v are allowed", e.at.Sub(hung[i]), limit)
		}
	}
	f.neverIdleLongAfter(w, 3*time.Second)
}

// neverIdleLongAfter checks that a worker that died was up again, with its device, soon.
func (f *fleet) neverIdleLongAfter(p *process, limit time.Duration) {
	f.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.exits {
		for _, l := range p.lines {
			if l.Run == e.run+1 && l.Msg == "device ready" && l.Time.Sub(e.at) > limit {
				f.t.Errorf("%s had its device again %v after its end, %v are allowed", p.name, l.Time.Sub(e.at), limit)
			}
		}
	}
}

// Test16_Poison has recordings that take their process down, among many that are good, on two devices.
func Test16_Poison(t *testing.T) {
	t.Parallel()
	long(t, "each loss is rested from")
	f := newFleet(t)
	base := f.api("api").listens()
	f.workers(2)
	for i := range 44 {
		m := modeOK
		switch i {
		case 4, 14, 24:
			m = modeKill
		case 34:
			m = modeFault
		}
		f.submit(base, f.recording(m, 100*time.Millisecond))
	}
	f.check(150 * time.Second)
	for _, e := range f.entries() {
		if n := len(starts(t, f.engines(), e.id)); e.mode.deadly() && n != aviary.MaxLost {
			t.Errorf("%v was begun %d times, want %d", e.script, n, aviary.MaxLost)
		}
		job, err := f.store.Job(t.Context(), e.job)
		if err != nil {
			t.Fatal(err)
		}
		if e.mode.deadly() && (job.Problem == nil || job.Problem.Code != aviary.CodeWorkerLost) {
			t.Errorf("%v ended with %+v", e.script, job.Problem)
		}
		if e.mode == modeOK && job.Lost+job.Fails > 0 {
			t.Errorf("%v was charged for others: %d lost, %d failed", e.script, job.Lost, job.Fails)
		}
	}
	for _, w := range []string{"w0", "w1"} {
		f.neverIdleLongAfter(f.procs[w], 10*time.Second)
	}
}

// Test17_Panics has panics in the engine, beside the attempt in the handler, and in a goroutine that nobody can guard. Only the last ends the process.
func Test17_Panics(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base := f.api("api").listens()
	w := f.add("w0", "worker", child{PanicOn: 2})
	w.start()
	w.working()
	inEngine := f.recording(modePanic, 0)
	inEngine.times = 1
	first := f.submit(base, inEngine)
	f.onDevice(inEngine, 1, patience)
	second := f.submit(base, f.recording(modeOK, 0)) // the observer panics at its start
	third := f.submit(base, f.recording(modeOK, 0))
	f.state(third.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
	if n := len(w.ends()); n > 0 {
		t.Errorf("the process ended %d times by panics that can be guarded", n)
	}
	stray := f.recording(modeStray, 0)
	stray.times = 1
	fourth := f.submit(base, stray)
	w.await(patience, "it has died once", func() bool { return len(w.exits) == 1 })
	if e := w.ends()[0]; e.code != 2 {
		t.Errorf("the process ended with %v, want the runtime's code 2", e)
	}
	f.check(60 * time.Second)
	for _, want := range []struct {
		*entry
		fails, lost int
	}{{first, 1, 0}, {second, 1, 0}, {third, 0, 0}, {fourth, 0, 1}} {
		if job, err := f.store.Job(t.Context(), want.job); err != nil || job.Fails != want.fails || job.Lost != want.lost {
			t.Errorf("%v: %d failed, %d lost, %v; want %d and %d", want.script, job.Fails, job.Lost, err, want.fails, want.lost)
		}
	}
}

// Test18_Drain sends SIGTERM to a worker that can finish in time, to one that cannot, and to one whose Redis hangs.
func Test18_Drain(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		base := f.api("api").listens()
		w := f.worker("w0", "--drain-timeout", "20")
		e := f.submit(base, f.recording(modeOK, 2*time.Second))
		f.onDevice(e.script, 1, patience)
		w.end(syscall.SIGTERM)
		if got := w.gone(20 * time.Second); got.code != 0 {
			t.Errorf("the worker ended with %v", got)
		}
		f.check(time.Second)
		f.uncharged(e, 1)
	})
	t.Run("too late", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t, withTiming(func(c *timing) { c.RunFloor = time.Minute }))
		base := f.api("api").listens()
		w := f.worker("w0", "--drain-timeout", "1")
		e := f.submit(base, f.recording(modeOK, 4*time.Second))
		f.onDevice(e.script, 1, patience)
		f.worker("w1")
		w.end(syscall.SIGTERM)
		got := w.gone(20 * time.Second)
		if got.code != 0 {
			t.Errorf("the worker ended with %v", got)
		}
		at := f.onDevice(e.script, 2, patience)
		if since := at[1].Sub(f.attempts(e.job)[0].EndedAt); since > 3*time.Second {
			t.Errorf("the job began elsewhere %v after its release", since)
		}
		f.check(60 * time.Second)
		f.uncharged(e, 2)
	})
	t.Run("while Redis hangs", func(t *testing.T) {
		t.Parallel()
		f := newFleet(t)
		base := f.api("api").listens()
		w := f.worker("w0", "--drain-timeout", "1")
		e := f.submit(base, f.recording(modeOK, 4*time.Second))
		f.onDevice(e.script, 1, patience)
		f.redis.freeze()
		w.end(syscall.SIGTERM)
		if got := w.gone(16 * time.Second); got.code != 0 {
			t.Errorf("the worker ended with %v", got)
		}
		f.redis.thaw()
		f.worker("w1")
		f.check(60 * time.Second)
		f.uncharged(e, 2)
	})
}

// uncharged checks that a job had so many attempts and was charged for none.
func (f *fleet) uncharged(e *entry, attempts int) {
	f.t.Helper()
	job, err := f.store.Job(f.t.Context(), e.job)
	if err != nil {
		f.t.Fatal(err)
	}
	if job.Attempt != attempts || job.Lost != 0 || job.Fails != 0 {
		f.t.Errorf("%v: attempt %d, %d lost, %d failed; want attempt %d and no charge", e.script, job.Attempt, job.Lost, job.Fails, attempts)
	}
}

// Test19_Roll replaces the workers one by one under load, twice. No job is charged.
func Test19_Roll(t *testing.T) {
	t.Parallel()
	long(t, "two rolls of four workers")
	f := newFleet(t)
	base := f.api("api").listens()
	workers := f.workers(4, "--drain-timeout", "1")
	for range 60 {
		f.submit(base, f.recording(modeOK, 1500*time.Millisecond))
	}
	for range 2 {
		for _, w := range workers {
			f.busy(w, patience)
			w.end(syscall.SIGTERM)
			if got := w.gone(patience); got.code != 0 {
				t.Errorf("%s ended with %v", w.name, got)
			}
			w.start()
			w.working()
		}
	}
	f.check(120 * time.Second)
	for _, e := range f.entries() {
		job, err := f.store.Job(t.Context(), e.job)
		if err != nil || job.Lost+job.Fails > 0 {
			t.Errorf("%v: %d lost, %d failed, %v", e.script, job.Lost, job.Fails, err)
		}
	}
}

// Test20_Freeze stops a worker for longer than its lease in the middle of a job. It goes on when another has done the job, or while another is at it.
func Test20_Freeze(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		always bool // run also in short
		during bool // the second attempt is under way
		option option
	}{
		{"after the other", false, false, func(*fleet) {}},
		{"during the other", true, true, func(*fleet) {}},
		{"during the other, on Postgres", false, true, onPostgres},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if !tt.always {
				long(t, "another case of this is run each time")
			}
			f := newFleet(t, tt.option, withTiming(func(c *timing) { c.Lease, c.SweepEvery, c.RunFloor = 2*time.Second, 500*time.Millisecond, time.Minute }))
			freezeAndThaw(t, f, tt.during)
		})
	}
}

func freezeAndThaw(t *testing.T, f *fleet, during bool) {
	base := f.api("api").listens()
	w := f.worker("w0")
	// Without looking at its context, the first goes on to its end and to the write of its result, whatever its heartbeat hears.
	e := f.submit(base, f.recording(modeDeaf, 2*time.Second))
	f.onDevice(e.script, 1, patience)
	w.signal(syscall.SIGSTOP)
	f.worker("w1")
	f.onDevice(e.script, 2, f.rerun()+patience)
	if !during {
		f.state(e.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
	}
	w.signal(syscall.SIGCONT)
	w.await(patience, "the attempt that was fenced off has ended", func() bool {
		return slices.ContainsFunc(w.lines, func(l line) bool { return l.Msg == "attempt ended" && l.Job == e.job })
	})
	f.check(patience)
	attempts := f.attempts(e.job)
	if len(attempts) != 2 || attempts[0].Outcome != aviary.OutcomeLost || attempts[1].Outcome != aviary.OutcomeSucceeded || f.node(attempts[1].Worker) != "w1" {
		t.Errorf("attempts %+v", attempts)
	}
	if n := f.fenced(w); n != 1 {
		t.Errorf("%d stale writes were refused, want 1", n)
	}
	if n := f.metrics(w)["parakeet_attempts_fenced_total"]; n != 1 {
		t.Errorf("%v fenced attempts were counted, want 1", n)
	}
	if n := len(w.ends()); n > 0 {
		t.Errorf("the worker that was frozen ended %d times", n)
	}
	next := f.submit(base, f.recording(modeOK, 0))
	f.state(next.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
}
