package storetest

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// raceQuota has two tenants fill what each may have open, at once.
func raceQuota(t *testing.T, f *fixture, two [2]aviary.Store) {
	for name, limits := range map[string]aviary.QueueLimits{
		"jobs":  {TenantJobs: 5},
		"audio": {TenantAudio: 5 * time.Second},
		"both":  {Jobs: 1000, TenantJobs: 5, TenantAudio: time.Hour},
	} {
		won, refused := together(24, func(n int) error {
			job := named(draft(1, bulk), fmt.Sprintf("job_%s_%d", name, n))
			job.Tenant = fmt.Sprint(name, n%2)
			return second(two[n/2%2].CreateJob(t.Context(), job, limits))
		})
		same(t, "jobs accepted, "+name, won, 2*5)
		same(t, "jobs refused, "+name, refused, map[string]int{"quota_exceeded": 14})
	}
	for tenant, n := range countTenants(t, f) {
		same(t, "jobs of tenant "+tenant, n, 5)
	}
}

func countTenants(t *testing.T, f *fixture) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for _, j := range allJobs(t, f.Store, aviary.JobQuery{Limit: 200}) {
		counts[j.Tenant]++
	}
	return counts
}

// raceRequest sends one request many times at once, with room for one job only: exactly one job comes of it, and all others hear of the key.
func raceRequest(t *testing.T, f *fixture, two [2]aviary.Store) {
	for round, limits := range []aviary.QueueLimits{{}, {Jobs: 2}, {TenantJobs: 1}, {Jobs: 10_000, TenantJobs: 10_000}} {
		tenant := fmt.Sprint(round)
		var id atomic.Value
		won, refused := together(16, func(n int) error {
			job := draft(100*round+n, bulk)
			job.Tenant, job.RequestKey, job.RequestHash = tenant, "key", "hash"
			created, err := two[n%2].CreateJob(t.Context(), job, limits)
			if err == nil {
				id.Store(created.ID)
			}
			return err
		})
		same(t, fmt.Sprintf("jobs accepted within %+v", limits), won, 1)
		same(t, fmt.Sprintf("jobs refused within %+v", limits), refused, map[string]int{"taken": 15})
		same(t, "the job of the key", got(f.Requested(t.Context(), tenant, "key"))(t).ID, id.Load())
		same(t, "jobs of the tenant", countTenants(t, f)[tenant], 1)
	}
}

// raceLead has several want to lead at once: one does, until its term ends, and then again one.
func raceLead(t *testing.T, f *fixture, two [2]aviary.Store) {
	for range 5 {
		var leaders atomic.Int64
		won, refused := together(8, func(n int) error {
			leads, err := two[n%2].Lead(t.Context(), fmt.Sprint(n), time.Minute)
			if leads {
				leaders.Add(1)
			}
			return err
		})
		same(t, "calls", won, 8)
		same(t, "calls that failed", refused, map[string]int{})
		same(t, "leaders", leaders.Load(), int64(1))
		f.clock.Advance(time.Minute)
	}
}
