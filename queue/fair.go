package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/aviary-asr/aviary"
)

// fair decides whose job comes next in one class: that of the tenant who has been served the least audio. It is start-time fair queueing. Each tenant
// has a clock, which the audio of its jobs moves on, and the next job is always one of the tenant whose clock is furthest behind among those that have
// work. The clock that this tenant had then is the time of the class, which never goes back. A tenant whose work begins, or begins again, starts
// at the class's time, unless its own clock is ahead: having been idle gives no credit, and being idle for a moment pays no debt.
//
// The bound. Let L(i) be the audio of the longest job of tenant i. While two tenants i and j have work all the time, the audio served to the one and to
// the other differs by at most L(i) + L(j), so by at most twice the longest job. Proof: let now be the class's time, and c(i) the clock of i. No
// tenant with work is behind now, since now is the lowest clock of all each time it is set, and whoever begins starts there or ahead. Then, while both have work,
//
//	c(i) - c(j) <= L(i)
//
// always. When i is served it holds, since before that c(i) <= c(j), and the job adds at most L(i). When j is served, or another, the difference
// shrinks or stays. When the work of i begins, its clock is now, which is at most c(j), or it is ahead of now, by its own last job alone, so by L(i)
// at most: before that job it was the class's time, which has not gone back since. When the work of j begins, its clock is at least now, and that of i
// is ahead of now by L(i) at most, for the same reason. The same holds with i and j exchanged. What a tenant is served is what its clock moves, so that
//
//	served(i) - served(j) = (c(i) - c(j) in the end) - (c(i) - c(j) at first) <= L(i) + L(j)
//
// and where both clocks were equal at first, as after the start of a process, it is at most the longer of the two.
//
// It is not safe for concurrent use.
type fair struct {
	clocks map[string]time.Duration // only of tenants that have work, or whose clock is ahead of now
	busy   map[string]bool          // had work at the last plan
	now    time.Duration            // the class's time
}

func newFair() *fair { return &fair{clocks: map[string]time.Duration{}} }

// leastCost keeps a job whose duration is not known, or is next to nothing, from being free.
const leastCost = time.Millisecond

func costOf(c aviary.Candidate) time.Duration { return max(c.Audio, leastCost) }

// plan picks up to n jobs in the order in which they shall be handed over. waiting holds the oldest jobs of every tenant that has work, each tenant's
// in the order of their age, which is kept; n of each suffice. It charges nobody: see charge.
func (f *fair) plan(waiting []aviary.Candidate, n int) []aviary.Candidate {
	work := map[string][]aviary.Candidate{}
	for _, c := range waiting {
		work[c.Tenant] = append(work[c.Tenant], c)
	}
	f.begin(work)
	clocks, tenants := maps.Clone(f.clocks), slices.Sorted(maps.Keys(work))
	var picked []aviary.Candidate
	for len(picked) < n && len(tenants) > 0 {
		next := 0 // of equals the first by name, so that the same input gives the same plan
		for i, t := range tenants {
			if clocks[t] < clocks[tenants[next]] {
				next = i
			}
		}
		t := tenants[next]
		c := work[t][0]
		picked = append(picked, c)
		clocks[t] += costOf(c)
		if work[t] = work[t][1:]; len(work[t]) == 0 {
			tenants = slices.Delete(tenants, next, next+1)
		}
	}
	return picked
}

// begin starts the clocks of tenants that have work now and had none before. Those that have none and owe nothing are forgotten.
func (f *fair) begin(work map[string][]aviary.Candidate) {
	busy := make(map[string]bool, len(work))
	for t := range work {
		busy[t] = true
		if !f.busy[t] {
			f.clocks[t] = max(f.clocks[t], f.now)
		}
	}
	f.busy = busy
	maps.DeleteFunc(f.clocks, func(t string, c time.Duration) bool { return !busy[t] && c <= f.now })
}

// charge notes that a job of the plan was handed over. Jobs are charged in the plan's order: then each job's tenant is the furthest behind.
func (f *fair) charge(c aviary.Candidate) {
	f.now = max(f.now, f.clocks[c.Tenant])
	f.clocks[c.Tenant] += costOf(c)
}
