package storetest

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// testRandom runs seeded random operations on the store and on the model, and compares every answer, and now and then everything.
func testRandom(t *testing.T, b Backend) {
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			r := &random{fixture: f, model: NewModel(f.clock.Now), dice: rand.New(rand.NewPCG(seed, 1))}
			for n := range stepsPerSeed {
				r.step(n)
				if n%500 == 499 || n == stepsPerSeed-1 {
					r.compareAll()
				}
			}
			checkInvariants(t, f.Store)
			if len(r.refused) < 5 {
				t.Fatalf("of all refusals only these happened: %v", r.refused)
			}
		})
	}
}

// random drives two stores at once. It remembers tickets and attempts, good and stale, to try them later.
type random struct {
	*fixture
	model    *Model
	dice     *rand.Rand
	jobs     []string
	tickets  []aviary.Ticket
	refs     []aviary.AttemptRef
	requests []string
	log      []string
	refused  map[string]int
}

// pick is one of the newest of a list, so that what is picked has some life in it, or now and then any.
func pick[T any](dice *rand.Rand, list []T) (v T) {
	if len(list) == 0 {
		return v
	}
	if dice.IntN(10) > 0 {
		return list[len(list)-1-dice.IntN(min(len(list), 12))]
	}
	return list[dice.IntN(len(list))]
}

// both runs one operation on the store and on the model, and fails the test if they answer differently.
func (r *random) both(what string, do func(s aviary.Store) (any, error)) any {
	r.Helper()
	got, gotErr := do(r.Store)
	want, wantErr := do(r.model)
	r.log = append(r.log, what)
	if kind(gotErr) != kind(wantErr) {
		r.Fatalf("%s\nstore says %v\nmodel says %v", r.history(), gotErr, wantErr)
	}
	if gotErr != nil {
		if r.refused == nil {
			r.refused = map[string]int{}
		}
		r.refused[kind(gotErr)]++
		return nil
	}
	got, want = r.plain(got), r.plain(want)
	if !reflect.DeepEqual(got, want) {
		r.Fatalf("%s\nstore says %+v\nmodel says %+v", r.history(), got, want)
	}
	return got
}

func (r *random) history() string {
	return "after\n" + strings.Join(r.log[max(0, len(r.log)-25):], "\n")
}

// plain removes what stores may answer in different ways: a delay that has run out or none, an empty list or none.
func (r *random) plain(v any) any {
	ripe := func(j aviary.Job) aviary.Job {
		if !j.NotBefore.After(r.clock.Now()) {
			j.NotBefore = time.Time{}
		}
		return j
	}
	switch v := v.(type) {
	case aviary.Job:
		return ripe(v)
	case aviary.JobPage:
		page := aviary.JobPage{Next: v.Next}
		for _, j := range v.Jobs {
			page.Jobs = append(page.Jobs, ripe(j))
		}
		return page
	case []aviary.Job: // in any order
		list := []aviary.Job{}
		for _, j := range v {
			list = append(list, ripe(j))
		}
		slices.SortFunc(list, func(a, b aviary.Job) int { return cmp.Compare(a.ID, b.ID) })
		return list
	case []aviary.Candidate:
		return append([]aviary.Candidate{}, v...)
	case []string:
		return append([]string{}, v...)
	case []aviary.Ticket:
		return append([]aviary.Ticket{}, v...)
	case []aviary.Reaped:
		return append([]aviary.Reaped{}, v...)
	case []aviary.Attempt:
		return append([]aviary.Attempt{}, v...)
	}
	return v
}

func (r *random) step(n int) {
	r.clock.Advance(time.Duration(1+r.dice.IntN(2_000_000)) * time.Microsecond) // no two leases end at once
	switch d := r.dice.IntN(100); {
	case d < 22:
		r.create(n)
	case d < 36:
		r.dispatchSome()
	case d < 52:
		r.claim()
	case d < 80:
		r.attemptDeed()
	case d < 89:
		r.userDeed()
	case d < 92:
		r.keeperDeed()
	case d < 95:
		r.clock.Advance(time.Duration(r.dice.IntN(90)) * time.Second)
		r.reapSome(n)
	default:
		r.queueDeed()
	}
}

