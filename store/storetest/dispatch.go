package storetest

import (
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testDispatch(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"oldest first, by class":        testDispatchOrder,
		"a delayed job keeps its place": testDispatchDelayed,
		"a ticket that was taken back":  testUndispatch,
		"stranded tickets":              testStranded,
		"a wiped queue":                 testWipe,
		"the place in the queue":        testQueueAhead,
		"the backlog":                   testBacklog,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f)
			checkInvariants(t, f.Store)
		})
	}
}

// tickets of a list of jobs, at their next generation.
func tickets(jobs ...aviary.Job) []aviary.Ticket {
	var list []aviary.Ticket
	for _, j := range jobs {
		list = append(list, aviary.Ticket{JobID: j.ID, Generation: j.Generation + 1, Priority: j.Options.Priority})
	}
	return list
}

func testDispatchOrder(t *testing.T, f *fixture) {
	ctx := t.Context()
	var b, i []aviary.Job
	for n := range 6 {
		b = append(b, f.create(bulk))
		i = append(i, f.create(interactive))
		if n%2 == 1 { // ties in the time of creation
			f.clock.Advance(time.Second)
		}
	}
	same(t, "the first bulk jobs", got(handOver(ctx, f.Store, bulk, 4))(t), tickets(b[:4]...))
	same(t, "the other bulk jobs", got(handOver(ctx, f.Store, bulk, 4))(t), tickets(b[4:]...))
	same(t, "no bulk job", len(got(handOver(ctx, f.Store, bulk, 4))(t)), 0)
	same(t, "no interactive job, by limit", len(got(handOver(ctx, f.Store, interactive, 0))(t)), 0)
	same(t, "interactive jobs", got(handOver(ctx, f.Store, interactive, 99))(t), tickets(i...))
	same(t, "tickets out", got(f.Dispatched(ctx, bulk))(t), 6)
}

func testDispatchDelayed(t *testing.T, f *fixture) {
	ctx := t.Context()
	first, second := f.create(bulk), f.create(bulk)
	_, ref := f.start(first)
	f.must(f.Undispatch(ctx, aviary.Ticket{JobID: second.ID, Generation: 1, Priority: bulk})) // start handed over both
	same(t, "what became of it", got(f.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true, Delay: time.Minute}))(t), aviary.StateQueued)
	third := f.create(bulk)
	second = f.job(second.ID)
	same(t, "while the first is delayed", got(handOver(ctx, f.Store, bulk, 1))(t), tickets(second))
	f.clock.Advance(time.Minute - time.Microsecond)
	same(t, "the first by its id, too early", len(got(f.Dispatch(ctx, []string{first.ID}))(t)), 0)
	f.clock.Advance(time.Microsecond)
	ticket := got(f.Dispatch(ctx, []string{first.ID}))(t)
	same(t, "the first by its id, without a look at what waits", ticket, tickets(at(first, 1)))
	f.must(f.Undispatch(ctx, ticket[0]))
	same(t, "the first before the third", got(handOver(ctx, f.Store, bulk, 9))(t), tickets(at(first, 2), third))
}

func testUndispatch(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := f.create(bulk)
	old := f.dispatch(job)
	f.must(f.Undispatch(ctx, old))
	f.must(f.Undispatch(ctx, old)) // twice is harmless
	_, err := f.StartAttempt(ctx, old, claim)
	same(t, "a claim with it", kind(err), "unclaimable")
	ticket := f.dispatch(job)
	same(t, "the next ticket", ticket.Generation, old.Generation+1)
	f.must(f.Undispatch(ctx, old)) // is not about the new one
	same(t, "tickets out", got(f.Dispatched(ctx, bulk))(t), 1)
	_, err = f.StartAttempt(ctx, old, claim)
	same(t, "a claim with the old ticket", kind(err), "unclaimable")
	got(f.StartAttempt(ctx, ticket, claim))(t)
	f.must(f.Undispatch(ctx, ticket)) // has been used
	same(t, "state", f.job(job.ID).State, aviary.StateRunning)
}

