// Package storetest is the conformance suite of stores: what every aviary.Store and every aviary.Blobs must do, whatever it is built on.
// Run drives a store through each transition from each state, through thousands of random operations beside a model in memory, through
// races of goroutines and of handles; RunCrash kills a process that is writing, RunServerCrash the server that it writes to. It knows no backend,
// and reaches into none.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aviary-asr/aviary"
)

// Backend is a kind of store under test.
type Backend struct {
	// New makes an empty database and returns its URL.
	New func(t testing.TB) string
	// Open opens a handle on a database of New, with a clock; nil is the store's own. The suite closes it.
	Open func(url string, now func() time.Time) (aviary.Store, error)
	// Settle waits until nothing of a killed process is under way on a database any more. Nil where all ends with the process.
	Settle func(t testing.TB, url string)
}

// Main is what TestMain of a backend's tests calls: it runs them, and looks for goroutines that are left. When the crash test starts the
// same binary as the process to be killed, it plays that part instead.
func Main(m *testing.M, b Backend) {
	if url := os.Getenv(victimVariable); url != "" {
		playVictim(b, url)
		return
	}
	goleak.VerifyTestMain(m)
}

// Run holds a backend to all that a store promises, but for what it takes to kill a process: see RunCrash.
func Run(t *testing.T, b Backend) {
	t.Run("Create", func(t *testing.T) { testCreate(t, b) })
	t.Run("Transitions", func(t *testing.T) { testTransitions(t, b) })
	t.Run("Attempts", func(t *testing.T) { testAttempts(t, b) })
	t.Run("Leases", func(t *testing.T) { testLeases(t, b) })
	t.Run("Dispatch", func(t *testing.T) { testDispatch(t, b) })
	t.Run("Identity", func(t *testing.T) { testIdentity(t, b) })
	t.Run("Leader", func(t *testing.T) { testLeader(t, b) })
	t.Run("Tenants", func(t *testing.T) { testTenants(t, b) })
	t.Run("Housekeeping", func(t *testing.T) { testHousekeeping(t, b) })
	t.Run("Lists", func(t *testing.T) { testLists(t, b) })
	t.Run("Random", func(t *testing.T) { testRandom(t, b) })
	t.Run("Races", func(t *testing.T) { testRaces(t, b) })
	t.Run("Reopen", func(t *testing.T) { testReopen(t, b) })
}

// Clock is a clock that a test moves. It is safe for use from several goroutines.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at some moment that is whole in microseconds and in nothing coarser.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 5, 4, 3, 2, 1, 987_654_000, time.UTC)} }

// Now is the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the time on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is a store with a clock, and a test that fails at the first unexpected error.
type fixture struct {
	testing.TB
	aviary.Store
	clock *Clock
	url   string
	ids   int
}

// fresh opens a new, empty database.
func fresh(t testing.TB, b Backend) *fixture {
	t.Helper()
	f := &fixture{TB: t, clock: NewClock(), url: b.New(t)}
	f.Store = f.open(b)
	return f
}

