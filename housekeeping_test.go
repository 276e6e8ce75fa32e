package aviary_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aviary-asr/aviary"
)

// estate is the store and the blobs of a housekeeper, in memory. Its jobs are in the order in which they ended, and all as old as they need to be.
type estate struct {
	t *testing.T

	jobs       []string        // that wait for their end
	marked     map[string]bool // expired, or without audio
	tombstones int
	drift      []string
	blobs      map[string]time.Time
	wanted     func(key string) bool // nil: those of jobs that are not marked

	calls                                 []string
	storeErr, deleteErr, listErr, halfway error
	onDelete                              func(key string)
}

func newEstate(t *testing.T) *estate {
	return &estate{t: t, marked: map[string]bool{}, blobs: map[string]time.Time{}}
}

// add makes n ended jobs with their two blobs.
func (e *estate) add(n int) {
	for range n {
		id := fmt.Sprintf("job_%04d", len(e.jobs)+len(e.marked))
		e.jobs = append(e.jobs, id)
		e.blobs[id], e.blobs[id+".flac"] = time.Time{}, time.Time{}
	}
}

func (e *estate) mark(call string, age time.Duration, limit int) ([]aviary.Job, error) {
	e.calls = append(e.calls, fmt.Sprint(call, " ", age))
	if e.storeErr != nil {
		return nil, e.storeErr
	}
	n := min(limit, len(e.jobs))
	if e.halfway != nil {
		n /= 2
	}
	var list []aviary.Job
	for _, id := range e.jobs[:n] {
		e.marked[id] = true
		list = append(list, aviary.Job{ID: id, BlobKey: id, AudioKey: id + ".flac"})
	}
	e.jobs = e.jobs[n:]
	return list, e.halfway
}

func (e *estate) ExpireOld(_ context.Context, age time.Duration, limit int) ([]aviary.Job, error) {
	return e.mark("expire", age, limit)
}

func (e *estate) DropAudio(_ context.Context, age time.Duration, limit int) ([]aviary.Job, error) {
	return e.mark("drop audio", age, limit)
}

func (e *estate) DropTombstones(_ context.Context, age time.Duration, limit int) (int, error) {
	e.calls = append(e.calls, fmt.Sprint("bury ", age))
	n := min(limit, e.tombstones)
	e.tombstones -= n
	return n, e.storeErr
}

func (e *estate) Unwanted(_ context.Context, keys []string) ([]string, error) {
	wanted := e.wanted
	if wanted == nil {
		wanted = func(key string) bool { return slices.Contains(e.jobs, strings.TrimSuffix(key, ".flac")) }
	}
	return slices.DeleteFunc(slices.Clone(keys), wanted), e.storeErr
}

func (e *estate) Recount(context.Context) ([]string, error) {
	e.calls = append(e.calls, "recount")
	return e.drift, e.storeErr
}

func (e *estate) List(_ context.Context, after string, limit int) ([]aviary.BlobInfo, error) {
	keys := slices.Sorted(maps.Keys(e.blobs))
	keys = slices.DeleteFunc(keys, func(key string) bool { return key <= after })
	var list []aviary.BlobInfo
	for _, key := range keys[:min(limit, len(keys))] {
		list = append(list, aviary.BlobInfo{Key: key, Modified: e.blobs[key]})
	}
	return list, e.listErr
}

func (e *estate) Delete(ctx context.Context, key string) error {
	if err := errors.Join(ctx.Err(), e.deleteErr); err != nil {
		return err
	}
	if e.wanted == nil && slices.Contains(e.jobs, strings.TrimSuffix(key, ".flac")) {
		e.t.Errorf("the blob %s of a job that is not marked was deleted", key)
	}
	if e.onDelete != nil {
		e.onDelete(key)
	}
	delete(e.blobs, key)
	return nil
}

// left fails the test unless so many blobs are left.
func (e *estate) left(n int) {
	e.t.Helper()
	if len(e.blobs) != n {
		e.t.Errorf("%d blobs are left, want %d", len(e.blobs), n)
	}
}

// keeper is a housekeeper on an estate, and its log.
func (e *estate) keeper() (*aviary.Housekeeper, *bytes.Buffer) {
	var log bytes.Buffer
	return &aviary.Housekeeper{Store: e, Blobs: e, Log: slog.New(slog.NewTextHandler(&log, nil))}, &log
}

// keep makes a pass that must go well and do just this.
func keep(t *testing.T, h *aviary.Housekeeper, want aviary.Kept) {
	t.Helper()
	if did, err := h.Keep(t.Context()); err != nil || did != want {
		t.Errorf("did %+v, %v; want %+v", did, err, want)
	}
}

// What is old goes, in as many pages as it takes, rows before blobs; with no retention nothing goes but tombstones.
func TestRetention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t)
		e.add(120)
		e.tombstones = 2500
		h, _ := e.keeper()
		keep(t, h, aviary.Kept{Tombstones: 2500})
		e.left(240)
		h.RetentionAudio = time.Hour
		keep(t, h, aviary.Kept{Audio: 120})
		e.left(0)
		e.add(60)
		e.calls = nil
		h.RetentionTranscript = 48 * time.Hour
		keep(t, h, aviary.Kept{Expired: 60})
		e.left(0)
		want := []string{"expire 48h0m0s", "expire 48h0m0s", "drop audio 1h0m0s", "bury 720h0m0s"}
		if !slices.Equal(e.calls, want) {
			t.Errorf("calls %q, want %q", e.calls, want)
		}
	})
}

