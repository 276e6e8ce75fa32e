package aviary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Housekeeper forgets what is no longer to be kept: audio and transcripts at the end of their retention, the tombstones of purged jobs, blobs that belong to
// no job. And it recounts the store's counters. It runs in the process that leads; two at once do no harm.
//
// A row is always marked before its blobs are deleted, so that no job claims audio that is gone. A crash in between leaves blobs that no job wants, and so does
// one between an upload's blobs and its row. A scan of all blobs finds both.
type Housekeeper struct {
	Store Housekeeping
	Blobs BlobKeeping
	Log   *slog.Logger

	// RetentionAudio is how long the audio of a job is kept after its end, RetentionTranscript how long the job itself, and with it audio and transcript. Zero is
	// for ever.
	RetentionAudio, RetentionTranscript time.Duration

	Schedule HousekeepingSchedule
	// Report, if set, hears what each pass of Run did.
	Report func(Kept)
	// Now is the clock that the schedule and the age of blobs go by; nil is time.Now. The age of jobs goes by the store's clock.
	Now func() time.Time

	owed                  []string // keys of blobs whose jobs are marked, and that could not be deleted
	failing               string   // what failed in the last pass
	nextScan, nextRecount time.Time
}

// BlobKeeping is the part of Blobs that a Housekeeper uses.
type BlobKeeping interface {
	List(ctx context.Context, after string, limit int) ([]BlobInfo, error)
	Delete(ctx context.Context, key string) error
}

// HousekeepingSchedule says when a Housekeeper does what. A zero field means the default.
type HousekeepingSchedule struct {
	Every      time.Duration // between two passes; default 10 min
	Pause      time.Duration // between two pages of a pass at least, for others to have their turn; default 50 ms
	Tombstones time.Duration // how long the row of a purged job answers that it has expired; default 30 days

	ScanAfter time.Duration // between the first pass and the first scan of all blobs; default 1 h
	ScanEvery time.Duration // between two scans; default 24 h
	BlobAge   time.Duration // a younger blob may belong to an upload under way; default 24 h

	Night time.Duration // the time of day, after midnight, from which on counters are recounted; default 3 h
}

func (s HousekeepingSchedule) withDefaults() HousekeepingSchedule {
	const day = 24 * time.Hour
	for _, f := range []struct {
		field    *time.Duration
		fallback time.Duration
	}{
		{&s.Every, 10 * time.Minute}, {&s.Pause, 50 * time.Millisecond}, {&s.Tombstones, 30 * day},
		{&s.ScanAfter, time.Hour}, {&s.ScanEvery, day}, {&s.BlobAge, day}, {&s.Night, 3 * time.Hour},
	} {
		if *f.field <= 0 {
			*f.field = f.fallback
		}
	}
	return s
}

// Kept counts what one pass did.
type Kept struct {
	Expired    int  // jobs purged
	Audio      int  // jobs whose audio was dropped
	Tombstones int  // rows deleted
	Collected  int  // blobs deleted that no job wants
	Refused    bool // a scan found so many of those that it deleted none: see Housekeeper.collect
	Drift      int  // counters that were wrong
}

// Run passes at once and then at every interval, until ctx ends. It can run again then, but not twice at the same time.
func (h *Housekeeper) Run(ctx context.Context) {
	every := h.Schedule.withDefaults().Every
	for ctx.Err() == nil {
		did, _ := h.Keep(ctx) // what failed is logged, and tried again in the next pass
		if h.Report != nil {
			h.Report(did)
		}
		_ = pauseFor(ctx, every)
	}
}

// Keep makes one pass: it does all that is due. After an error it goes on with what does not depend on what failed.
func (h *Housekeeper) Keep(ctx context.Context) (Kept, error) {
	var did Kept
	var errs []error
	var failing []string
	for _, part := range []struct {
		name string
		do   func(context.Context, *Kept) error
	}{
		{"retention", h.retain}, {"tombstones", h.bury}, {"unwanted blobs", h.collect}, {"recount", h.recount},
	} {
		if err := part.do(ctx, &did); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", part.name, err))
			failing = append(failing, part.name)
		}
	}
	if ctx.Err() != nil {
		return did, errors.Join(errs...) // its own end is no trouble
	}
	h.tell(did, strings.Join(failing, ", "), errors.Join(errs...))
	return did, errors.Join(errs...)
}

