package gpu_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/gpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// engine is scripted: run is called for each job.
type engine struct {
	run    func(ctx context.Context) (aviary.Transcript, error)
	closed atomic.Int32
}

func (e *engine) Transcribe(ctx context.Context, _ aviary.PCM, _ aviary.AttentionMode, _ func(time.Duration)) (aviary.Transcript, error) {
	return e.run(ctx)
}
func (e *engine) Close() error { e.closed.Add(1); return nil }

func open(t *testing.T, e *engine) *gpu.Device {
	t.Helper()
	d, err := gpu.Open("cpu", func() (gpu.Engine, error) { return e, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestDeviceRunsOneJobAtATime(t *testing.T) {
	var running, most atomic.Int32
	e := &engine{run: func(context.Context) (aviary.Transcript, error) {
		most.Store(max(most.Load(), running.Add(1)))
		time.Sleep(time.Millisecond) // long enough for an overlap to show
		running.Add(-1)
		return aviary.Transcript{Text: "one"}, nil
	}}
	d := open(t, e)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if got, err := d.Transcribe(t.Context(), nil, "", nil); err != nil || got.Text != "one" {
				t.Errorf("got %q, %v", got.Text, err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d jobs ran at once", most.Load())
	}
}

func TestDeviceSurvivesAPanic(t *testing.T) {
	calls := 0
	d := open(t, &engine{run: func(context.Context) (aviary.Transcript, error) {
		if calls++; calls == 1 {
			panic("shape")
		}
		return aviary.Transcript{Text: "two"}, nil
	}})
	_, err := d.Transcribe(t.Context(), nil, "", nil)
	if aviary.CodeOf(err) != aviary.CodeEngineFailed {
		t.Fatalf("got %v, want engine_failed", err)
	}
	if got, err := d.Transcribe(t.Context(), nil, "", nil); err != nil || got.Text != "two" {
		t.Fatalf("after a panic: got %q, %v", got.Text, err)
	}
}

func TestDeviceWaitersHonourTheirContext(t *testing.T) {
	busy, free := make(chan struct{}), make(chan struct{})
	d := open(t, &engine{run: func(context.Context) (aviary.Transcript, error) {
		close(busy)
		<-free
		return aviary.Transcript{}, nil
	}})
	first := make(chan error, 1)
	go func() { _, err := d.Transcribe(t.Context(), nil, "", nil); first <- err }()
	<-busy
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(aviary.ErrDrain)
	if _, err := d.Transcribe(ctx, nil, "", nil); !errors.Is(err, aviary.ErrDrain) {
		t.Errorf("got %v, want the cause of the context", err)
	}
	close(free)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestDeviceClose(t *testing.T) {
	e := &engine{run: func(context.Context) (aviary.Transcript, error) { return aviary.Transcript{}, nil }}
	d := open(t, e)
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if e.closed.Load() != 1 {
		t.Errorf("the engine was closed %d times", e.closed.Load())
	}
	if _, err := d.Transcribe(t.Context(), nil, "", nil); !errors.Is(err, gpu.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
}

func TestOpenReportsAnEngineThatCannotBeBuilt(t *testing.T) {
	want := errors.New("no such model")
	if _, err := gpu.Open("cpu", func() (gpu.Engine, error) { return nil, want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
}
