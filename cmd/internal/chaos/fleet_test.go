//go:build unix

package chaos

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store"
	"github.com/aviary-asr/aviary/store/storetest/pgtest"
)

// The variables that choose what runs.
const (
	chaosVariable = "AVIARY_TEST_CHAOS"
	seedVariable  = "AVIARY_TEST_SEED"
	soakVariable  = "AVIARY_TEST_SOAK"
)

// long skips a test that takes longer than a suite that is run at each change may.
func long(t testing.TB, why string) {
	t.Helper()
	if os.Getenv(chaosVariable) != "long" {
		t.Skipf("%s=long runs this: %s", chaosVariable, why)
	}
}

// rounds is how often a fault is tried at random moments: once, or ten times in a long run.
func rounds() int {
	if os.Getenv(chaosVariable) == "long" {
		return 10
	}
	return 1
}

// chance is a test's source of randomness. A failure names its seed.
func chance(t testing.TB, round int) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedVariable); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedVariable, err)
		}
		seed = n
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s=%d round %d", seedVariable, seed, round)
		}
	})
	return rand.New(rand.NewPCG(seed, uint64(round))) //nolint:gosec // repeatable, not secret
}

func between(r *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64(to-from)))
}

// fleet is a deployment: processes that share a database, blobs and a Redis.
type fleet struct {
	t      testing.TB
	folder string
	timing timing

	database, blobURL, redisURL string
	flags                       []string // of all processes

	redis *redisServer // nil: there is none
	procs map[string]*process
	store aviary.Store
	blobs aviary.Blobs
	db    *sql.DB

	mu     sync.Mutex
	ledger []*entry
	nextID int32
	// everything has check wait for what asynq recovers by itself too, which takes up to two minutes.
	everything bool
}

// option changes a fleet before it opens its store.
type option func(*fleet)

// onPostgres puts the store on Postgres, on a server that all tests share.
func onPostgres(f *fleet) { f.database = pgtest.Schema(f.t) }

func withRedis(extra ...string) option {
	return func(f *fleet) {
		f.redis = newRedis(f.t, extra...)
		f.redisURL = f.redis.url()
	}
}

func withTiming(change func(*timing)) option { return func(f *fleet) { change(&f.timing) } }

func withFlags(flags ...string) option {
	return func(f *fleet) { f.flags = append(f.flags, flags...) }
}

