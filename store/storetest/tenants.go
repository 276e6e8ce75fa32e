package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testTenants(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"what waits of each":        testWaiting,
		"what is handed over":       testDispatchIDs,
		"many that come and go":     testPassingTenants,
		"request keys":              testRequestKeys,
		"request keys of the dead":  testRequestKeysExpire,
		"quotas":                    testQuotas,
		"quotas count what is open": testQuotasOpen,
		"what has been processed":   testProcessed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f)
			checkInvariants(t, f.Store)
		})
	}
}

// createFor queues a job of a tenant.
func (f *fixture) createFor(tenant string, class aviary.Priority) aviary.Job {
	f.Helper()
	f.ids++
	job := draft(f.ids, class)
	job.Tenant = tenant
	return got(f.CreateJob(f.Context(), job, aviary.QueueLimits{}))(f)
}

// waitingIDs is what waits, as "tenant: job job, tenant: job".
func (f *fixture) waitingIDs(class aviary.Priority, perTenant int) string {
	f.Helper()
	var s strings.Builder
	last := ""
	for _, c := range got(f.Waiting(f.Context(), class, perTenant))(f) {
		if c.Tenant != last {
			fmt.Fprintf(&s, ", %s:", c.Tenant)
			last = c.Tenant
		}
		fmt.Fprintf(&s, " %s", strings.TrimLeft(c.JobID, "job_0"))
	}
	return strings.TrimPrefix(s.String(), ", ")
}

func testWaiting(t *testing.T, f *fixture) {
	ctx := t.Context()
	same(t, "an empty store", f.waitingIDs(bulk, 9), "")
	for n := range 9 { // 1, 4, 7 of Ä; 2, 5, 8 of a; 3, 6, 9 of b
		f.createFor([]string{"Ä", "a", "b"}[n%3], bulk)
		if n%2 == 1 {
			f.clock.Advance(time.Second)
		}
	}
	f.createFor("a", interactive)
	same(t, "all", f.waitingIDs(bulk, 9), "a: 2 5 8, b: 3 6 9, Ä: 1 4 7")
	same(t, "two of each", f.waitingIDs(bulk, 2), "a: 2 5, b: 3 6, Ä: 1 4")
	same(t, "none of each", f.waitingIDs(bulk, 0), "")
	same(t, "the other class", f.waitingIDs(interactive, 1), "a: 10")
	list := got(f.Waiting(ctx, interactive, 1))(t)
	same(t, "a candidate", list, []aviary.Candidate{{JobID: draft(10, bulk).ID, Tenant: "a", Audio: 10 * time.Second}})

	for _, n := range []int{3, 6, 9} { // all of b, in each way there is not to wait
		id := draft(n, bulk).ID
		switch n {
		case 3:
			got(f.Cancel(ctx, id))(t)
		case 6:
			got(f.Dispatch(ctx, []string{id}))(t)
		case 9:
			ticket := got(f.Dispatch(ctx, []string{id}))(t)[0]
			job := got(f.StartAttempt(ctx, ticket, claim))(t)
			f.must(second(f.FailAttempt(ctx, aviary.AttemptRef{JobID: id, Attempt: job.Attempt}, aviary.Failure{Problem: broken, Retry: true, Delay: time.Minute})))
		}
	}
	same(t, "when one tenant has nothing", f.waitingIDs(bulk, 1), "a: 2, Ä: 1")
	f.clock.Advance(time.Minute - time.Microsecond)
	same(t, "just before the end of a delay", f.waitingIDs(bulk, 1), "a: 2, Ä: 1")
	f.clock.Advance(time.Microsecond)
	same(t, "at the end of a delay", f.waitingIDs(bulk, 1), "a: 2, b: 9, Ä: 1")
}

func testDispatchIDs(t *testing.T, f *fixture) {
	ctx := t.Context()
	var all []aviary.Job
	var ids []string
	for n := range 250 { // more than one statement names
		all = append(all, f.createFor(fmt.Sprint(n%7), aviary.Priorities()[n%2]))
		ids = append(ids, all[n].ID)
	}
	same(t, "no ids", len(got(f.Dispatch(ctx, nil))(t)), 0)
	same(t, "ids of nobody", len(got(f.Dispatch(ctx, []string{"", "job_nobody", "a\x00", "\xff"}))(t)), 0)
	got(f.Cancel(ctx, ids[3]))(t)
	same(t, "in the order of the ids, without the canceled one and the doubles",
		got(f.Dispatch(ctx, []string{ids[5], ids[3], ids[4], ids[5], "job_nobody", ids[2]}))(t), tickets(all[5], all[4], all[2]))
	same(t, "once more, with another one", got(f.Dispatch(ctx, []string{ids[5], ids[1], ids[4]}))(t), tickets(all[1]))
	rest := got(f.Dispatch(ctx, reversed(ids)))(t)
	same(t, "tickets of the rest", len(rest), len(all)-5)
	same(t, "the first of the rest", rest[0], tickets(all[249])[0])
	same(t, "the last of the rest", rest[len(rest)-1], tickets(all[0])[0])
	same(t, "another ticket for one whose ticket is out", len(got(f.Dispatch(ctx, ids))(t)), 0)
}

