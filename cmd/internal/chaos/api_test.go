//go:build unix

package chaos

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store/storetest/pgtest"
)

// Test03_DieAfterTheCommit ends the API between the commit of a job and all that follows: its clients are told nothing, and the jobs run.
func Test03_DieAfterTheCommit(t *testing.T) {
	t.Parallel()
	posts := 2
	if rounds() > 1 {
		posts = 10
	}
	f := newFleet(t)
	f.api("ctl")
	f.workers(1)
	api := f.add("api", "api", child{DieAccepting: 1})
	api.start()
	var posted []*entry
	var died []time.Time
	for range posts {
		e := &entry{script: f.recording(modeOK, 0)}
		posted = append(posted, e)
		if a, err := f.post(t.Context(), api.listens(), e); err == nil {
			t.Errorf("the dead answer %d %s", a.status, a.body)
		}
		died = append(died, time.Now())
		ends := len(died)
		api.await(patience, "it has died", func() bool { return len(api.exits) >= ends })
	}
	for i, e := range posted {
		if e.job = f.named(e.script); e.job == "" {
			t.Errorf("%v was not committed", e.script)
			continue
		}
		f.accepted(e)
		if at := f.onDevice(e.script, 1, patience); at[0].Sub(died[i]) > 3*time.Second {
			t.Errorf("%v began %v after the API's death", e.script, at[0].Sub(died[i]))
		}
	}
	f.check(20 * time.Second)
}

// named finds the job of a recording whose client was told nothing.
func (f *fleet) named(s script) (id string) {
	f.t.Helper()
	rows, err := f.db.QueryContext(f.t.Context(), "SELECT id FROM jobs WHERE name = '"+s.text()+"'")
	if err != nil {
		f.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if id != "" {
			f.t.Errorf("%v has two jobs", s)
		}
		if err := rows.Scan(&id); err != nil {
			f.t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		f.t.Fatal(err)
	}
	return id
}

// Test04_AnswerLost loses the answer to a post, which is then repeated by many at once, at two processes.
func Test04_AnswerLost(t *testing.T) {
	t.Parallel()
	for _, database := range []struct {
		name    string
		options []option
	}{{"sqlite", nil}, {"postgres", []option{onPostgres}}} {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, database.options...)
			bases := []string{f.api("api0").listens(), f.api("api1").listens()}
			f.workers(1)
			p := newProxy(t, "tcp", strings.TrimPrefix(bases[0], "http://"))
			p.loseRepliesTo(func(said []byte) bool { return bytes.Contains(said, []byte("POST ")) })
			e := &entry{script: f.recording(modeOK, 100*time.Millisecond), key: "K"}
			if a, err := f.post(t.Context(), "http://"+p.address(), e); err == nil {
				t.Fatalf("the answer came through: %d", a.status)
			}
			var wg sync.WaitGroup
			copies := make([]*entry, 16)
			for i := range copies {
				again := *e
				copies[i] = &again
				wg.Go(func() {
					if err := f.persevere(t.Context(), func() string { return bases[i%2] }, &again); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			for _, c := range copies {
				if c.job != copies[0].job {
					t.Errorf("one key has the jobs %s and %s", c.job, copies[0].job)
				}
			}
			other := &entry{script: f.recording(modeOK, 0), key: "K"}
			if a, err := f.post(t.Context(), bases[1], other); err != nil || a.status != http.StatusUnprocessableEntity || a.code != aviary.CodeIdempotencyKeyReused {
				t.Errorf("the key with another file: %d %s, %v", a.status, a.body, err)
			}
			f.check(20 * time.Second)
			if n := f.count("SELECT count(*) FROM jobs"); n != 1 {
				t.Errorf("%d jobs of one key", n)
			}
			if at := starts(t, f.engines(), e.id); len(at) != 1 {
				t.Errorf("it ran %d times", len(at))
			}
		})
	}
}

func (f *fleet) count(query string) (n int) {
	f.t.Helper()
	if err := f.db.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		f.t.Fatalf("%s: %v", query, err)
	}
	return n
}

// Test21_StoreAway takes the store away at a claim and at the write of a result.
func Test21_StoreAway(t *testing.T) {
	t.Parallel()
	long(t, "the store is away for 20 s, twice")
	const away = 20 * time.Second
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		storeAway(t, newFleet(t), func(f *fleet) (back func()) {
			conn, err := f.db.Conn(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.ExecContext(context.Background(), "BEGIN EXCLUSIVE"); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := conn.ExecContext(context.Background(), "ROLLBACK"); err != nil {
					t.Error(err)
				}
				conn.Close()
			}
		}, away)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := pgtest.NewServer(t)
		storeAway(t, newFleet(t, func(f *fleet) { f.database = server.Schema(t) }), func(*fleet) func() {
			if err := server.Crash(); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := server.Start(); err != nil {
					t.Error(err)
				}
			}
		}, away)
	})
}

