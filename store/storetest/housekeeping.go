package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

func testHousekeeping(t *testing.T, b Backend) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"old jobs expire":         testExpireOld,
		"old audio is dropped":    testDropAudio,
		"tombstones go":           testDropTombstones,
		"more than a page":        testForgetMany,
		"which blobs are wanted":  testUnwanted,
		"blobs that are not ours": testForeignKeys,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := fresh(t, b)
			test(t, f)
			checkInvariants(t, f.Store)
		})
	}
}

// endInTurn makes a job of each final state, a second apart, and some that are not final.
func (f *fixture) endInTurn() (final []aviary.Job) {
	f.Helper()
	for _, stage := range []string{waiting, succeeded, failed, running, canceled, delayed} {
		a := arrange(f, stage)
		if job := f.job(a.id); job.State.Final() {
			final = append(final, job)
		}
		f.clock.Advance(time.Second)
	}
	return final // that ended 5, 4 and 2 seconds ago
}

func testExpireOld(t *testing.T, f *fixture) {
	ctx := t.Context()
	jobs := f.endInTurn()
	age := f.clock.Now().Sub(jobs[0].FinishedAt)
	same(t, "none is as old", len(got(f.ExpireOld(ctx, age+1000, 9))(t)), 0)
	same(t, "no more than none", len(got(f.ExpireOld(ctx, 0, 0))(t)), 0)
	same(t, "the oldest, as it was", got(f.ExpireOld(ctx, age, 9))(t), jobs[:1])
	same(t, "its state", f.job(jobs[0].ID).State, aviary.StateExpired)
	same(t, "its transcript", kind(second(f.Transcript(ctx, jobs[0].ID))), "job_expired")
	same(t, "its audio", f.job(jobs[0].ID).AudioGone, true)
	same(t, "when it ended", f.job(jobs[0].ID).FinishedAt, jobs[0].FinishedAt)
	same(t, "the next, by limit", got(f.ExpireOld(ctx, 0, 1))(t), jobs[1:2])
	same(t, "the last", got(f.ExpireOld(ctx, 0, 9))(t), jobs[2:])
	same(t, "nothing", len(got(f.ExpireOld(ctx, 0, 9))(t)), 0)
}

func testDropAudio(t *testing.T, f *fixture) {
	ctx := t.Context()
	jobs := f.endInTurn()
	age := f.clock.Now().Sub(jobs[0].FinishedAt)
	same(t, "none is as old", len(got(f.DropAudio(ctx, age+1000, 9))(t)), 0)
	want := jobs[0]
	want.AudioGone, want.Version = true, want.Version+1
	same(t, "the oldest", got(f.DropAudio(ctx, age, 9))(t), []aviary.Job{want})
	same(t, "the oldest read back", f.job(want.ID), want)
	got(f.Transcript(ctx, want.ID))(t) // is still there
	same(t, "the next", idsOf(got(f.DropAudio(ctx, 0, 1))(t)), idsOf(jobs[1:2]))
	same(t, "a job that was dropped is not dropped again", idsOf(got(f.DropAudio(ctx, 0, 9))(t)), idsOf(jobs[2:]))
	same(t, "nothing", len(got(f.DropAudio(ctx, 0, 9))(t)), 0)
	for i, want := range []string{"state_conflict", "job_expired", "job_expired"} {
		same(t, "retrying the "+string(jobs[i].State)+" one", kind(second(f.Retry(ctx, jobs[i].ID))), want)
	}
	same(t, "expiring it then", len(got(f.ExpireOld(ctx, 0, 9))(t)), 3)
}

