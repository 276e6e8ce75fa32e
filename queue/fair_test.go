package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// crowd is a class with its jobs, for tests of the planning alone.
type crowd struct {
	fair    *fair
	waiting map[string][]aviary.Candidate
	served  map[string]time.Duration
	order   []string // tenants, as they were served
	jobs    int
}

func newCrowd() *crowd {
	return &crowd{fair: newFair(), waiting: map[string][]aviary.Candidate{}, served: map[string]time.Duration{}}
}

func (c *crowd) submit(tenant string, audio ...time.Duration) {
	for _, a := range audio {
		c.jobs++
		c.waiting[tenant] = append(c.waiting[tenant], aviary.Candidate{JobID: fmt.Sprint(tenant, c.jobs), Tenant: tenant, Audio: a})
	}
}

// pass plans n jobs and hands them over, but for those that leave says to be gone.
func (c *crowd) pass(n int, gone func() bool) {
	var list []aviary.Candidate
	for _, jobs := range c.waiting {
		list = append(list, jobs[:min(n, len(jobs))]...)
	}
	for _, job := range c.fair.plan(list, n) {
		if first := c.waiting[job.Tenant][0]; first != job {
			panic("not the oldest of its tenant")
		}
		if c.waiting[job.Tenant] = c.waiting[job.Tenant][1:]; len(c.waiting[job.Tenant]) == 0 {
			delete(c.waiting, job.Tenant)
		}
		if gone != nil && gone() {
			continue
		}
		c.fair.charge(job)
		c.served[job.Tenant] += job.Audio
		c.order = append(c.order, job.Tenant)
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

// TestFairBound holds the bound of the type's description: over any mix of lengths, passes and other tenants that come and go, what two tenants that
// have work all the time are served differs by at most the sum of their longest jobs, over any stretch of time.
func TestFairBound(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := newCrowd()
		steady := []string{"a", "b", "c"}
		longest := map[string]time.Duration{}
		scale := map[string]time.Duration{"a": time.Second, "b": time.Minute, "c": time.Hour}
		job := func(tenant string) time.Duration {
			d := 1 + upTo(rng, scale[tenant])
			longest[tenant] = max(longest[tenant], d)
			return d
		}
		var history []map[string]time.Duration
		for range 300 {
			for _, s := range steady {
				for len(c.waiting[s]) < 20 {
					c.submit(s, job(s))
				}
			}
			if rng.IntN(3) == 0 { // one that comes and goes
				c.submit(fmt.Sprint("guest", rng.IntN(5)), upTo(rng, time.Hour))
			}
			c.pass(1+rng.IntN(20), nil)
			now := map[string]time.Duration{}
			for _, s := range steady {
				now[s] = c.served[s]
			}
			history = append(history, now)
		}
		for range 2000 {
			from, to := rng.IntN(len(history)), rng.IntN(len(history))
			from, to = min(from, to), max(from, to)
			i, j := steady[rng.IntN(3)], steady[rng.IntN(3)]
			apart := (history[to][i] - history[from][i]) - (history[to][j] - history[from][j])
			if apart.Abs() > longest[i]+longest[j] {
				t.Fatalf("seed %d: from pass %d to %d %s was served %v more than %s; the longest jobs are %v and %v",
					seed, from, to, i, apart, j, longest[i], longest[j])
			}
		}
		for _, i := range steady { // from the start, where all clocks are equal
			for _, j := range steady {
				if apart := history[len(history)-1][i] - history[len(history)-1][j]; apart.Abs() > max(longest[i], longest[j]) {
					t.Fatalf("seed %d: since the start %s was served %v more than %s", seed, i, apart, j)
				}
			}
		}
	}
}

// TestFairInterruptions: tenants that go idle and come back all the time, and jobs that are gone when they are handed over, do not break the bound over
// the stretches in which two have work. Two tenants are looked at; it is the rule for coming back that is tried.
func TestFairInterruptions(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := newCrowd()
		const most = time.Minute
		var begin map[string]time.Duration // what a and b had when both began to have work
		for range 2000 {
			for _, s := range []string{"a", "b", "c"} {
				if rng.IntN(4) == 0 {
					c.submit(s, 1+upTo(rng, most))
				}
			}
			both := len(c.waiting["a"]) > 0 && len(c.waiting["b"]) > 0
			if both && begin == nil {
				begin = map[string]time.Duration{"a": c.served["a"], "b": c.served["b"]}
			}
			c.pass(1, nil)
			if begin != nil {
				apart := (c.served["a"] - begin["a"]) - (c.served["b"] - begin["b"])
				if apart.Abs() > 2*most {
					t.Fatalf("seed %d: a was served %v more than b while both had work", seed, apart)
				}
			}
			if len(c.waiting["a"]) == 0 || len(c.waiting["b"]) == 0 {
				begin = nil
			}
		}
	}
}

