package queue

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/store"
)

// TestWithTheStore runs the queue over the real store: Redis is emptied and a worker is stopped in the middle of its jobs, and every job ends
// with one transcript.
func TestWithTheStore(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, conn *Conn, rec *recorder) {
		ctx := context.Background()
		db, err := store.Open(ctx, "sqlite:"+filepath.Join(t.TempDir(), "aviary.db"), store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		s := newSystem(t, conn, rec, func(c *Config) { c.Drain = time.Millisecond })
		if s.dispatcher, err = NewDispatcher(conn, db, s.cfg, rec.logger()); err != nil {
			t.Fatal(err)
		}
		if s.sweeper, err = NewSweeper(conn, db, s.dispatcher, s.cfg, rec.logger()); err != nil {
			t.Fatal(err)
		}
		s.start()
		ids := createJobs(t, db, 40)
		s.dispatcher.Wake()
		runner := func(worker string) *aviary.Runner {
			r := s.runner(worker)
			r.Store = db
			return r
		}

		// The first worker's device runs one job after another until it holds one for ever.
		hold := newGate()
		var count sync.Mutex
		ran := 0
		first := &fakeDevice{name: "a", work: func(ctx context.Context, job string) error {
			count.Lock()
			ran++
			held := ran == 10
			count.Unlock()
			if held {
				return hold.pass(ctx, job)
			}
			return nil
		}}
		w := s.worker(runner("first"), first)
		held := hold.next(t)
		if err := conn.client.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		second := []*fakeDevice{{name: "b"}, {name: "c"}}
		s.worker(runner("second"), second...)
		eventually(t, "all jobs to succeed", func() bool {
			b, err := db.Backlog(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return b.States[aviary.StateSucceeded] == len(ids)
		})
		for _, id := range ids {
			want := 1
			if id == held {
				want = 2
			}
			checkJob(t, db, id, want)
		}
		for _, d := range append(second, first) {
			if d.overlapped() {
				t.Errorf("two jobs ran at once on %s", d.name)
			}
		}
	})
}

func createJobs(t *testing.T, db aviary.Store, n int) []string {
	t.Helper()
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("job_%04d", i)
		job := aviary.Job{
			ID: ids[i], BlobKey: ids[i], Audio: aviary.Audio{Duration: time.Second},
			Options: aviary.Options{Priority: aviary.Priorities()[i%2]},
		}
		if _, err := db.CreateJob(context.Background(), job, aviary.QueueLimits{}); err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

// checkJob wants a transcript, and a number of attempts of which the last succeeded and those before were released.
func checkJob(t *testing.T, db aviary.Store, id string, attempts int) {
	t.Helper()
	transcript, err := db.Transcript(context.Background(), id)
	if err != nil || transcript.Text != id {
		t.Errorf("%s: transcript %q, %v", id, transcript.Text, err)
	}
	list, err := db.Attempts(context.Background(), id)
	if err != nil || len(list) != attempts {
		t.Fatalf("%s: attempts %+v, %v; want %d", id, list, err, attempts)
	}
	for i, a := range list {
		want := aviary.OutcomeReleased
		if i == attempts-1 {
			want = aviary.OutcomeSucceeded
		}
		if a.Outcome != want {
			t.Errorf("%s: attempt %d ended as %s, want %s", id, i+1, a.Outcome, want)
		}
	}
	job, err := db.Job(context.Background(), id)
	if err != nil || job.Fails != 0 || job.Lost != 0 {
		t.Errorf("%s: fails %d, lost %d, %v", id, job.Fails, job.Lost, err)
	}
}