// newFleet makes a fleet on SQLite and a redis-server of its own, without any process.
func newFleet(t testing.TB, options ...option) *fleet {
	t.Helper()
	f := &fleet{t: t, folder: t.TempDir(), timing: short(), procs: map[string]*process{}}
	for _, o := range options {
		o(f)
	}
	if f.database == "" {
		f.database = "sqlite:" + filepath.Join(f.folder, "aviary.db")
	}
	if f.blobURL == "" {
		f.blobURL = "file:" + filepath.Join(f.folder, "blobs")
	}
	if f.redisURL == "" {
		withRedis()(f)
	}
	for _, dir := range []string{f.engines(), filepath.Join(f.folder, "logs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	if f.store, err = store.Open(t.Context(), f.database, store.Options{LockWait: patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.store.Close() })
	if f.blobs, err = store.OpenBlobs(t.Context(), f.blobURL); err != nil {
		t.Fatal(err)
	}
	f.db = openSQL(t, f.database)
	return f
}

// engines is the folder of the fake engines.
func (f *fleet) engines() string { return filepath.Join(f.folder, "engines") }

// add makes a process of a role, which is not started yet.
func (f *fleet) add(name, role string, c child, flags ...string) *process {
	f.t.Helper()
	if c.Timing == (timing{}) {
		c.Timing = f.timing
	}
	c.Folder, c.Node = f.engines(), name
	args := append([]string{
		"serve", "--role", role, "--data-dir", filepath.Join(f.folder, name), "--database-url", f.database, "--blob-url", f.blobURL,
		"--redis-url", f.redisURL, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-format", "json", "--log-level", "debug",
		"--ffmpeg", "off", "--tenant-header", tenantHeader,
	}, append(f.flags, flags...)...)
	p := newProcess(f.t, name, filepath.Join(f.folder, "logs"), c, args...)
	f.procs[name] = p
	return p
}

// api starts an API process and waits until it listens.
func (f *fleet) api(name string) *process {
	f.t.Helper()
	p := f.add(name, "api", child{})
	p.start()
	p.listens()
	return p
}

// worker starts a worker and waits until its device is ready.
func (f *fleet) worker(name string, flags ...string) *process {
	f.t.Helper()
	p := f.add(name, "worker", child{}, flags...)
	p.start()
	p.working()
	return p
}

// workers starts w0, w1 and so on, side by side.
func (f *fleet) workers(n int, flags ...string) []*process {
	f.t.Helper()
	list := make([]*process, n)
	for i := range list {
		list[i] = f.add(fmt.Sprintf("w%d", i), "worker", child{}, flags...)
		list[i].start()
	}
	for _, p := range list {
		p.working()
	}
	return list
}

// listens waits until an API process listens, and returns its URL.
func (p *process) listens() string {
	p.t.Helper()
	return p.said(patience, "the API listens").URL
}

// working waits until a worker has its device.
func (p *process) working() {
	p.t.Helper()
	p.said(patience, "device ready")
}

// entry is a job that a client was told was accepted, or may have been.
type entry struct {
	script
	job      string // its id, once a client was told
	key      string // the Idempotency-Key
	class    aviary.Priority
	tenant   string
	canceled bool // a client asked for that, at some time
	at       time.Time
}

// recording makes a script of its own.
func (f *fleet) recording(m mode, work time.Duration) script {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextID++
	return script{mode: m, work: work, id: f.nextID}
}

// accepted enters a job in the ledger.
func (f *fleet) accepted(e *entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ledger = append(f.ledger, e)
}

func (f *fleet) entries() []*entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]*entry(nil), f.ledger...)
}

// settle waits until no job is open.
func (f *fleet) settle(within time.Duration) {
	f.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		var open int
		if err := f.db.QueryRowContext(f.t.Context(), "SELECT count(*) FROM jobs WHERE state IN ('queued', 'running')").Scan(&open); err != nil {
			f.t.Fatal(err)
		}
		if open == 0 {
			return
		}
		if time.Now().After(deadline) {
			f.t.Errorf("%d jobs are still open after %v", open, within)
			return
		}
	}
}

// state waits until a job is in a state, and returns it.
func (f *fleet) state(id string, within time.Duration, ok func(aviary.Job) bool) aviary.Job {
	f.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		job, err := f.store.Job(context.Background(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		if ok(job) {
			return job
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("gave up after %v on %+v", within, job)
		}
	}
}

// onDevice waits until the engine has begun a recording so many times.
func (f *fleet) onDevice(s script, times int, within time.Duration) []time.Time {
	f.t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		if at := starts(f.t, f.engines(), s.id); len(at) >= times {
			return at
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("%v was not begun %d times within %v", s, times, within)
		}
	}
}

// attempts of a job, as recorded.
func (f *fleet) attempts(id string) []aviary.Attempt {
	f.t.Helper()
	list, err := f.store.Attempts(context.Background(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

// node says which of the fleet's processes a worker was. Its name has the process id: HOST-PID-RANDOM.
func (f *fleet) node(worker string) string {
	parts := strings.Split(worker, "-")
	if pid, err := strconv.Atoi(parts[max(0, len(parts)-2)]); err == nil {
		for name, p := range f.procs {
			if p.had(pid) {
				return name
			}
		}
	}
	f.t.Errorf("the worker %s is none of the fleet", worker)
	return worker
}

// all counts lines in the logs of all processes.
func (f *fleet) all(ok func(line) bool) (n int) {
	for _, p := range f.procs {
		n += p.count(ok)
	}
	return n
}

// fenced is how many ends of attempts a process saw refused.
func (f *fleet) fenced(p *process) int {
	return p.count(func(l line) bool { return l.Msg == "the attempt's end was refused: the job has moved on" })
}
