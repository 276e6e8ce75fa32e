package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testCreate(t *testing.T, b Backend) {
	t.Run("every field is kept", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		f := fresh(t, b)
		want := draft(7, bulk)
		want.Tenant, want.RequestKey, want.RequestHash = "Büro 7", "Ä/1", "00ff"
		want.Options.Labels = map[string]string{"Projekt": "Ä/ö \"x\"", "empty": ""}
		want.Audio.Duration = 3600*time.Second + 1001*time.Microsecond
		created := got(f.CreateJob(ctx, want, aviary.QueueLimits{}))(t)
		want.State, want.Version, want.CreatedAt = aviary.StateQueued, 1, f.clock.Now()
		same(t, "created job", created, want)
		same(t, "job read back", f.job(want.ID), want)
		same(t, "attempts of a new job", len(got(f.Attempts(ctx, want.ID))(t)), 0)
	})
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		f := fresh(t, b)
		created := got(f.CreateJob(ctx, aviary.Job{ID: "job_x"}, aviary.QueueLimits{}))(t)
		same(t, "tenant", created.Tenant, aviary.DefaultTenant)
		same(t, "priority", created.Options.Priority, interactive)
		same(t, "attempts allowed", created.MaxAttempts, aviary.DefaultMaxAttempts)
	})
	t.Run("an id is taken once", func(t *testing.T) {
		t.Parallel()
		ctx := t.Context()
		f := fresh(t, b)
		first := f.create(bulk)
		again := draft(f.ids, interactive)
		same(t, "a second job of the same id", kind(second(f.CreateJob(ctx, again, aviary.QueueLimits{}))), string(aviary.CodeStateConflict))
		same(t, "first job", f.job(first.ID), first)
		checkInvariants(t, f.Store)
	})
	t.Run("texts", func(t *testing.T) { t.Parallel(); testTexts(t, b) })
	t.Run("limits", func(t *testing.T) { t.Parallel(); testLimits(t, b) })
	t.Run("unknown ids", func(t *testing.T) { t.Parallel(); testUnknown(t, b) })
	t.Run("a context that has ended", func(t *testing.T) { t.Parallel(); testEndedContext(t, b) })
}

// What a user writes is kept as it is, or refused as a whole.
func testTexts(t *testing.T, b Backend) {
	f := fresh(t, b)
	long := strings.Repeat("ä", 500)
	for name, c := range map[string]struct {
		options aviary.Options
		want    string
	}{
		"everything odd":   {aviary.Options{Name: "\x01\u2028\U0001F600'\"\\$1;--", Labels: map[string]string{"\x7f'\"\\": "\t$1 \u0000x"[:4]}}, ""},
		"the longest":      {aviary.Options{Name: long + long, Labels: map[string]string{long: long}}, ""},
		"a NUL in a name":  {aviary.Options{Name: "a\x00b"}, "option_invalid"},
		"a NUL in a key":   {aviary.Options{Labels: map[string]string{"a\x00": "b"}}, "option_invalid"},
		"a NUL in a value": {aviary.Options{Labels: map[string]string{"a": "\x00"}}, "option_invalid"},
		"no UTF-8":         {aviary.Options{Name: "a\xff"}, "option_invalid"},
		"no UTF-8 label":   {aviary.Options{Labels: map[string]string{"a": "\xc3"}}, "option_invalid"},
		"a longer key":     {aviary.Options{Labels: map[string]string{long + "x": ""}}, "option_invalid"},
		"a longer value":   {aviary.Options{Labels: map[string]string{"x": long + "x"}}, "option_invalid"},
	} {
		job := named(draft(1, bulk), "job_"+strings.ReplaceAll(name, " ", "_"))
		c.options.Priority = bulk
		job.Options = c.options
		_, err := f.CreateJob(t.Context(), job, aviary.QueueLimits{})
		same(t, name, kind(err), c.want)
		if c.want != "" {
			same(t, "row of a refused job", kind(second(f.Job(t.Context(), job.ID))), "not_found")
			continue
		}
		same(t, name, f.job(job.ID).Options, c.options)
		same(t, name+", found by its labels", idsOf(allJobs(t, f.Store, aviary.JobQuery{Limit: 9, Labels: c.options.Labels})), []string{job.ID})
	}
}