// Tenants without work leave nothing that anybody would have to step over: what waits is found among those that have work.
func testPassingTenants(t *testing.T, f *fixture) {
	ctx := t.Context()
	for n := range 60 {
		job := f.createFor(fmt.Sprint("passing ", n), bulk)
		switch n % 3 {
		case 0:
			got(f.Cancel(ctx, job.ID))(t)
		case 1:
			_, ref := f.start(job)
			f.must(f.FinishAttempt(ctx, ref, transcript(n)))
		case 2:
			got(f.Expire(ctx, job.ID, true))(t)
		}
	}
	f.createFor("here", bulk)
	same(t, "what waits", f.waitingIDs(bulk, 5), "here: 61")
}

func testRequestKeys(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := draft(1, bulk)
	job.Tenant, job.RequestKey, job.RequestHash = "a", "Schlüssel 1", "hash of it all"
	same(t, "before", kind(second(f.Requested(ctx, "a", job.RequestKey))), "not_found")
	created := got(f.CreateJob(ctx, job, aviary.QueueLimits{}))(t)
	same(t, "key and hash", [2]string{created.RequestKey, created.RequestHash}, [2]string{job.RequestKey, job.RequestHash})
	same(t, "the job of the key", got(f.Requested(ctx, "a", job.RequestKey))(t), created)
	for _, none := range [][2]string{{"b", job.RequestKey}, {"a", ""}, {"a", "Schlüssel"}, {"a", "\x00"}, {"\xff", job.RequestKey}, {"", ""}} {
		same(t, fmt.Sprintf("%q", none), kind(second(f.Requested(ctx, none[0], none[1]))), "not_found")
	}
	again := draft(2, interactive)
	again.Tenant, again.RequestKey = "a", job.RequestKey
	full := aviary.QueueLimits{Jobs: 1, TenantJobs: 1}
	same(t, "the same key, even when there is no room", kind(second(f.CreateJob(ctx, again, full))), "taken")
	same(t, "row of the refused job", kind(second(f.Job(ctx, again.ID))), "not_found")
	again.Tenant = "b"
	got(f.CreateJob(ctx, again, aviary.QueueLimits{}))(t)
	same(t, "another tenant's job of the same key", got(f.Requested(ctx, "b", job.RequestKey))(t).ID, again.ID)
	for n := 3; n < 5; n++ { // no key is no key
		got(f.CreateJob(ctx, draft(n, bulk), aviary.QueueLimits{}))(t)
	}
	for what, key := range map[string]string{"a NUL": "a\x00", "no UTF-8": "\xff", "too long": strings.Repeat("x", 1001)} {
		bad := draft(9, bulk)
		bad.RequestKey = key
		same(t, what+" in a key", kind(second(f.CreateJob(ctx, bad, aviary.QueueLimits{}))), "option_invalid")
		bad.RequestKey, bad.Tenant = "", key
		same(t, what+" in a tenant", kind(second(f.CreateJob(ctx, bad, aviary.QueueLimits{}))), "option_invalid")
	}
	long := draft(9, bulk)
	long.RequestKey, long.Tenant = strings.Repeat("ä", 500), strings.Repeat("ö", 500)
	got(f.CreateJob(ctx, long, aviary.QueueLimits{}))(t)
	same(t, "the longest", got(f.Requested(ctx, long.Tenant, long.RequestKey))(t).ID, long.ID)
}

// A key is free again when the tombstone of its job is gone, and not before.
func testRequestKeysExpire(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := draft(1, bulk)
	job.RequestKey = "key"
	got(f.CreateJob(ctx, job, aviary.QueueLimits{}))(t)
	got(f.Expire(ctx, job.ID, true))(t)
	same(t, "a deleted job's key", got(f.Requested(ctx, job.Tenant, "key"))(t).State, aviary.StateExpired)
	next := draft(2, bulk)
	next.RequestKey = "key"
	same(t, "using it", kind(second(f.CreateJob(ctx, next, aviary.QueueLimits{}))), "taken")
	same(t, "tombstones", got(f.DropTombstones(ctx, 0, 9))(t), 1)
	same(t, "after that", kind(second(f.Requested(ctx, job.Tenant, "key"))), "not_found")
	got(f.CreateJob(ctx, next, aviary.QueueLimits{}))(t)
}