// tell logs a pass: a lasting trouble once when it begins or changes, and once when it is over.
func (h *Housekeeper) tell(did Kept, failing string, err error) {
	switch {
	case err != nil && failing != h.failing:
		h.Log.Warn("housekeeping failed in part; it is tried again in each pass", "parts", failing, "err", err)
	case err == nil && h.failing != "":
		h.Log.Info("housekeeping works again", "parts", h.failing)
	}
	h.failing = failing
	if did.Expired+did.Audio+did.Tombstones+did.Collected > 0 {
		h.Log.Info("kept house", "expired", did.Expired, "audio_dropped", did.Audio, "tombstones", did.Tombstones, "blobs_collected", did.Collected)
	}
}

const (
	// rowPage is how many rows a page has that deletes no blobs.
	rowPage = 1000
	// jobPage is how many jobs a page has whose two blobs are deleted. What a crash leaves of one page a scan always collects: see alwaysCollected.
	jobPage = 50
)

// retain purges jobs and drops audio at the end of their retention. No further job is marked while blobs of a marked one could not be deleted: however
// long the blobs are away, few are left behind.
func (h *Housekeeper) retain(ctx context.Context, did *Kept) error {
	if err := h.settle(ctx); err != nil {
		return err
	}
	for _, kind := range []struct {
		age   time.Duration
		mark  func(ctx context.Context, age time.Duration, limit int) ([]Job, error)
		count *int
	}{
		{h.RetentionTranscript, h.Store.ExpireOld, &did.Expired}, // first, as this drops the audio too
		{h.RetentionAudio, h.Store.DropAudio, &did.Audio},
	} {
		if kind.age <= 0 {
			continue
		}
		err := h.inPages(ctx, jobPage, func() (int, error) {
			jobs, err := kind.mark(ctx, kind.age, jobPage) // with an error come the jobs that were marked before it
			*kind.count += len(jobs)
			for _, job := range jobs {
				h.owe(job)
			}
			return len(jobs), errors.Join(err, h.settle(ctx))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (h *Housekeeper) owe(job Job) {
	for _, key := range []string{job.BlobKey, job.AudioKey} {
		if key != "" {
			h.owed = append(h.owed, key)
		}
	}
}

// settle deletes the blobs of marked jobs.
func (h *Housekeeper) settle(ctx context.Context) error {
	for len(h.owed) > 0 {
		if err := h.Blobs.Delete(ctx, h.owed[0]); err != nil {
			return fmt.Errorf("delete blob %s: %w", h.owed[0], err)
		}
		h.owed = h.owed[1:]
	}
	return nil
}

// bury deletes the rows of jobs that were purged long ago.
func (h *Housekeeper) bury(ctx context.Context, did *Kept) error {
	age := h.Schedule.withDefaults().Tombstones
	return h.inPages(ctx, rowPage, func() (int, error) {
		n, err := h.Store.DropTombstones(ctx, age, rowPage)
		did.Tombstones += n
		return n, err
	})
}

// inPages calls page until it does less than a full page. It rests in between for as long as the page took, so that most of the store's time belongs to
// others, and leaves the rest to the next pass when this one takes long, so that no part waits for another for ever.
func (h *Housekeeper) inPages(ctx context.Context, size int, page func() (int, error)) error {
	for until := time.Now().Add(h.Schedule.withDefaults().Every); ; {
		began := time.Now()
		n, err := page()
		if err != nil || n < size || time.Now().After(until) {
			return err
		}
		if err := h.rest(ctx, began); err != nil {
			return err
		}
	}
}

// rest pauses for as long as has passed since then, and for the schedule's pause at least.
func (h *Housekeeper) rest(ctx context.Context, began time.Time) error {
	return pauseFor(ctx, max(time.Since(began), h.Schedule.withDefaults().Pause))
}

// pauseFor waits, and returns early with its error when ctx ends.
func pauseFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

const (
	// alwaysCollected is how many unwanted blobs a scan deletes, however few others there are: more than a crash leaves.
	alwaysCollected = 100
	// collectedPart is the part of all blobs, one in so many, that a scan deletes beyond that.
	collectedPart = 10
)

// collect deletes, when a scan is due, the blobs that no job wants. If the database is another than the one that the blobs belong to, or was emptied, all of
// them look unwanted. So a first scan counts; if there are more than a crash leaves, and more than a tenth of all, nothing is deleted and an error says so, at
// each scan. A second scan deletes, and no more than the first has counted: the database might be changed meanwhile.
func (h *Housekeeper) collect(ctx context.Context, did *Kept) error {
	schedule, now := h.Schedule.withDefaults(), h.now()
	if h.nextScan.IsZero() {
		h.nextScan = now.Add(schedule.ScanAfter)
	}
	if now.Before(h.nextScan) {
		return nil
	}
	before := now.Add(-schedule.BlobAge)
	var unwanted int
	var example string
	seen, err := h.scan(ctx, before, func(keys []string) error {
		unwanted += len(keys)
		example = keys[0]
		return nil
	})
	switch {
	case err != nil:
		return err
	case unwanted > alwaysCollected && unwanted > seen/collectedPart:
		did.Refused = true
		h.Log.Error("too many blobs belong to no job: nothing was deleted, since this is more likely the wrong database, an emptied one or an old copy. "+
			"Look whether the database and the blobs that are configured belong together. If they do, and these blobs are indeed of no use, delete them by hand",
			"unwanted", unwanted, "blobs", seen, "one_of_them", example)
	case unwanted > 0:
		_, err = h.scan(ctx, before, func(keys []string) error {
			for _, key := range keys[:min(len(keys), unwanted)] {
				if err := h.Blobs.Delete(ctx, key); err != nil {
					return fmt.Errorf("delete blob %s: %w", key, err)
				}
				unwanted--
				did.Collected++
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	h.nextScan = now.Add(schedule.ScanEvery)
	return nil
}

// scan goes through all blobs that were written before a time, and tells found of those that no job wants, page by page.
func (h *Housekeeper) scan(ctx context.Context, before time.Time, found func(keys []string) error) (seen int, err error) {
	for after := ""; ; {
		began := time.Now()
		list, err := h.Blobs.List(ctx, after, rowPage)
		if err != nil {
			return seen, fmt.Errorf("list blobs: %w", err)
		}
		var keys []string
		for _, blob := range list {
			if blob.Modified.Before(before) {
				keys = append(keys, blob.Key)
			}
		}
		seen += len(keys)
		if len(keys) > 0 {
			unwanted, err := h.Store.Unwanted(ctx, keys)
			if err != nil {
				return seen, err
			}
			if len(unwanted) > 0 {
				if err := found(unwanted); err != nil {
					return seen, err
				}
			}
		}
		if len(list) < rowPage {
			return seen, nil
		}
		after = list[len(list)-1].Key
		if err := h.rest(ctx, began); err != nil {
			return seen, err
		}
	}
}

// recount checks the store's counters once a night.
func (h *Housekeeper) recount(ctx context.Context, did *Kept) error {
	now := h.now()
	if h.nextRecount.IsZero() {
		h.nextRecount = h.nightAfter(now)
	}
	if now.Before(h.nextRecount) {
		return nil
	}
	drift, err := h.Store.Recount(ctx)
	if err != nil {
		h.nextRecount = now.Add(recountAgain)
		return err
	}
	if did.Drift = len(drift); did.Drift > 0 {
		h.Log.Error("counters differed from the jobs and have been set right; this is a fault of the software, please report it", "counters", drift)
	}
	h.nextRecount = h.nightAfter(now)
	return nil
}

// recountAgain is the rest after a recount that failed: it reads every row, and whatever ended it may still be there.
const recountAgain = time.Hour

// nightAfter is the next time after now at which counters are recounted.
func (h *Housekeeper) nightAfter(now time.Time) time.Time {
	night := h.Schedule.withDefaults().Night
	for day := now.Day(); ; day++ {
		midnight := time.Date(now.Year(), now.Month(), day, 0, 0, 0, 0, now.Location())
		if at := midnight.Add(night); at.After(now) {
			return at
		}
	}
}

func (h *Housekeeper) now() time.Time {
	if h.Now == nil {
		return time.Now()
	}
	return h.Now()
}