func testStranded(t *testing.T, f *fixture) {
	ctx := t.Context()
	a, b, c := f.create(bulk), f.create(interactive), f.create(bulk)
	ticketA := got(handOver(ctx, f.Store, bulk, 1))(t)
	f.clock.Advance(time.Second)
	ticketB := got(handOver(ctx, f.Store, interactive, 1))(t)
	f.clock.Advance(time.Second)
	ticketC := got(handOver(ctx, f.Store, bulk, 1))(t)
	same(t, "tickets", [][]aviary.Ticket{ticketA, ticketB, ticketC}, [][]aviary.Ticket{tickets(a), tickets(b), tickets(c)})
	same(t, "none is as old", len(got(f.Stranded(ctx, 2*time.Second+1, 9))(t)), 0)
	same(t, "one is", got(f.Stranded(ctx, 2*time.Second, 9))(t), ticketA)
	same(t, "all are, but for the limit", got(f.Stranded(ctx, 0, 2))(t), append(ticketA, ticketB...))
	got(f.StartAttempt(ctx, ticketA[0], aviary.Claim{Lease: lease}))(t)
	got(f.Cancel(ctx, b.ID))(t)
	same(t, "neither claimed nor canceled ones", got(f.Stranded(ctx, 0, 9))(t), ticketC)
}

func testWipe(t *testing.T, f *fixture) {
	ctx := t.Context()
	a, b := f.create(bulk), f.create(interactive)
	running, _ := f.start(f.create(interactive)) // hands over b too
	f.dispatch(a)
	same(t, "tickets taken back", got(f.UndispatchAll(ctx))(t), 2)
	same(t, "once more", got(f.UndispatchAll(ctx))(t), 0)
	same(t, "the running job", f.job(running.ID), running)
	same(t, "handed over again", got(handOver(ctx, f.Store, bulk, 9))(t), tickets(at(a, 1)))
	same(t, "handed over again", got(handOver(ctx, f.Store, interactive, 9))(t), tickets(at(b, 1)))
}

func testQueueAhead(t *testing.T, f *fixture) {
	ctx := t.Context()
	ahead := func(j aviary.Job) aviary.Amount {
		t.Helper()
		jobs, audio, err := f.QueueAhead(ctx, j)
		f.must(err)
		return aviary.Amount{Jobs: jobs, Audio: audio}
	}
	seconds := func(jobs, s int) aviary.Amount {
		return aviary.Amount{Jobs: jobs, Audio: time.Duration(s) * time.Second}
	}
	one, two, three, four := f.create(bulk), f.create(interactive), f.create(bulk), f.create(interactive) // of 1, 2, 3, 4 seconds
	f.clock.Advance(time.Second)
	five := f.create(bulk)
	same(t, "first interactive job", ahead(two), seconds(0, 0))
	same(t, "second interactive job", ahead(four), seconds(1, 2))
	same(t, "first bulk job", ahead(one), seconds(2, 6))
	same(t, "second bulk job", ahead(three), seconds(3, 7))
	same(t, "third bulk job", ahead(five), seconds(4, 10))
	_, ref := f.start(one) // the others are handed over and still wait
	same(t, "third bulk job when the first runs", ahead(five), seconds(3, 9))
	same(t, "the first, which runs", ahead(one), seconds(0, 0))
	f.must(f.ReleaseAttempt(ctx, ref))
	same(t, "third bulk job when the first is back", ahead(five), seconds(4, 10))
	got(f.Cancel(ctx, two.ID))(t)
	same(t, "third bulk job when an interactive one is canceled", ahead(five), seconds(3, 8))
}

func testBacklog(t *testing.T, f *fixture) {
	ctx := t.Context()
	empty := got(f.Backlog(ctx))(t)
	same(t, "classes of an empty store", len(empty.Classes), 2)
	same(t, "states of an empty store", len(empty.States), len(aviary.States()))
	f.create(bulk)
	f.clock.Advance(time.Minute)
	job := f.create(interactive)
	f.clock.Advance(time.Second)
	b := got(f.Backlog(ctx))(t)
	same(t, "bulk", b.Classes[bulk], aviary.ClassBacklog{Amount: aviary.Amount{Jobs: 1, Audio: time.Second}, Oldest: 61 * time.Second})
	same(t, "interactive", b.Classes[interactive], aviary.ClassBacklog{Amount: aviary.Amount{Jobs: 1, Audio: 2 * time.Second}, Oldest: time.Second})
	same(t, "oldest", b.Oldest, 61*time.Second)
	f.start(job)
	b = got(f.Backlog(ctx))(t)
	same(t, "running", b.Running, aviary.Amount{Jobs: 1, Audio: 2 * time.Second})
	same(t, "interactive", b.Classes[interactive], aviary.ClassBacklog{})
	same(t, "oldest", b.Oldest, 61*time.Second)
}

// at is a job at a later generation.
func at(j aviary.Job, generation int) aviary.Job {
	j.Generation = generation
	return j
}
