// Package gpu is the worker's side of devices: one owner goroutine on its own OS thread per device, through which every call of the
// engine goes, so that a device runs one job at a time whatever its callers do. It decides nothing about jobs, queues or attention, and knows
// no backend: cmd hands it a constructor.
package gpu

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/aviary-asr/aviary"
)

// Engine transcribes. All its methods are called on the device's thread, one at a time. While it works it asks for ctx.Err, of the ctx that it was handed and not of one
// derived from it, several times a second: that is its sign of life. *asr.Engine is one.
type Engine interface {
	Transcribe(ctx context.Context, pcm aviary.PCM, mode aviary.AttentionMode, progress func(time.Duration)) (aviary.Transcript, error)
	Close() error
}

// Device is an aviary.Device: a named device that owns its engine and its thread.
type Device struct {
	name string
	work chan func(Engine)

	close sync.Once
	quit  chan struct{} // closed by Close
	gone  chan struct{} // closed when the thread has ended
	err   error         // of the engine's Close; read after gone
}

// ErrClosed is returned by a device after Close.
var ErrClosed = errors.New("the device is closed")

// Open starts the device's thread and builds the engine on it. It returns when the engine is ready, or could not be built.
func Open(name string, build func() (Engine, error)) (*Device, error) {
	d := &Device{name: name, work: make(chan func(Engine)), quit: make(chan struct{}), gone: make(chan struct{})}
	ready := make(chan error)
	go d.own(build, ready)
	if err := <-ready; err != nil {
		<-d.gone
		return nil, fmt.Errorf("device %s: %w", name, err)
	}
	return d, nil
}

// Name is "cpu", "cuda:0" and so on.
func (d *Device) Name() string { return d.name }

// own is the life of the device's thread. Drivers bind their context to a thread, so the goroutine never leaves it.
func (d *Device) own(build func() (Engine, error), ready chan<- error) {
	defer close(d.gone)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	engine, err := build()
	ready <- err
	if err != nil {
		return
	}
	defer func() { d.err = engine.Close() }()
	for {
		select {
		case f := <-d.work:
			f(engine)
		case <-d.quit:
			return
		}
	}
}

// Transcribe runs one job on the device's thread; a second caller waits for its turn, or for its context. A panic of the engine, which
// only a mistake in model code can cause, fails this call with CodeEngineFailed and leaves the device usable.
func (d *Device) Transcribe(ctx context.Context, pcm aviary.PCM, mode aviary.AttentionMode, progress func(time.Duration)) (aviary.Transcript, error) {
	type answer struct {
		t   aviary.Transcript
		err error
	}
	done := make(chan answer, 1)
	job := func(e Engine) {
		t, err := guarded(ctx, e, pcm, mode, progress)
		done <- answer{t, err}
	}
	select {
	case d.work <- job:
	case <-ctx.Done():
		return aviary.Transcript{}, context.Cause(ctx)
	case <-d.quit:
		return aviary.Transcript{}, ErrClosed
	}
	// The engine honors ctx by itself; returning before it does would let its caller start another job on a busy device.
	a := <-done
	return a.t, a.err
}

func guarded(ctx context.Context, e Engine, pcm aviary.PCM, mode aviary.AttentionMode, progress func(time.Duration)) (t aviary.Transcript, err error) {
	const op = "gpu.transcribe"
	defer func() {
		if p := recover(); p != nil {
			err = aviary.WrapError(aviary.CodeEngineFailed, op, fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "The engine failed on this audio.")
		}
	}()
	return e.Transcribe(ctx, pcm, mode, progress)
}

// Close waits for the running job, closes the engine, and ends the thread.
func (d *Device) Close() error {
	d.close.Do(func() { close(d.quit) })
	<-d.gone
	return d.err
}