// While blobs cannot be deleted, no more jobs are marked than one page; what else there is to do is done. It is logged once, and made good later.
func TestRetentionWaitsForBlobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t)
		e.add(200)
		h, log := e.keeper()
		h.RetentionAudio, h.RetentionTranscript = time.Hour, 2*time.Hour
		e.deleteErr = errors.New("the disk is read-only")
		for range 5 {
			e.tombstones = 1
			did, err := h.Keep(t.Context())
			if !errors.Is(err, e.deleteErr) || did.Tombstones != 1 {
				t.Errorf("did %+v, %v", did, err)
			}
		}
		if len(e.marked) > 50 {
			t.Errorf("%d jobs were marked while their blobs could not be deleted", len(e.marked))
		}
		e.left(400)
		e.deleteErr = nil
		keep(t, h, aviary.Kept{Expired: 150})
		e.left(0)
		if n := strings.Count(log.String(), "read-only"); n != 1 || strings.Count(log.String(), "housekeeping works again") != 1 {
			t.Errorf("the trouble was logged %d times:\n%s", n, log)
		}
	})
}

// A store that fails half-way has marked jobs: their blobs go all the same.
func TestRetentionOfHalfAPage(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.add(50)
	h, log := e.keeper()
	h.RetentionAudio = time.Hour
	e.halfway = errors.New("the store went away")
	did, err := h.Keep(t.Context())
	if !errors.Is(err, e.halfway) || did.Audio != 25 {
		t.Errorf("did %+v, %v", did, err)
	}
	e.left(50)
	e.halfway = nil
	keep(t, h, aviary.Kept{Audio: 25})
	e.left(0)
	if strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("one outage:\n%s", log)
	}
}

// The end of the context ends a pass within a page and within a rest, and is not logged as a trouble.
func TestHousekeeperStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, last := range []string{"job_0010", "job_0049.flac"} {
			e := newEstate(t)
			e.add(200)
			h, log := e.keeper()
			h.RetentionAudio, h.Schedule.Pause = time.Hour, time.Minute
			ctx, cancel := context.WithCancel(t.Context())
			e.onDelete = func(key string) {
				if key == last {
					cancel()
				}
			}
			began := time.Now()
			did, err := h.Keep(ctx)
			if !errors.Is(err, context.Canceled) || did.Audio != 50 || time.Since(began) != 0 {
				t.Errorf("ended at %s: did %+v, %v after %v", last, did, err, time.Since(began))
			}
			if log.Len() > 0 {
				t.Errorf("ended at %s:\n%s", last, log)
			}
			keep(t, h, aviary.Kept{Audio: 150}) // it can go on where it was
			e.left(0)
		}
	})
}

// A pass follows a pass, and each rests as long as its pages took.
func TestHousekeeperRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t)
		e.add(100)
		h, _ := e.keeper()
		h.RetentionAudio, h.Schedule = time.Hour, aviary.HousekeepingSchedule{Every: time.Hour, Pause: time.Second, ScanAfter: 100 * time.Hour}
		e.onDelete = func(string) { time.Sleep(time.Second) }
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		var did []aviary.Kept
		began := time.Now()
		h.Report = func(k aviary.Kept) {
			at, did = append(at, time.Since(began)), append(did, k)
			if len(at) == 3 {
				cancel()
			}
		}
		h.Run(ctx)
		// Two pages of 100 blobs, a second each; as long a rest after each; and a third page that is empty.
		if want := []time.Duration{400 * time.Second, 400*time.Second + time.Hour, 400*time.Second + 2*time.Hour}; !slices.Equal(at, want) {
			t.Errorf("passes ended after %v, want %v", at, want)
		}
		if want := []aviary.Kept{{Audio: 100}, {}, {}}; !slices.Equal(did, want) {
			t.Errorf("did %+v, want %+v", did, want)
		}
	})
}

// What no job wants is deleted once a day, if it is old enough; after a failure in the next pass.
func TestUnwantedBlobsAreCollected(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	e.add(700) // 1,400 blobs are more than a page
	h, log := e.keeper()
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	h.Now = func() time.Time { return now }
	h.Schedule.Night = 11 * time.Hour // another day
	orphan := func(age time.Duration) { e.blobs[fmt.Sprintf("orphan_%s", age)] = now.Add(-age) }
	orphan(25 * time.Hour)
	orphan(23 * time.Hour)
	e.blobs["aaa"], e.blobs["zzz.flac"] = time.Time{}, time.Time{}
	keep(t, h, aviary.Kept{})
	now = now.Add(59 * time.Minute)
	keep(t, h, aviary.Kept{})
	e.left(1404)
	now = now.Add(time.Minute)
	e.listErr = errors.New("the folder cannot be read")
	if _, err := h.Keep(t.Context()); !errors.Is(err, e.listErr) {
		t.Errorf("got %v", err)
	}
	e.listErr = nil
	keep(t, h, aviary.Kept{Collected: 3})
	e.left(1401)
	orphan(48 * time.Hour)
	now = now.Add(23 * time.Hour)
	h.Store = nothingToRecount{e}
	keep(t, h, aviary.Kept{})
	now = now.Add(time.Hour)
	keep(t, h, aviary.Kept{Collected: 2})
	e.left(1400)
	if strings.Contains(log.String(), "level=ERROR") {
		t.Error(log)
	}
}