// open opens one more handle on the fixture's database.
func (f *fixture) open(b Backend) aviary.Store {
	f.Helper()
	s, err := b.Open(f.url, f.clock.Now)
	f.must(err)
	f.Cleanup(func() { f.must(s.Close()) })
	return s
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// got unwraps the result of a call that cannot fail in this test: got(call())(t).
func got[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

const (
	interactive = aviary.PriorityInteractive
	bulk        = aviary.PriorityBulk
	lease       = 45 * time.Second
	runLimit    = time.Hour // of an attempt
)

// draft is a job to be created, with every field that a caller sets.
func draft(n int, class aviary.Priority) aviary.Job {
	id := fmt.Sprintf("job_%026d", n)
	return aviary.Job{
		ID: id, Tenant: aviary.DefaultTenant, BlobKey: id, AudioKey: id + ".flac", MaxAttempts: 3,
		Options: aviary.Options{Name: fmt.Sprintf("Ärger im Büro %d.flac", n), Attention: aviary.AttentionAuto, Channel: n % 3, Priority: class},
		Audio: aviary.Audio{Container: "flac", Codec: "flac", SampleRate: 44100, Channels: 2, Duration: time.Duration(n) * time.Second,
			Bytes: int64(n) * 1000, SHA256: fmt.Sprintf("%064x", n), Warnings: []string{"Ein „Hinweis“."}},
	}
}

// named gives a draft another id, and its blobs the keys that go with it.
func named(job aviary.Job, id string) aviary.Job {
	job.ID, job.BlobKey, job.AudioKey = id, id, id+".flac"
	return job
}

// create queues a job with the next number.
func (f *fixture) create(class aviary.Priority) aviary.Job {
	f.Helper()
	f.ids++
	return got(f.CreateJob(f.Context(), draft(f.ids, class), aviary.QueueLimits{}))(f)
}

// dispatch hands over everything that waits in a class, and returns the ticket of one job.
func (f *fixture) dispatch(job aviary.Job) aviary.Ticket {
	f.Helper()
	for _, ticket := range got(handOver(f.Context(), f.Store, job.Options.Priority, 1_000_000))(f) {
		if ticket.JobID == job.ID {
			return ticket
		}
	}
	f.Fatalf("%s was not handed over", job.ID)
	return aviary.Ticket{}
}

// handOver is the simplest dispatcher: up to limit jobs of a class, tenant by tenant.
func handOver(ctx context.Context, s aviary.Dispatching, class aviary.Priority, limit int) ([]aviary.Ticket, error) {
	list, err := s.Waiting(ctx, class, limit)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, c := range list[:min(limit, len(list))] {
		ids = append(ids, c.JobID)
	}
	return s.Dispatch(ctx, ids)
}

// claim is that of the fixture's worker.
var claim = aviary.Claim{Worker: "worker-1", Node: "node-1", Device: "cpu", Lease: lease, Limit: runLimit}

// start takes a waiting job to running.
func (f *fixture) start(job aviary.Job) (aviary.Job, aviary.AttemptRef) {
	f.Helper()
	job = got(f.StartAttempt(f.Context(), f.dispatch(job), claim))(f)
	return job, aviary.AttemptRef{JobID: job.ID, Attempt: job.Attempt}
}

// job reads a job.
func (f *fixture) job(id string) aviary.Job {
	f.Helper()
	return got(f.Job(f.Context(), id))(f)
}

// kind is an error in one word, so that stores can be compared by it: nil, a code, stale, unclaimable, taken or canceled.
func kind(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, aviary.ErrStale):
		return "stale"
	case errors.Is(err, aviary.ErrNotClaimable):
		return "unclaimable"
	case errors.Is(err, aviary.ErrRequestKeyTaken):
		return "taken"
	}
	return string(aviary.CodeOf(err))
}

// same fails the test if two values differ.
func same(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// transcript is a result with all its parts, and some that are hard to keep.
func transcript(n int) aviary.Transcript {
	half := 0.5
	return aviary.Transcript{
		Text: fmt.Sprintf("Zeile %d\n\"quoted\" \u2028 \x00 ünï – 三", n), Language: "en", DurationSeconds: 1.0 / 3, Warnings: []string{"clipped"},
		Segments: []aviary.Segment{
			{ID: 0, Start: 0.08, End: 1e-9, Text: "eins", Confidence: &half, Words: []aviary.Word{{Word: "eins", Start: 0.1, End: 0.2, Confidence: &half}}},
			{ID: 1, Start: 1, End: 2, Text: "", Words: []aviary.Word{}},
		},
		Engine: aviary.Engine{Model: "m", ModelSHA256: "00", DType: "float32", Device: "cpu", Software: "aviary",
			Attention: aviary.Attention{Mode: aviary.AttentionLocal, Context: []int{128, 128}, Reason: "long"}},
		Usage: aviary.Usage{AudioSeconds: 1.0 / 3, DeviceSeconds: 0.25, QueueSeconds: 1e6, RTFx: 4.0 / 3},
	}
}

var broken = aviary.ProblemOf(aviary.Errorf(aviary.CodeAudioBroken, "test", "Frame 7 is damaged."))
