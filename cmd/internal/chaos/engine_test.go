//go:build unix

package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/gpu"
)

// fakeEngine does what recordings tell it to, and keeps a log of the device that outlives the process.
type fakeEngine struct {
	folder string // of the fleet: logs, locks, counts of tries
	device string // of the fleet: the node and its device
}

// engineEvent is a line of a device's log.
type engineEvent struct {
	Device string `json:"device"`
	PID    int    `json:"pid"`
	Event  string `json:"event"` // start, end, overlap
	ID     int32  `json:"id"`    // of the recording
	At     int64  `json:"at"`    // nanoseconds since 1970, by the clock of the host that all processes share
}

func (e engineEvent) time() time.Time { return time.Unix(0, e.At) }

const (
	eventStart   = "start"
	eventEnd     = "end"
	eventOverlap = "overlap" // the device was in use: the very thing that may never be
)

// slice is how long the engine works between two looks at its context.
const slice = 50 * time.Millisecond

// Transcribe implements gpu.Engine.
func (e *fakeEngine) Transcribe(ctx context.Context, pcm aviary.PCM, _ aviary.AttentionMode, progress func(time.Duration)) (aviary.Transcript, error) {
	if slices.Equal(pcm, gpu.SelfTestSignal()) {
		return aviary.Transcript{}, nil
	}
	s, err := readScript(pcm)
	if err != nil {
		return aviary.Transcript{}, aviary.WrapError(aviary.CodeAudioBroken, "chaos.transcribe", err, "This is no recording of the test.")
	}
	free, err := e.seize(s.id)
	if err != nil {
		return aviary.Transcript{}, err
	}
	defer free()
	try, err := e.try(s.id)
	if err != nil {
		return aviary.Transcript{}, err
	}
	if err := e.act(ctx, s, try, progress); err != nil {
		return aviary.Transcript{}, err
	}
	seconds := pcm.Duration().Seconds()
	return aviary.Transcript{
		Text: s.text(), DurationSeconds: seconds,
		Segments: []aviary.Segment{{End: seconds, Text: s.text(), Words: []aviary.Word{}}},
		Engine:   aviary.Engine{Model: "fake", DType: "float32", Device: e.device, Attention: aviary.Attention{Mode: aviary.AttentionFull, Reason: "test"}},
		Usage:    aviary.Usage{AudioSeconds: seconds, DeviceSeconds: s.work.Seconds(), RTFx: 1},
	}, nil
}

// act works for the script's time, and then does what else it says.
func (e *fakeEngine) act(ctx context.Context, s script, try int, progress func(time.Duration)) error {
	const op = "chaos.transcribe"
	if !s.always() && try > int(s.times) {
		s.mode = modeOK
	}
	if s.mode == modeHang {
		select {}
	}
	if err := labor(ctx, s, progress); err != nil {
		return err
	}
	switch s.mode {
	case modeKill:
		if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
			return err
		}
		select {}
	case modeFault:
		return fault()
	case modeExit:
		os.Exit(3)
	case modeStray:
		go panic("the script says so, elsewhere")
		select {}
	case modePanic:
		panic("the script says so")
	case modeFlaky:
		return aviary.Errorf(aviary.CodeEngineFailed, op, "The engine failed at try %d.", try)
	case modeSick:
		return aviary.Errorf(aviary.CodeDeviceFailed, op, "The device failed at try %d.", try)
	case modeBad:
		return aviary.Errorf(aviary.CodeAudioBroken, op, "The recording is bad.")
	case modeNoRoom:
		return aviary.Errorf(aviary.CodeDeviceOutOfMemory, op, "The device's memory does not suffice.")
	default:
		return nil
	}
	return nil
}

// labor passes the script's time.
func labor(ctx context.Context, s script, progress func(time.Duration)) error {
	for end := time.Now().Add(s.work); ; {
		left := time.Until(end)
		if left <= 0 {
			return nil
		}
		time.Sleep(min(left, slice)) // this is the work
		done := 1 - max(0, left-slice).Seconds()/s.work.Seconds()
		progress(time.Duration(done * float64(s.audio)))
		if ctx.Err() != nil && s.mode != modeDeaf {
			return context.Cause(ctx)
		}
	}
}

// fault reads a page that may not be read.
func fault() error {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return err
	}
	return fmt.Errorf("read %d where nothing is", page[0])
}

// seize holds the device as hardware would: by a lock of the kernel that no death outlives, and that nobody waits for. Finding it taken is written down, and the
// work goes on, as it would on a real device.
func (e *fakeEngine) seize(id int32) (free func(), err error) {
	f, err := os.OpenFile(filepath.Join(e.folder, e.device+".busy"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	event := eventStart
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		event = eventOverlap
	} else if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := e.note(event, id); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		if err := errors.Join(e.note(eventEnd, id), f.Close()); err != nil {
			panic(err)
		}
	}, nil
}

// note appends to the device's log, in one write.
func (e *fakeEngine) note(event string, id int32) error {
	line, err := json.Marshal(engineEvent{Device: e.device, PID: os.Getpid(), Event: event, ID: id, At: time.Now().UnixNano()})
	if err != nil {
		return err
	}
	return appendTo(filepath.Join(e.folder, e.device+".log"), append(line, '\n'))
}

// try counts the tries at a recording across processes, from 1: a file grows by a byte with each.
func (e *fakeEngine) try(id int32) (int, error) {
	name := filepath.Join(e.folder, fmt.Sprintf("tries-%d", id))
	if err := appendTo(name, []byte{'.'}); err != nil {
		return 0, err
	}
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	return int(info.Size()), nil
}

func appendTo(name string, b []byte) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// Close implements gpu.Engine.
func (e *fakeEngine) Close() error { return nil }

// engineEvents reads the logs of all devices, each in its order.
func engineEvents(t testing.TB, folder string) (events []engineEvent) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			var e engineEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%s: %q: %v", name, lines.Text(), err)
			}
			events = append(events, e)
		}
	}
	return events
}

// starts are the times at which the engines began a recording.
func starts(t testing.TB, folder string, id int32) (at []time.Time) {
	t.Helper()
	for _, e := range engineEvents(t, folder) {
		if e.ID == id && e.Event != eventEnd {
			at = append(at, e.time())
		}
	}
	return at
}