type nothingToRecount struct{ *estate }

func (nothingToRecount) Recount(context.Context) ([]string, error) { return nil, nil }

// Too many unwanted blobs say that the database is not that of the blobs. Then none is deleted.
func TestTheWrongDatabaseCostsNoBlobs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ blobs, unwanted, collected int }{
		{100, 100, 100}, // what a crash leaves may be all there is
		{101, 101, 0},
		{1000, 100, 100},
		{1000, 101, 0},
		{1010, 101, 101},
		{5000, 500, 500},
		{5000, 501, 0},
		{5000, 5000, 0},
	} {
		t.Run(fmt.Sprint(tt.unwanted, " of ", tt.blobs), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEstate(t)
				for n := range tt.blobs {
					e.blobs[fmt.Sprintf("job_%04d", n)] = time.Time{}
				}
				first := fmt.Sprintf("job_%04d", tt.blobs-tt.unwanted) // in the order of the list they come last
				e.wanted = func(key string) bool { return key < first }
				h, log := e.keeper()
				h.Schedule.ScanAfter = time.Nanosecond
				keep(t, h, aviary.Kept{})
				refused := tt.collected == 0
				for _, want := range []aviary.Kept{{Collected: tt.collected, Refused: refused}, {Refused: refused}} {
					time.Sleep(24 * time.Hour)
					did, err := h.Keep(t.Context())
					if did.Drift = 0; err != nil || did != want {
						t.Errorf("did %+v, %v; want %+v", did, err, want)
					}
				}
				e.left(tt.blobs - tt.collected)
				if n := strings.Count(log.String(), "level=ERROR"); refused && n != 2 || !refused && n != 0 {
					t.Errorf("%d errors:\n%s", n, log)
				}
			})
		})
	}
}

// A database that is exchanged between counting and deleting costs no more blobs than were counted.
func TestADatabaseLostInTheMiddleOfAScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := newEstate(t)
		for n := range 3000 {
			e.blobs[fmt.Sprintf("job_%04d", n)] = time.Time{}
		}
		lost := false
		e.wanted = func(key string) bool {
			if key == "job_2999" { // the end of the first scan
				defer func() { lost = true }()
			}
			return !lost && key != "job_0007"
		}
		h, _ := e.keeper()
		h.Schedule.ScanAfter = time.Nanosecond
		keep(t, h, aviary.Kept{})
		time.Sleep(time.Minute)
		keep(t, h, aviary.Kept{Collected: 1})
		e.left(2999)
	})
}

// Counters are recounted once a night, and a drift is an error.
func TestCountersAreRecountedAtNight(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	h, log := e.keeper()
	now := time.Date(2026, 12, 31, 2, 50, 0, 0, time.FixedZone("", 2*3600))
	h.Now = func() time.Time { return now }
	h.Schedule.ScanAfter = 1000 * time.Hour
	recounts := func() int {
		return len(slices.DeleteFunc(slices.Clone(e.calls), func(call string) bool { return call != "recount" }))
	}
	for range 3 * 24 * 6 { // passes, 10 minutes apart
		keep(t, h, aviary.Kept{})
		want := 0
		if first := time.Date(2026, 12, 31, 1, 0, 0, 0, time.UTC); !now.Before(first) {
			want = 1 + int(now.Sub(first)/(24*time.Hour))
		}
		if recounts() != want {
			t.Fatalf("%d recounts at %v, want %d", recounts(), now, want)
		}
		now = now.Add(10 * time.Minute)
	}
	if log.Len() > 0 {
		t.Error(log)
	}
	e.drift = []string{"queued/bulk: 3 counted, 2 there"}
	now = now.Add(24 * time.Hour)
	keep(t, h, aviary.Kept{Drift: 1})
	if !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "3 counted, 2 there") {
		t.Error(log)
	}
	e.storeErr = errors.New("away")
	now = now.Add(24 * time.Hour)
	if _, err := h.Keep(t.Context()); !errors.Is(err, e.storeErr) {
		t.Errorf("got %v", err)
	}
	e.storeErr, e.drift = nil, nil
	before := recounts()
	now = now.Add(50 * time.Minute)
	keep(t, h, aviary.Kept{})
	if recounts() != before {
		t.Error("a recount that failed was made again within the hour")
	}
	now = now.Add(10 * time.Minute)
	keep(t, h, aviary.Kept{})
	if recounts() != before+1 {
		t.Error("a recount that failed was not made an hour later")
	}
}