func (r *random) create(n int) {
	ctx := r.Context()
	job := draft(n+1, aviary.Priorities()[r.dice.IntN(2)])
	job.MaxAttempts = 1 + r.dice.IntN(3)
	job.Tenant = r.tenant()
	if r.dice.IntN(2) == 0 {
		job.RequestKey, job.RequestHash = fmt.Sprint("request ", r.dice.IntN(n+1)), "hash"
		r.requests = append(r.requests, job.RequestKey)
	}
	job.Audio.Duration = time.Duration(r.dice.IntN(1_000_000_000)) * time.Microsecond
	if r.dice.IntN(2) == 0 {
		job.Options.Labels = map[string]string{"a": fmt.Sprint(r.dice.IntN(3)), "b": fmt.Sprint(r.dice.IntN(3))}
	}
	limits := aviary.QueueLimits{Jobs: r.dice.IntN(60), TenantJobs: r.dice.IntN(30), TenantAudio: time.Duration(r.dice.IntN(20_000)) * time.Second}
	if r.both(fmt.Sprintf("create %s within %+v", job.ID, limits), func(s aviary.Store) (any, error) { return s.CreateJob(ctx, job, limits) }) != nil {
		r.jobs = append(r.jobs, job.ID)
	}
}

func (r *random) dispatchSome() {
	ctx := r.Context()
	class, limit := aviary.Priorities()[r.dice.IntN(2)], r.dice.IntN(4)
	waiting := r.both(fmt.Sprintf("waiting %d %s", limit, class), func(s aviary.Store) (any, error) { return s.Waiting(ctx, class, limit) })
	ids := []string{pick(r.dice, r.jobs), "job_nobody"} // whatever its state
	for _, c := range waiting.([]aviary.Candidate) {
		ids = append(ids, c.JobID)
	}
	r.dice.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = append(ids[:min(len(ids), 1+r.dice.IntN(6))], ids[0]) // and one of them twice
	list := r.both(fmt.Sprintf("dispatch %q", ids), func(s aviary.Store) (any, error) { return s.Dispatch(ctx, ids) })
	r.tickets = append(r.tickets, list.([]aviary.Ticket)...)
}

// tenant is one of a few, some of whom come late and go early.
func (r *random) tenant() string { return fmt.Sprint("tenant ", len(r.jobs)/100+r.dice.IntN(3)) }

// reapSome has attempts reaped for one reason or another. How long a lost job has to wait is for the store to choose, within a range.
func (r *random) reapSome(n int) {
	r.Helper()
	ctx := r.Context()
	grace, c := time.Duration(r.dice.IntN(20))*time.Second, r.claimOfSome()
	var reaped any
	switch r.dice.IntN(3) {
	case 0:
		reaped = r.both("reap lost", func(s aviary.Store) (any, error) { return s.ReapLost(ctx, 1+n%4) })
	case 1:
		reaped = r.both(fmt.Sprint("reap overdue for ", grace), func(s aviary.Store) (any, error) { return s.ReapOverdue(ctx, grace, 1+n%4) })
	case 2:
		reaped = r.both(fmt.Sprintf("take over %+v", c), func(s aviary.Store) (any, error) { return s.TakeOver(ctx, c) })
	}
	for _, one := range reaped.([]aviary.Reaped) {
		if one.State != aviary.StateQueued {
			continue
		}
		job := r.job(one.JobID)
		least, waits := 5*time.Second<<(job.Lost-1), job.NotBefore.Sub(r.clock.Now())
		if waits < least || waits > least*3/2 {
			r.Fatalf("after %d losses a job has to wait for %v", job.Lost, waits)
		}
		r.model.adopt(job)
	}
}

