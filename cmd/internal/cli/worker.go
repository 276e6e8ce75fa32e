package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/gpu"
	"github.com/aviary-asr/aviary/queue"
)

// workDevice is a device that this process alone uses.
type workDevice struct {
	*gpu.Device
	lock     *os.File
	sickness sickness
}

// Close ends the device's thread, and then lets others have the device.
func (d *workDevice) Close() error { return errors.Join(d.Device.Close(), d.lock.Close()) }

// startWorker takes the devices, which may mean waiting for another process to end, and then jobs.
func (s *System) startWorker(ctx context.Context, backends []Backend) error {
	if err := s.openDevices(ctx, backends); err != nil {
		return err
	}
	runner := &aviary.Runner{
		Store: s.store, Blobs: s.blobs, Prober: s.prober, Observer: s.observer, Log: s.log,
		Worker: s.name, Node: s.node, Lease: s.timing.Lease, Beat: s.timing.Heartbeat, MaxDuration: s.settings.MaxDuration,
		Stall: s.timing.Stall, Grace: s.timing.Grace, RunFloor: s.timing.RunFloor, Hung: s.hung,
	}
	devices := make([]aviary.Device, len(s.devices))
	for i, d := range s.devices {
		s.takeOver(ctx, d.Name())
		devices[i] = d
	}
	worker, err := queue.NewWorker(s.conn, workRunner{runner, s.remember}, devices, s.dispatcher, s.queueConfig(), s.log)
	if err != nil {
		return err
	}
	worker.DeviceLost = s.deviceLost
	s.worker = worker
	return s.worker.Start() //nolint:contextcheck // jobs outlive Start, until Stop
}

// workerName is unique among all processes that share a store, also after a restart with the same process id.
func workerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), ulid.Make().String()[20:])
}

// leaderName is who leads. A process that owns its data directory alone leads again at once after it was killed: nobody else can hold the term that its
// predecessor left.
func (s *System) leaderName() string {
	if s.role == RoleAll {
		return s.node
	}
	return s.name
}

// takeOver ends what earlier processes of this node left open on a device: its lock is ours, so that they are dead. If the store does not answer now, their leases
// run out. That is what happens, too, where locks do not keep anybody out.
func (s *System) takeOver(ctx context.Context, device string) {
	if !locksHold {
		return
	}
	left, err := s.store.TakeOver(ctx, aviary.Claim{Worker: s.name, Node: s.node, Device: device, Lease: s.timing.Lease})
	if err != nil {
		s.log.Warn("the device's earlier attempts were not ended; their leases will run out", "device", device, "err", err)
	}
	for _, r := range left {
		s.log.Warn("took over from a worker that is gone", "job", r.JobID, "attempt", r.Attempt, "device", device, "worker", r.Worker, "state", r.State)
		if r.State == aviary.StateFailed {
			s.metrics.JobsQuarantined(1)
		}
	}
	if len(left) > 0 {
		s.dispatcher.Wake()
	}
}

// hungFor is how long a process that has to end waits for what it may have to leave behind.
const hungFor = 5 * time.Second

// hung ends the process: a call that hangs cannot be ended in any other way. Its own job's end is in the store; the jobs of the other devices go back, uncharged.
func (s *System) hung(h aviary.Hang) {
	s.log.Error("the attempt hangs; the process ends, which alone frees its device", "device", h.Device, "job", h.JobID, "why", h.Why, "code", exitHung)
	s.exitHung(func() {
		if h.InDevice {
			s.remember(h.Device, h.JobID, h.Why)
		}
	}, func(ctx context.Context) { s.worker.GiveBack(ctx, h.Device) })
}

// exitHung ends the process when last, which may hang as well, is done, or is late. note is tried at the same time: its file may be where nothing answers.
func (s *System) exitHung(note func(), last func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), hungFor)
	done := make(chan struct{}, 2)
	go func() { note(); done <- struct{}{} }()
	go func() { last(ctx); done <- struct{}{} }()
	for range cap(done) {
		select {
		case <-done:
		case <-ctx.Done():
		}
	}
	cancel()
	os.Exit(exitHung)
}

// workRunner remembers which job a device was lost with.
type workRunner struct {
	*aviary.Runner
	remember func(device, job string, err error)
}

// Run implements queue.Runner.
func (r workRunner) Run(ctx context.Context, t aviary.Ticket, d aviary.Device) error {
	err := r.Runner.Run(ctx, t, d)
	if errors.Is(err, aviary.ErrDeviceLost) {
		r.remember(d.Name(), t.JobID, err)
	}
	return err
}

// remember notes for later processes that a device failed.
func (s *System) remember(device, job string, err error) {
	for _, d := range s.devices {
		if d.Name() == device {
			d.sickness.note(s.log, job, err)
		}
	}
}

