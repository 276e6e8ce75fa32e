package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aviary-asr/aviary/queue"
)

func TestANodeKeepsItsName(t *testing.T) {
	dir := t.TempDir()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids { // at the first start of several processes
		wg.Go(func() {
			var err error
			if ids[i], err = nodeID(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] || len(id) != 26 {
			t.Fatalf("ids %q", ids)
		}
	}
	if other, err := nodeID(t.Context(), t.TempDir()); err != nil || other == ids[0] {
		t.Errorf("another directory is %s, %v", other, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "node"), []byte(ids[0][:10]), 0o600); err != nil {
		t.Fatal(err)
	}
	mended, err := nodeID(t.Context(), dir)
	if err != nil || len(mended) != 26 || mended == ids[0] {
		t.Errorf("after a crash in the middle of the first start: %q, %v", mended, err)
	}
}

func TestADeviceIsCordonedForAnHour(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	s := sickness{device: "cuda:0", file: deviceFile(t.TempDir(), "cuda:0", ".failures"), now: func() time.Time { return now }}
	if filepath.Base(s.file) != "cuda-0.failures" {
		t.Errorf("file %s", s.file)
	}
	if err := os.Mkdir(filepath.Dir(s.file), 0o700); err != nil {
		t.Fatal(err)
	}
	fail := func(job string) {
		t.Helper()
		if err := s.add(job, fmt.Errorf("with %s", job)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(10 * time.Minute)
	}
	cordoned := func(want bool) {
		t.Helper()
		if err := s.cordon(); (err != nil) != want {
			t.Errorf("at %s: %v", now.Format(time.TimeOnly), err)
		}
	}
	cordoned(false)
	fail("a")
	fail("a") // counts once
	fail(selfTest)
	cordoned(false)
	fail(selfTest) // 12:30
	cordoned(true)
	for _, want := range []string{"cuda:0", "with self-test", "13:00:00", s.file} {
		if !strings.Contains(s.cordon().Error(), want) {
			t.Errorf("%v does not say %q", s.cordon(), want)
		}
	}
	now = time.Date(2026, 5, 4, 12, 59, 59, 0, time.UTC)
	cordoned(true)
	now = now.Add(time.Second)
	cordoned(false)
	fail("b") // with those of 12:20 and 12:30
	cordoned(true)
	now = now.Add(-24 * time.Hour) // a clock that was ahead
	cordoned(false)
	if err := os.WriteFile(s.file, []byte(`[{"at"`), 0o600); err != nil {
		t.Fatal(err)
	}
	cordoned(false)
	fail("c")
	if list, err := s.recent(); err != nil || len(list) != 1 || list[0].Job != "c" {
		t.Errorf("after a torn file: %+v, %v", list, err)
	}
}

func TestZerosOfTheTimingAreDefaults(t *testing.T) {
	if got := (Timing{}).withDefaults(); !reflect.DeepEqual(got, DefaultTiming()) {
		t.Errorf("got %+v", got)
	}
	got := Timing{Stall: time.Second, Queue: queue.Config{Page: 7}}.withDefaults()
	want := DefaultTiming()
	want.Stall, want.Queue.Page = time.Second, 7
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestWaitingForALockEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "lock")
	held, err := lockFile(name, true)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := replace(held, "4711\n"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := 0
	_, err = waitForLock(ctx, name, func(holder string) {
		if told++; holder != "4711" {
			t.Errorf("held by %q", holder)
		}
		time.AfterFunc(3*lockPoll, cancel)
	})
	if !errors.Is(err, context.Canceled) || told != 1 {
		t.Errorf("%v, told %d times", err, told)
	}
}