func (r *random) claimOfSome() aviary.Claim {
	return aviary.Claim{Worker: fmt.Sprint("w", r.dice.IntN(3)), Node: fmt.Sprint("n", r.dice.IntN(2)), Device: fmt.Sprint("cuda:", r.dice.IntN(2)),
		Lease: time.Duration(1+r.dice.IntN(60)) * time.Second, Limit: time.Duration(r.dice.IntN(60)) * time.Second}
}

// keeperDeed forgets something, or looks at what can be forgotten.
func (r *random) keeperDeed() {
	ctx := r.Context()
	age, limit := time.Duration(r.dice.IntN(600))*time.Second, r.dice.IntN(4)
	holder := fmt.Sprint("h", r.dice.IntN(2))
	switch r.dice.IntN(8) {
	case 0:
		r.both(fmt.Sprintf("expire %d after %v", limit, age), func(s aviary.Store) (any, error) { return s.ExpireOld(ctx, age, limit) })
	case 1:
		r.both(fmt.Sprintf("drop audio of %d after %v", limit, age), func(s aviary.Store) (any, error) { return s.DropAudio(ctx, age, limit) })
	case 2:
		r.both(fmt.Sprintf("drop %d tombstones after %v", limit, age), func(s aviary.Store) (any, error) { return s.DropTombstones(ctx, age, limit) })
	case 3:
		keys := []string{"", "job_nobody", ".flac"}
		for range 5 {
			id := pick(r.dice, r.jobs)
			keys = append(keys, id, id+".flac", id+".wav")
		}
		r.both(fmt.Sprintf("unwanted of %q", keys), func(s aviary.Store) (any, error) { return s.Unwanted(ctx, keys) })
	case 4:
		r.both("lead "+holder, func(s aviary.Store) (any, error) { return s.Lead(ctx, holder, time.Minute) })
	case 5:
		r.both("resign "+holder, func(s aviary.Store) (any, error) { return nil, s.Resign(ctx, holder) })
	default:
		tenant, key := r.tenant(), pick(r.dice, r.requests)
		r.both(fmt.Sprintf("request %q of %s", key, tenant), func(s aviary.Store) (any, error) { return s.Requested(ctx, tenant, key) })
	}
}

func (r *random) claim() {
	ctx := r.Context()
	ticket := pick(r.dice, r.tickets)
	claim := r.claimOfSome()
	job := r.both(fmt.Sprintf("claim %+v", ticket), func(s aviary.Store) (any, error) { return s.StartAttempt(ctx, ticket, claim) })
	if job, ok := job.(aviary.Job); ok {
		r.refs = append(r.refs, aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt})
	}
}

func (r *random) attemptDeed() {
	ctx := r.Context()
	ref := pick(r.dice, r.refs)
	f := aviary.Failure{Problem: broken, Retry: r.dice.IntN(4) > 0, Charge: r.dice.IntN(2) > 0, Lost: r.dice.IntN(3) == 0,
		Delay: time.Duration(r.dice.IntN(3)) * 5 * time.Second}
	b := aviary.Beat{Lease: 30 * time.Second, Phase: aviary.PhaseTranscribing, Progress: time.Duration(r.dice.IntN(4)) * time.Second}
	switch r.dice.IntN(8) {
	case 0, 1, 2:
		r.both(fmt.Sprintf("beat %+v", ref), func(s aviary.Store) (any, error) { return s.Heartbeat(ctx, ref, b) })
	case 3, 4:
		t := transcript(len(r.log))
		r.both(fmt.Sprintf("finish %+v", ref), func(s aviary.Store) (any, error) { return nil, s.FinishAttempt(ctx, ref, t) })
	case 5:
		r.both(fmt.Sprintf("fail %+v %+v", ref, f), func(s aviary.Store) (any, error) { return s.FailAttempt(ctx, ref, f) })
	case 6:
		r.both(fmt.Sprintf("release %+v", ref), func(s aviary.Store) (any, error) { return nil, s.ReleaseAttempt(ctx, ref) })
	case 7:
		r.both(fmt.Sprintf("stop %+v", ref), func(s aviary.Store) (any, error) { return nil, s.CancelAttempt(ctx, ref) })
	}
}