func testQuotas(t *testing.T, f *fixture) {
	ctx := t.Context()
	job := func(n int, tenant string, audio time.Duration) aviary.Job {
		j := draft(n, aviary.Priorities()[n%2])
		j.Tenant, j.Audio.Duration = tenant, audio
		return j
	}
	for _, c := range []struct {
		name   string
		job    aviary.Job
		limits aviary.QueueLimits
		want   string
		unit   string
	}{
		{"no limit", job(1, "a", time.Hour), aviary.QueueLimits{}, "", ""},
		{"up to the limit of jobs", job(2, "a", time.Hour), aviary.QueueLimits{TenantJobs: 2}, "", ""},
		{"beyond the limit of jobs", job(3, "a", 0), aviary.QueueLimits{TenantJobs: 2}, "quota_exceeded", "jobs"},
		{"another tenant", job(4, "b", time.Hour), aviary.QueueLimits{TenantJobs: 2}, "", ""},
		{"up to the limit of audio", job(5, "a", time.Hour), aviary.QueueLimits{TenantAudio: 3 * time.Hour}, "", ""},
		{"beyond the limit of audio", job(6, "a", time.Microsecond), aviary.QueueLimits{TenantAudio: 3 * time.Hour}, "quota_exceeded", "seconds"},
		{"audio that would overflow a sum", job(7, "a", 1<<63-1), aviary.QueueLimits{TenantAudio: 1<<63 - 1}, "quota_exceeded", "seconds"},
		{"beyond the limits of all too", job(8, "a", 0), aviary.QueueLimits{Jobs: 4, TenantJobs: 1}, "queue_full", "jobs"},
		{"within those of all", job(9, "a", 0), aviary.QueueLimits{Jobs: 5, TenantJobs: 3}, "quota_exceeded", "jobs"},
		{"within both", job(10, "a", 0), aviary.QueueLimits{Jobs: 5, TenantJobs: 4}, "", ""},
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
		same(t, "row of the refused job", kind(second(f.Job(ctx, c.job.ID))), "not_found")
	}
}

// What runs is open too, until it ends in one way or another.
func testQuotasOpen(t *testing.T, f *fixture) {
	ctx := t.Context()
	limits := aviary.QueueLimits{TenantJobs: 1}
	refused := func(when string) {
		t.Helper()
		open := got(f.TenantOpen(ctx, aviary.DefaultTenant))(t)
		same(t, when, open.Jobs, 1)
		f.ids++
		same(t, when, kind(second(f.CreateJob(ctx, draft(f.ids, bulk), limits))), "quota_exceeded")
	}
	for n := range 5 {
		f.ids++
		job := got(f.CreateJob(ctx, draft(f.ids, aviary.Priorities()[n%2]), limits))(t)
		refused("while one waits")
		_, ref := f.start(job)
		refused("while one runs")
		switch n {
		case 0:
			f.must(f.FinishAttempt(ctx, ref, transcript(1)))
		case 1:
			f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{Problem: broken})))
			got(f.Retry(ctx, job.ID))(t)
			refused("when it waits again")
			got(f.Cancel(ctx, job.ID))(t)
		case 2:
			f.must(f.ReleaseAttempt(ctx, ref))
			refused("when it was given back")
			got(f.Expire(ctx, job.ID, true))(t)
		case 3:
			got(f.Expire(ctx, job.ID, true))(t)
		case 4:
			got(f.Cancel(ctx, job.ID))(t)
			refused("while it is to stop")
			f.must(f.CancelAttempt(ctx, ref))
		}
		same(t, "nothing is open", got(f.TenantOpen(ctx, aviary.DefaultTenant))(t), aviary.Amount{})
	}
	same(t, "of nobody", got(f.TenantOpen(ctx, "no\x00body"))(t), aviary.Amount{})
	f.ids++
	got(f.CreateJob(ctx, draft(f.ids, bulk), limits))(t)
}

func testProcessed(t *testing.T, f *fixture) {
	ctx := t.Context()
	check := func(what string, jobs, seconds int) {
		t.Helper()
		same(t, what, got(f.Processed(ctx))(t), aviary.Totals{Amount: aviary.Amount{Jobs: jobs, Audio: time.Duration(seconds) * time.Second}})
	}
	before := got(f.Processed(ctx))(t)
	same(t, "an empty store", before, aviary.Totals{})
	var jobs []aviary.Job
	for n := range 4 { // of 1, 2, 3, 4 seconds
		job, ref := f.start(f.createFor(fmt.Sprint(n), bulk))
		jobs = append(jobs, job)
		switch n {
		case 0, 2, 3:
			f.must(f.FinishAttempt(ctx, ref, transcript(1)))
			f.must(f.FinishAttempt(ctx, ref, transcript(1))) // counts once
		case 1:
			f.must(second(f.FailAttempt(ctx, ref, aviary.Failure{Problem: broken})))
		}
	}
	check("three that succeeded", 3, 8)
	got(f.Expire(ctx, jobs[0].ID, false))(t)
	got(f.Expire(ctx, jobs[1].ID, false))(t)
	check("one expired", 3, 8)
	got(f.DropTombstones(ctx, 0, 9))(t)
	check("one gone", 3, 8)
}