func storeAway(t *testing.T, f *fleet, take func(*fleet) (back func()), away time.Duration) {
	base := f.api("api").listens()
	w := f.worker("w0")
	// At the claim: the ticket is in Redis, and the worker that could take it is frozen until the store is away.
	w.signal(syscall.SIGSTOP)
	atClaim := f.submit(base, f.recording(modeOK, 0))
	f.await("the ticket is in Redis", func() bool { return len(f.redis.keys("asynq:{interactive}:t:*")) == 1 })
	back := take(f)
	w.signal(syscall.SIGCONT)
	refused := 0
	for end := time.Now().Add(away); time.Now().Before(end); {
		e := &entry{script: f.recording(modeOK, 0)}
		a, err := f.post(t.Context(), base, e)
		if err != nil || a.accepted() || a.status < 500 {
			t.Errorf("post without a store: %d %s, %v", a.status, a.body, err)
		}
		if a.status == http.StatusServiceUnavailable {
			refused++
		}
		time.Sleep(200 * time.Millisecond)
	}
	back()
	if refused == 0 {
		t.Error("no post was refused with 503")
	}
	f.settle(60 * time.Second)
	f.uncharged(atClaim, 1)
	// At the result: the store goes while the engine works, and comes back after it is done.
	atResult := f.submit(base, f.recording(modeOK, time.Second))
	f.onDevice(atResult.script, 1, patience)
	back = take(f)
	time.Sleep(away) // the outage
	back()
	f.check(90 * time.Second)
	job, err := f.store.Job(t.Context(), atResult.job)
	if err != nil || job.State != aviary.StateSucceeded {
		t.Errorf("%+v, %v", job, err)
	}
}

// await waits for something that sends no signal.
func (f *fleet) await(what string, ok func() bool) {
	f.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// Test22_DiskFull fills the disk of the blobs and of the database under running jobs.
func Test22_DiskFull(t *testing.T) {
	t.Parallel()
	long(t, "it mounts a file system and fills it")
	disk := t.TempDir()
	if err := mountDisk(disk, "300m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { unmountDisk(disk) })
	f := newFleet(t, func(f *fleet) {
		f.database, f.blobURL = "sqlite:"+filepath.Join(disk, "aviary.db"), "file:"+filepath.Join(disk, "blobs")
	}, withTiming(func(c *timing) { c.RunFloor = time.Minute }))
	base := f.api("api").listens()
	f.workers(1)
	e := f.submit(base, f.recording(modeOK, 2*time.Second))
	f.onDevice(e.script, 1, patience)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	a, err := f.post(t.Context(), base, &entry{script: f.recording(modeOK, 0)})
	if err != nil || a.status != http.StatusServiceUnavailable && a.status != http.StatusInsufficientStorage {
		t.Errorf("post on a full disk: %d %s, %v", a.status, a.body, err)
	}
	time.Sleep(5 * time.Second) // the job ends meanwhile, and its result has no room
	if job, err := f.store.Job(t.Context(), e.job); err != nil || job.State.Final() && job.State != aviary.StateSucceeded {
		t.Errorf("while the disk is full: %+v, %v", job, err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	after := f.submit(base, f.recording(modeOK, 0))
	f.check(60 * time.Second)
	if job, err := f.store.Job(t.Context(), after.job); err != nil || job.State != aviary.StateSucceeded {
		t.Errorf("after it has room again: %+v, %v", job, err)
	}
	f.noStrays()
}

// noStrays checks that each blob is one of a job's.
func (f *fleet) noStrays() {
	f.t.Helper()
	known := map[string]bool{}
	rows, err := readRows(context.Background(), f.db)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range rows {
		known[r.blobKey], known[r.audioKey] = true, true
	}
	list, err := f.blobs.List(context.Background(), "", 10_000)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, b := range list {
		if !known[b.Key] {
			f.t.Errorf("the blob %s is of no job", b.Key)
		}
	}
}

func fillDisk(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for size := len(block); size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(block[:size])
		}
	}
}

// Test23_Cancel cancels jobs at random moments, twice each, with Redis and without.
func Test23_Cancel(t *testing.T) {
	t.Parallel()
	jobs, more := 60, 10
	if rounds() > 1 {
		jobs, more = 1000, 100
	}
	f := newFleet(t)
	base := f.api("api").listens()
	f.workers(4)
	r := chance(t, 0)
	var wg sync.WaitGroup
	room := make(chan struct{}, 16)
	one := func(work, delay time.Duration) {
		e := f.submit(base, f.recording(modeOK, work))
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			time.Sleep(delay) // the random moment
			for range 2 {
				a, err := f.cancel(base, e)
				if err != nil || a.status >= 300 {
					t.Errorf("cancel: %d %s, %v", a.status, a.body, err)
				}
			}
		})
	}
	for range jobs {
		one(between(r, 0, 300*time.Millisecond), between(r, 0, 300*time.Millisecond))
	}
	wg.Wait()
	f.redis.kill()
	for range more {
		one(0, 0)
	}
	wg.Wait()
	f.redis.start()
	long := f.submit(base, f.recording(modeOK, 4*time.Second))
	f.onDevice(long.script, 1, patience)
	asked := time.Now()
	if _, err := f.cancel(base, long); err != nil {
		t.Fatal(err)
	}
	f.state(long.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateCanceled })
	if took, limit := time.Since(asked), f.timing.Heartbeat+slice+500*time.Millisecond; took > limit {
		t.Errorf("a running job was canceled after %v, %v are allowed", took, limit)
	}
	done := f.submit(base, f.recording(modeOK, 0))
	f.state(done.job, patience, func(j aviary.Job) bool { return j.State == aviary.StateSucceeded })
	if a, err := f.cancel(base, done); err != nil || a.job.Status != aviary.StateSucceeded {
		t.Errorf("a job that had succeeded: %d %s, %v", a.status, a.body, err)
	}
	done.canceled = false
	f.check(60 * time.Second)
	if n := f.count("SELECT count(*) FROM jobs WHERE state = 'canceled'"); n < more {
		t.Errorf("only %d jobs were canceled", n)
	}
}