func testLimits(t *testing.T, b Backend) {
	ctx := t.Context()
	f := fresh(t, b)
	job := func(n int, audio time.Duration, class aviary.Priority) aviary.Job {
		j := draft(n, class)
		j.Audio.Duration = audio
		return j
	}
	for i, c := range []struct {
		name   string
		job    aviary.Job
		limits aviary.QueueLimits
		want   string
		unit   string
	}{
		{"no limit", job(1, time.Hour, bulk), aviary.QueueLimits{}, "", ""},
		{"up to the limit of jobs", job(2, time.Hour, interactive), aviary.QueueLimits{Jobs: 2}, "", ""},
		{"beyond the limit of jobs", job(3, 0, bulk), aviary.QueueLimits{Jobs: 2}, "queue_full", "jobs"},
		{"up to the limit of audio", job(4, time.Hour, bulk), aviary.QueueLimits{Audio: 3 * time.Hour}, "", ""},
		{"beyond the limit of audio", job(5, time.Microsecond, bulk), aviary.QueueLimits{Audio: 3 * time.Hour}, "queue_full", "seconds"},
		{"beyond both", job(6, time.Hour, bulk), aviary.QueueLimits{Jobs: 3, Audio: time.Hour}, "queue_full", "jobs"},
		{"audio that would overflow a sum", job(7, 1<<63-1, bulk), aviary.QueueLimits{Audio: 1<<63 - 1}, "queue_full", "seconds"},
	} {
		_, err := f.CreateJob(ctx, c.job, c.limits)
		same(t, c.name, kind(err), c.want)
		if c.want == "" {
			continue
		}
		var e *aviary.Error
		if !errors.As(err, &e) || e.Unit != c.unit || e.Limit <= 0 || e.Actual <= e.Limit {
			t.Errorf("%s: %#v does not say which limit was passed", c.name, err)
		}
		_, err = f.Job(ctx, c.job.ID)
		same(t, fmt.Sprintf("row of refused job %d", i), kind(err), "not_found")
	}
	// What runs does not wait: a claim makes room.
	f.start(f.job(draft(1, bulk).ID))
	got(f.CreateJob(ctx, draft(8, bulk), aviary.QueueLimits{Jobs: 3}))(t)
	checkInvariants(t, f.Store)
}

// calls are all calls that name a job.
func calls(s aviary.Store, id string) map[string]func(ctx context.Context) error {
	ref := aviary.AttemptRef{JobID: id, Attempt: 1}
	return map[string]func(ctx context.Context) error{
		"Job":             func(ctx context.Context) error { return second(s.Job(ctx, id)) },
		"Attempts":        func(ctx context.Context) error { return second(s.Attempts(ctx, id)) },
		"Transcript":      func(ctx context.Context) error { return second(s.Transcript(ctx, id)) },
		"Cancel":          func(ctx context.Context) error { return second(s.Cancel(ctx, id)) },
		"Retry":           func(ctx context.Context) error { return second(s.Retry(ctx, id)) },
		"Expire":          func(ctx context.Context) error { return second(s.Expire(ctx, id, false)) },
		"Expire by force": func(ctx context.Context) error { return second(s.Expire(ctx, id, true)) },
		"QueueAhead": func(ctx context.Context) error {
			_, _, err := s.QueueAhead(ctx, aviary.Job{ID: id, Options: aviary.Options{Priority: bulk}})
			return err
		},
		"StartAttempt": func(ctx context.Context) error {
			return second(s.StartAttempt(ctx, aviary.Ticket{JobID: id, Generation: 1}, aviary.Claim{Lease: lease}))
		},
		"Heartbeat":     func(ctx context.Context) error { return second(s.Heartbeat(ctx, ref, aviary.Beat{Lease: lease})) },
		"FinishAttempt": func(ctx context.Context) error { return s.FinishAttempt(ctx, ref, transcript(1)) },
		"FailAttempt": func(ctx context.Context) error {
			return second(s.FailAttempt(ctx, ref, aviary.Failure{Problem: broken, Retry: true}))
		},
		"ReleaseAttempt": func(ctx context.Context) error { return s.ReleaseAttempt(ctx, ref) },
		"CancelAttempt":  func(ctx context.Context) error { return s.CancelAttempt(ctx, ref) },
	}
}