// deviceLost has the process drain and end: the next one tests the device.
func (s *System) deviceLost(device string, err error) {
	s.log.Error("the device failed; the process drains and ends", "device", device, "err", err, "code", exitDeviceFailed)
	select {
	case s.failed <- &exitError{exitDeviceFailed, err}:
	default: // it ends already
	}
}

// openDevices takes the chosen devices one after the other, and leaves out those that cannot be used. It fails if none is left.
func (s *System) openDevices(ctx context.Context, backends []Backend) (err error) {
	chosen, err := chooseDevices(s.settings.Device, backends)
	if err != nil {
		return err
	}
	locks := make([]*os.File, len(chosen))
	defer func() {
		for _, l := range locks {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	for i, c := range chosen {
		if locks[i], err = lockDevice(ctx, s.settings.DataDir, c.name, s.log); err != nil {
			return err
		}
	}
	model, err := openModel(s.settings.Model)
	if err != nil {
		return fmt.Errorf("PARAKEET_MODEL: %w", err)
	}
	defer func() { err = errors.Join(err, model.Close()) }()
	var unfit []error
	for i, c := range chosen {
		sick := newSickness(s.settings.DataDir, c.name)
		d, err := s.openDevice(ctx, c.name, sick, func(ctx context.Context) (gpu.Engine, error) { return c.engine(ctx, s.settings, model) })
		var bad *exitError
		switch {
		case errors.As(err, &bad) && bad.code == exitDeviceFailed:
			s.log.Error("the device is left out", "device", c.name, "err", err)
			unfit = append(unfit, err)
		case err != nil:
			return err
		default:
			s.devices = append(s.devices, &workDevice{d, locks[i], sick})
			locks[i] = nil
			s.log.Info("device ready", "device", c.name)
		}
	}
	if len(s.devices) == 0 {
		return errors.Join(unfit...)
	}
	return nil
}

// openDevice opens a device and tests it. The caller has its lock. An error with exitDeviceFailed is the device's, and any other is nobody's or of the model, with
// which no device would do better.
func (s *System) openDevice(ctx context.Context, name string, sick sickness, build func(context.Context) (gpu.Engine, error)) (*gpu.Device, error) {
	if err := sick.cordon(); err != nil {
		return nil, err
	}
	var d *gpu.Device
	opening := aviary.Watchdog{Limit: s.timing.Opening, Grace: s.timing.Grace} // drivers give no signs of life
	err := s.guard(ctx, name, sick, opening, func(ctx context.Context) (err error) {
		d, err = gpu.Open(name, func() (gpu.Engine, error) { return build(ctx) })
		return err
	})
	if err != nil {
		return nil, s.blame(ctx, sick, err)
	}
	if err = s.guard(ctx, name, sick, aviary.Watchdog{Stall: s.timing.Stall}, d.SelfTest); err == nil {
		return d, nil
	}
	err = aviary.WrapError(aviary.CodeDeviceFailed, "device.test", err, "The device failed its test.")
	return nil, errors.Join(s.blame(ctx, sick, err), d.Close())
}

// guard makes a call of a device that has no job yet. If the call hangs, the process ends.
func (s *System) guard(ctx context.Context, name string, sick sickness, w aviary.Watchdog, call func(context.Context) error) (err error) {
	run, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	_, hangs := w.Do(run, stop, func(ctx context.Context, _ func()) { err = call(ctx) })
	if hangs != nil {
		s.log.Error("the device hangs before its first job; the process ends, which alone frees it", "device", name, "why", hangs, "code", exitHung)
		s.exitHung(func() { sick.note(s.log, selfTest, hangs) }, func(context.Context) {}) //nolint:contextcheck // it outlives ctx, by a bound of its own
	}
	if cause := context.Cause(run); err != nil && errors.Is(cause, aviary.ErrOverdue) {
		return aviary.WrapError(aviary.CodeDeviceFailed, "device.open", errors.Join(cause, err), "The device does not get ready.")
	}
	return err
}

// blame tells errors of a device from others, and remembers that it failed. One with too little memory is not used, and has not failed: somebody else may use it,
// or the model is too large.
func (s *System) blame(ctx context.Context, sick sickness, err error) error {
	if ctx.Err() != nil {
		return err // told to stop
	}
	code := aviary.CodeOf(err)
	if code == aviary.CodeDeviceFailed {
		sick.note(s.log, selfTest, err)
	}
	if code == aviary.CodeDeviceFailed || code == aviary.CodeDeviceOutOfMemory {
		return &exitError{exitDeviceFailed, err}
	}
	return err
}

// note is add for those who can do nothing about its error.
func (s sickness) note(log *slog.Logger, job string, cause error) {
	if err := s.add(job, cause); err != nil {
		log.Error("the device's failure cannot be remembered", "device", s.device, "file", s.file, "err", err)
	}
}