func (r *random) userDeed() {
	ctx := r.Context()
	id := pick(r.dice, r.jobs)
	if id == "" {
		id = "job_nobody"
	}
	switch r.dice.IntN(8) {
	case 0, 1:
		r.both("cancel "+id, func(s aviary.Store) (any, error) { return s.Cancel(ctx, id) })
	case 2, 3:
		r.both("retry "+id, func(s aviary.Store) (any, error) { return s.Retry(ctx, id) })
	case 4:
		force := r.dice.IntN(3) == 0
		r.both(fmt.Sprintf("expire %s, force %v", id, force), func(s aviary.Store) (any, error) { return s.Expire(ctx, id, force) })
	case 5:
		r.both("transcript "+id, func(s aviary.Store) (any, error) { return s.Transcript(ctx, id) })
	case 6:
		r.both("ahead of "+id, func(s aviary.Store) (any, error) {
			job, err := s.Job(ctx, id)
			if err != nil {
				return nil, err
			}
			jobs, audio, err := s.QueueAhead(ctx, job)
			return aviary.Amount{Jobs: jobs, Audio: audio}, err
		})
	case 7:
		q := aviary.JobQuery{Limit: 1 + r.dice.IntN(5), Ascending: r.dice.IntN(2) == 0, After: id}
		if r.dice.IntN(2) == 0 {
			q.Labels = map[string]string{"a": fmt.Sprint(r.dice.IntN(3))}
		}
		if r.dice.IntN(2) == 0 {
			q.States = aviary.States()[r.dice.IntN(3):]
		}
		if r.dice.IntN(3) == 0 {
			q.CreatedAfter = r.clock.Now().Add(-time.Duration(r.dice.IntN(600)) * time.Second)
		}
		r.both(fmt.Sprintf("list %+v", q), func(s aviary.Store) (any, error) { return s.Jobs(ctx, q) })
	}
}

func (r *random) queueDeed() {
	ctx := r.Context()
	ticket := pick(r.dice, r.tickets)
	age := time.Duration(r.dice.IntN(20)) * time.Second
	class := aviary.Priorities()[r.dice.IntN(2)]
	switch r.dice.IntN(8) {
	case 0, 1, 2:
		r.both(fmt.Sprintf("undispatch %+v", ticket), func(s aviary.Store) (any, error) { return nil, s.Undispatch(ctx, ticket) })
	case 3, 4:
		r.both(fmt.Sprintf("stranded for %v", age), func(s aviary.Store) (any, error) {
			list, err := s.Stranded(ctx, age, 1_000_000)
			return len(list), err // those handed over at once come in any order
		})
	case 5, 6:
		r.both(fmt.Sprintf("tickets of %s", class), func(s aviary.Store) (any, error) { return s.Dispatched(ctx, class) })
	case 7:
		r.both("wipe", func(s aviary.Store) (any, error) { return s.UndispatchAll(ctx) })
	}
}

// compareAll compares the backlog, which the model counts anew, and every job with its attempts and its transcript.
func (r *random) compareAll() {
	ctx := r.Context()
	r.Helper()
	r.both("backlog", func(s aviary.Store) (any, error) { return s.Backlog(ctx) })
	r.both("processed", func(s aviary.Store) (any, error) { return s.Processed(ctx) })
	for _, id := range r.jobs {
		r.both("job "+id, func(s aviary.Store) (any, error) { return s.Job(ctx, id) })
		r.both("attempts of "+id, func(s aviary.Store) (any, error) { return s.Attempts(ctx, id) })
		r.both("transcript of "+id, func(s aviary.Store) (any, error) { return s.Transcript(ctx, id) })
	}
}