func testUnknown(t *testing.T, b Backend) {
	f := fresh(t, b)
	f.create(bulk)
	for _, id := range []string{"job_nobody", "", "job_\x00", "job_\xff", strings.Repeat("x", 10_000), "' OR 1=1 --"} {
		for name, call := range calls(f.Store, id) {
			same(t, fmt.Sprintf("%s of %.20q", name, id), kind(call(t.Context())), "not_found")
		}
	}
	// A ticket that cannot be taken back needs no taking back.
	f.must(f.Undispatch(t.Context(), aviary.Ticket{JobID: "job_nobody", Generation: 1}))
}

func testEndedContext(t *testing.T, b Backend) {
	f := fresh(t, b)
	job, _ := f.start(f.create(bulk))
	over := ended(t)
	every := calls(f.Store, job.ID)
	every["CreateJob"] = func(ctx context.Context) error {
		return second(f.CreateJob(ctx, draft(99, bulk), aviary.QueueLimits{}))
	}
	every["Jobs"] = func(ctx context.Context) error { return second(f.Jobs(ctx, aviary.JobQuery{Limit: 1})) }
	every["Backlog"] = func(ctx context.Context) error { return second(f.Backlog(ctx)) }
	every["Dispatch"] = func(ctx context.Context) error { return second(f.Dispatch(ctx, []string{job.ID})) }
	every["Waiting"] = func(ctx context.Context) error { return second(f.Waiting(ctx, bulk, 1)) }
	every["Lead"] = func(ctx context.Context) error { return second(f.Lead(ctx, "a", time.Minute)) }
	every["Resign"] = func(ctx context.Context) error { return f.Resign(ctx, "a") }
	every["Processed"] = func(ctx context.Context) error { return second(f.Processed(ctx)) }
	every["Requested"] = func(ctx context.Context) error { return second(f.Requested(ctx, "a", "b")) }
	every["TakeOver"] = func(ctx context.Context) error {
		return second(f.TakeOver(ctx, aviary.Claim{Worker: "v", Node: claim.Node, Device: claim.Device}))
	}
	every["ReapOverdue"] = func(ctx context.Context) error { return second(f.ReapOverdue(ctx, -2*runLimit, 1)) }
	every["ExpireOld"] = func(ctx context.Context) error { return second(f.ExpireOld(ctx, 0, 1)) }
	every["DropAudio"] = func(ctx context.Context) error { return second(f.DropAudio(ctx, 0, 1)) }
	every["DropTombstones"] = func(ctx context.Context) error { return second(f.DropTombstones(ctx, 0, 1)) }
	every["Unwanted"] = func(ctx context.Context) error { return second(f.Unwanted(ctx, []string{job.ID})) }
	every["Recount"] = func(ctx context.Context) error { return second(f.Recount(ctx)) }
	every["ReapLost"] = func(ctx context.Context) error { return second(f.ReapLost(ctx, 1)) }
	for name, call := range every {
		if err := call(over); !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a context that has ended: %v", name, err)
		}
	}
	same(t, "the job after all that", f.job(job.ID), job)
	same(t, "jobs after all that", len(allJobs(t, f.Store, aviary.JobQuery{Limit: 200})), 1)
}

// ended is a context that has been canceled.
func ended(t testing.TB) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