func TestFairOrder(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for name, c := range map[string]struct {
		prepare func(c *crowd)
		n       int
		want    []string
	}{
		"a crowd of one tenant does not stand before another's first": {func(c *crowd) {
			c.submit("many", slices.Repeat([]time.Duration{s}, 100)...)
			c.submit("one", s)
		}, 3, []string{"many", "one", "many"}},
		"by audio, not by jobs": {func(c *crowd) {
			c.submit("long", 4*s, 4*s)
			c.submit("short", slices.Repeat([]time.Duration{s}, 10)...)
		}, 10, []string{"long", "short", "short", "short", "short", "long", "short", "short", "short", "short"}},
		"no credit for idleness": {func(c *crowd) {
			c.submit("busy", slices.Repeat([]time.Duration{s}, 100)...)
			c.pass(50, nil)
			c.submit("late", slices.Repeat([]time.Duration{s}, 100)...)
			c.order = nil
		}, 6, []string{"late", "busy", "late", "busy", "late", "busy"}},
		"no escape from a debt by being idle for a moment": {func(c *crowd) {
			c.submit("steady", slices.Repeat([]time.Duration{s}, 100)...)
			c.submit("clever", 10*s)
			c.pass(2, nil) // its only job is served
			c.pass(1, nil) // it has no work
			c.submit("clever", 10*s)
			c.order = nil
		}, 10, []string{"steady", "steady", "steady", "steady", "steady", "steady", "steady", "steady", "clever", "steady"}},
		"a job without a duration is not free": {func(c *crowd) {
			c.submit("free", 0, 0, 0)
			c.submit("other", s)
		}, 4, []string{"free", "other", "free", "free"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			crowd := newCrowd()
			c.prepare(crowd)
			crowd.pass(c.n, nil)
			if !slices.Equal(crowd.order, c.want) {
				t.Errorf("served %v, want %v", crowd.order, c.want)
			}
		})
	}
}

// TestFairPlanIsNoCharge: what was planned and not handed over costs nothing.
func TestFairPlanIsNoCharge(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	c.submit("a", time.Second, time.Second, time.Second, time.Second)
	c.submit("b", time.Second, time.Second, time.Second, time.Second)
	for range 10 {
		c.fair.plan(slices.Concat(c.waiting["a"], c.waiting["b"]), 3)
	}
	first := true
	c.pass(4, func() (gone bool) { // a's first
		gone, first = first, false
		return gone
	})
	if c.fair.clocks["a"] != time.Second || c.fair.clocks["b"] != 2*time.Second {
		t.Errorf("clocks: %v", c.fair.clocks)
	}
}

// TestFairForgets: tenants without work are not remembered for ever.
func TestFairForgets(t *testing.T) {
	t.Parallel()
	c := newCrowd()
	for i := range 1000 {
		c.submit(fmt.Sprint("tenant", i), time.Second)
		c.submit("steady", time.Second)
		c.pass(2, nil)
	}
	c.submit("steady", time.Second, time.Second)
	c.pass(1, nil)
	c.pass(1, nil)
	if n := len(c.fair.clocks); n > 3 {
		t.Errorf("%d tenants are remembered", n)
	}
}