func testDropTombstones(t *testing.T, f *fixture) {
	ctx := t.Context()
	labeled := draft(90, bulk)
	labeled.Options.Labels = map[string]string{"a": "b"}
	got(f.CreateJob(ctx, labeled, aviary.QueueLimits{}))(t)
	got(f.Cancel(ctx, labeled.ID))(t)
	jobs := append([]aviary.Job{f.job(labeled.ID)}, f.endInTurn()...)
	f.clock.Advance(time.Hour) // which is not the age of a tombstone
	got(f.Expire(ctx, jobs[1].ID, false))(t)
	f.clock.Advance(time.Minute)
	got(f.Expire(ctx, jobs[0].ID, false))(t)
	same(t, "none has been expired for as long", got(f.DropTombstones(ctx, time.Minute+time.Microsecond, 9))(t), 0)
	same(t, "no more than none", got(f.DropTombstones(ctx, 0, 0))(t), 0)
	same(t, "the first to have expired", got(f.DropTombstones(ctx, time.Minute, 9))(t), 1)
	for name, call := range calls(f.Store, jobs[1].ID) {
		same(t, name+" of a job that is no more", kind(call(ctx)), "not_found")
	}
	same(t, "the one that expired later", f.job(jobs[0].ID).State, aviary.StateExpired)
	same(t, "it goes by itself", got(f.DropTombstones(ctx, 0, 9))(t), 1)
	same(t, "jobs of its label", len(allJobs(t, f.Store, aviary.JobQuery{Limit: 9, Labels: labeled.Options.Labels})), 0)
	same(t, "jobs that were not expired", f.job(jobs[2].ID), jobs[2])
}

func testForgetMany(t *testing.T, f *fixture) {
	ctx := t.Context()
	const n = 230
	for range n {
		got(f.Cancel(ctx, f.create(bulk).ID))(t)
	}
	same(t, "audio", len(got(f.DropAudio(ctx, 0, n-3))(t)), n-3)
	same(t, "the rest of it", len(got(f.DropAudio(ctx, 0, n))(t)), 3)
	same(t, "jobs", len(got(f.ExpireOld(ctx, 0, n-3))(t)), n-3)
	same(t, "the rest of them", len(got(f.ExpireOld(ctx, 0, n))(t)), 3)
	same(t, "tombstones", got(f.DropTombstones(ctx, 0, n-3))(t), n-3)
	same(t, "the rest of them", got(f.DropTombstones(ctx, 0, n))(t), 3)
}

func testUnwanted(t *testing.T, f *fixture) {
	ctx := t.Context()
	blobs := func(id string) []string { return []string{id, id + ".flac"} }
	var wanted, unwanted []string
	for _, stage := range []string{waiting, delayed, dispatched, running, silent, succeeded, failed, canceled} {
		wanted = append(wanted, blobs(arrange(f, stage).id)...)
	}
	old := draft(1000, bulk) // of a version without recordings
	old.AudioKey = ""
	got(f.CreateJob(ctx, old, aviary.QueueLimits{}))(t)
	wanted = append(wanted, old.BlobKey)
	unwanted = append(unwanted, old.ID+".flac", old.ID+".wav", "", ".flac", "\x00", "\xff.flac")
	unwanted = append(unwanted, blobs(arrange(f, expired).id)...)
	unwanted = append(unwanted, blobs("job_nobody")...)
	same(t, "of those that are wanted", len(got(f.Unwanted(ctx, wanted))(t)), 0)
	same(t, "of those that are not", got(f.Unwanted(ctx, unwanted))(t), unwanted)
	var mixed []string // as a list of blobs might have them, and more than one statement names
	for n := range 150 {
		mixed = append(mixed, unwanted[n%len(unwanted)], wanted[n%len(wanted)])
	}
	list := got(f.Unwanted(ctx, mixed))(t)
	same(t, "half of them", len(list), 150)
	for n, key := range list {
		same(t, fmt.Sprint("number ", n), key, unwanted[n%len(unwanted)])
	}
	got(f.DropAudio(ctx, 0, 1_000_000))(t)
	same(t, "when audio was dropped", len(got(f.Unwanted(ctx, wanted))(t)), 3*2)
}

// A job whose blobs would be taken for nobody's is not accepted.
func testForeignKeys(t *testing.T, f *fixture) {
	for _, key := range []string{"blob", "x.flac", ".", ".flac"} {
		job := draft(1, bulk)
		job.BlobKey = key
		same(t, "upload under "+key, kind(second(f.CreateJob(t.Context(), job, aviary.QueueLimits{}))), "internal_error")
		job = draft(1, bulk)
		job.AudioKey = key
		same(t, "recording under "+key, kind(second(f.CreateJob(t.Context(), job, aviary.QueueLimits{}))), "internal_error")
	}
}
