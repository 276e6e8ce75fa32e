//go:build unix

package chaos

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
)

// TestSlotIsNoLock has asynq free the slot of a job that goes on: by a cancel of asynq's own, as it does when a task's lease is over. The next job waits for the
// device all the same.
func TestSlotIsNoLock(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base := f.api("api").listens()
	w := f.workers(1)[0]
	first := f.submit(base, f.recording(modeDeaf, 3*time.Second))
	f.onDevice(first.script, 1, patience)
	second := f.submit(base, f.recording(modeOK, 0))
	f.await("the second job's ticket is out", func() bool { return len(f.redis.keys("asynq:{interactive}:t:*")) == 2 })
	if err := f.redis.client.Publish(context.Background(), "asynq:cancel", first.job+".1").Err(); err != nil {
		t.Fatal(err)
	}
	f.await("the second job is taken", func() bool { return f.redis.do("LLEN", "asynq:{interactive}:pending") == int64(0) })
	f.check(30 * time.Second)
	for _, e := range []*entry{first, second} {
		f.uncharged(e, 1)
	}
	if n := len(w.ends()); n > 0 {
		t.Errorf("the worker ended %d times", n)
	}
}

// TestTwoProcessesOneDevice starts a second process on a node whose device is in use: it waits until the first is gone, however it goes.
func TestTwoProcessesOneDevice(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	base := f.api("api").listens()
	first := f.worker("w0")
	second := f.add("w0b", "worker", child{}, "--data-dir", filepath.Join(f.folder, "w0"))
	second.start()
	long := f.submit(base, f.recording(modeOK, 2*time.Second))
	f.onDevice(long.script, 1, patience)
	for range 4 {
		f.submit(base, f.recording(modeOK, 300*time.Millisecond))
	}
	told := second.awaits(5*time.Second, func() bool {
		return slices.ContainsFunc(second.lines, func(l line) bool { return l.Msg == deviceTaken })
	})
	if ready := second.count(func(l line) bool { return l.Msg == "device ready" }); !told || ready > 0 {
		t.Errorf("the second process was told that the device is taken: %t; it has the device: %t", told, ready > 0)
	}
	f.onDevice(f.entries()[1].script, 1, patience)
	first.kill()
	first.gone(patience)
	killed := time.Now()
	second.working()
	if took := time.Since(killed); took > 3*time.Second {
		t.Errorf("the second process has the device %v after the first is gone", took)
	}
	f.check(60 * time.Second)
	lost := 0
	for _, e := range f.entries() {
		for _, a := range f.attempts(e.job) {
			if a.Outcome == aviary.OutcomeLost {
				lost++
				if after := a.EndedAt.Sub(killed); after > f.timing.Lease-f.timing.Heartbeat {
					t.Errorf("who has the lock waited %v for the lease of a dead worker", after)
				}
			}
		}
	}
	if lost > 1 {
		t.Errorf("%d attempts were lost with one worker", lost)
	}
}

// deviceTaken is what a worker says while another process has its device.
const deviceTaken = "another process uses the device; waiting for its end"
