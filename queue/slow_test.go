//go:build unix

package queue

import (
	"context"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// slow skips a test that waits for asynq's constants or for timeouts, unless AVIARY_TEST_SLOW=1.
func slow(t *testing.T) {
	t.Helper()
	if os.Getenv("AVIARY_TEST_SLOW") != "1" {
		t.Skip("takes a minute; AVIARY_TEST_SLOW=1 runs it")
	}
	t.Parallel()
}

// TestLeaseLost is the slot fault with asynq's real lease: Redis is away for longer than the 30 s of a lease while a job runs. asynq then cancels
// its own context, frees the slot and takes the next task when Redis is back. The job neither stops nor gets company.
func TestLeaseLost(t *testing.T) {
	slow(t)
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	s := newSystem(t, dial(t, server, rec), rec).start()
	first := s.submit(aviary.PriorityBulk, 1)[0]
	work := newGate()
	device := &fakeDevice{name: "a", work: work.pass} // it would stop with its context
	s.worker(s.runner("w"), device)
	work.next(t)
	server.kill()
	s.store.add(aviary.PriorityInteractive, "job_next")
	sleep(context.Background(), 45*time.Second, nil)
	server.start()
	eventually(t, "asynq to take the next task beside the running one", func() bool {
		active, err := s.conn.client.LRange(context.Background(), keyOf(aviary.PriorityInteractive, "active"), 0, -1).Result()
		return err == nil && len(active) == 1
	})
	if got := device.ran(); !slices.Equal(got, []string{first}) {
		t.Errorf("ran %v", got)
	}
	close(work.open)
	s.store.awaitDone(t, 2)
	s.wantOnce([]string{first, "job_next"}, device)
}

// TestStopWhileRedisHangs: a server that takes connections and answers nothing. The job is released at once, the process is free soon.
func TestStopWhileRedisHangs(t *testing.T) {
	slow(t)
	rec := newRecorder(t)
	server := newRedisServer(t)
	server.start()
	s := newSystem(t, dial(t, server, rec), rec, func(c *Config) { c.Drain = 10 * time.Millisecond }).start()
	id := s.submit(aviary.PriorityBulk, 1)[0]
	work := newGate()
	w := s.worker(s.runner("w"), &fakeDevice{name: "a", work: work.pass}, &fakeDevice{name: "b", work: work.pass})
	work.next(t)
	if err := server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	stopped := make(chan error)
	go func() { stopped <- w.Stop(context.Background()) }()
	s.store.await(t, "the job to be released", func() bool { return s.store.rows[id].State == aviary.StateQueued })
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the job was released after %v", took)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > shutdownFor+cutOffFor {
		t.Errorf("Stop took %v", took)
	}
	t.Logf("Stop took %v", time.Since(began))
}
