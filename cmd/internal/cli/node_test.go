package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
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
	t.Parallel()
	dir := t.TempDir()
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids { // at the first start of several processes
		wg.Go(func() {
			var err error
			if ids[i], err = nodeID(t.Context(), dir, slog.New(slog.DiscardHandler)); err != nil {
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
}

// A node's id is believed only where and as long as it was made for; the one that takes its place then stays.
func TestANodeIsNewAtAnotherPlace(t *testing.T) {
	t.Parallel()
	read := func(t *testing.T, dir string) (id, logged string) {
		t.Helper()
		var log bytes.Buffer
		id, err := nodeID(t.Context(), dir, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil || len(id) != 26 {
			t.Fatalf("node %q, %v", id, err)
		}
		return id, log.String()
	}
	with := func(key, value string) func(*testing.T, []byte) []byte {
		return func(t *testing.T, content []byte) []byte {
			t.Helper()
			var held map[string]string
			if err := json.Unmarshal(content, &held); err != nil || held[key] == "" || held[key] == value {
				t.Fatalf("no %s in %s: %v", key, content, err)
			}
			held[key] = value
			content, err := json.Marshal(held)
			if err != nil {
				t.Fatal(err)
			}
			return content
		}
	}
	same := func(_ *testing.T, content []byte) []byte { return content }
	for _, tt := range []struct {
		name   string
		change func(t *testing.T, content []byte) []byte
		into   func(t *testing.T, dir string) string
		isNew  bool
	}{
		{"as it was", same, nil, false},
		{"renamed", same, renamed, false},
		{"copied", same, copied, true},
		{"another host", with("host", "elsewhere"), nil, true},
		{"another boot", with("boot", "earlier"), nil, true},
		{"torn", func(_ *testing.T, content []byte) []byte { return content[:len(content)/2] }, nil, true},
		{"empty", func(*testing.T, []byte) []byte { return nil }, nil, true},
		{"garbage", with("node", "somebody"), nil, true},
		{"the first format", func(*testing.T, []byte) []byte { return []byte("01ARZ3NDEKTSV4RRFFQ69G5FAV\n") }, nil, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			id, _ := read(t, dir)
			content, err := os.ReadFile(filepath.Join(dir, "node"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "node"), tt.change(t, content), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.into != nil {
				dir = tt.into(t, dir)
			}
			then, log := read(t, dir)
			if isNew := then != id; isNew != tt.isNew || tt.isNew != strings.Contains(log, "level=INFO") || tt.isNew != strings.Contains(log, then) {
				t.Errorf("node %s was %s; logged %q", then, id, log)
			}
			if again, log := read(t, dir); again != then || log != "" {
				t.Errorf("then node %s, not %s: %s", again, then, log)
			}
		})
	}
}

func renamed(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "renamed")
	if err := os.Rename(dir, to); err != nil {
		t.Fatal(err)
	}
	return to
}

func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// What cannot be read says nothing against the device.
func TestAnUnreadableRecordIsNotTheDevicesFault(t *testing.T) {
	t.Parallel()
	s := newSickness(t.TempDir(), "cpu")
	if err := os.MkdirAll(s.file, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.cordon(); exitCode(err) != exitLocalIO || !strings.Contains(err.Error(), s.file) {
		t.Errorf("exit code %d, want %d, of %v", exitCode(err), exitLocalIO, err)
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
	if code := exitCode(s.cordon()); code != exitDeviceFailed {
		t.Errorf("exit code %d", code)
	}
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
