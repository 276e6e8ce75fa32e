package storetest

import (
	"testing"

	"github.com/aviary-asr/aviary"
)

// allJobs reads every job, page by page.
func allJobs(t testing.TB, s aviary.Store, q aviary.JobQuery) []aviary.Job {
	t.Helper()
	var list []aviary.Job
	for q.Limit = max(q.Limit, 1); ; {
		page := got(s.Jobs(t.Context(), q))(t)
		list = append(list, page.Jobs...)
		if page.Next == "" {
			return list
		}
		q.After = page.Next
	}
}

// checkInvariants holds a store that nobody writes to against what must be true of it at all times: the counters equal a recount of the jobs, a job
// has an attempt under way exactly while it runs, attempts are numbered without gaps and do not overlap, and a job has a transcript exactly
// when it succeeded.
func checkInvariants(t testing.TB, s aviary.Store) {
	t.Helper()
	ctx := t.Context()
	jobs := allJobs(t, s, aviary.JobQuery{Limit: 200})
	backlog := got(s.Backlog(ctx))(t)
	states := map[aviary.State]int{}
	waiting := map[aviary.Priority]aviary.Amount{}
	var running aviary.Amount
	for _, j := range jobs {
		states[j.State]++
		switch j.State {
		case aviary.StateQueued:
			w := waiting[j.Options.Priority]
			waiting[j.Options.Priority] = aviary.Amount{Jobs: w.Jobs + 1, Audio: w.Audio + j.Audio.Duration}
		case aviary.StateRunning:
			running.Jobs++
			running.Audio += j.Audio.Duration
		default: // neither waits nor runs
		}
	}
	for _, state := range aviary.States() {
		same(t, "counted jobs that are "+string(state), backlog.States[state], states[state])
	}
	for _, class := range aviary.Priorities() {
		same(t, "counted backlog of "+string(class), backlog.Classes[class].Amount, waiting[class])
	}
	same(t, "counted running jobs", backlog.Running, running)
	same(t, "drift of the counters, of tenants too", got(s.Recount(ctx))(t), []string(nil))
	for _, j := range jobs {
		checkJob(t, s, j)
	}
}

func checkJob(t testing.TB, s aviary.Store, j aviary.Job) {
	t.Helper()
	ctx := t.Context()
	attempts := got(s.Attempts(ctx, j.ID))(t)
	if len(attempts) != j.Attempt {
		t.Fatalf("job %s is at attempt %d, but %d are recorded", j.ID, j.Attempt, len(attempts))
	}
	lost := 0
	for i, a := range attempts {
		if a.Outcome == aviary.OutcomeLost {
			lost++
		}
		if a.Attempt != i+1 {
			t.Fatalf("attempt %d of %s is recorded in place %d", a.Attempt, j.ID, i+1)
		}
		underWay := j.State == aviary.StateRunning && i == len(attempts)-1
		if a.EndedAt.IsZero() != underWay || (a.Outcome == "") != underWay {
			t.Fatalf("job %s is %s; its attempt %d of %d: %+v", j.ID, j.State, a.Attempt, len(attempts), a)
		}
		if i > 0 && a.StartedAt.Before(attempts[i-1].EndedAt) {
			t.Fatalf("attempts of %s overlap: %+v", j.ID, attempts)
		}
	}
	if lost != j.Lost {
		t.Fatalf("job %s has lost %d workers, but of its attempts %d were", j.ID, j.Lost, lost)
	}
	succeeded := len(attempts) > 0 && attempts[len(attempts)-1].Outcome == aviary.OutcomeSucceeded
	_, err := s.Transcript(ctx, j.ID)
	switch j.State {
	case aviary.StateSucceeded:
		if err != nil || !succeeded {
			t.Fatalf("job %s succeeded; its transcript: %v, its last attempt succeeded: %v", j.ID, err, succeeded)
		}
	case aviary.StateExpired:
		same(t, "the transcript of a deleted job", kind(err), string(aviary.CodeJobExpired))
	default:
		same(t, "the transcript of a "+string(j.State)+" job", kind(err), string(aviary.CodeTranscriptNotReady))
	}
}
