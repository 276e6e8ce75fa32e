package cli

import (
	"context"
	"reflect"
	"strings"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/queue"
)

// Program is a binary's command line: what it was built with, and what tests change.
type Program struct {
	Backends []Backend
	Timing   Timing
	// Observe wraps the observer of a server process; nil leaves it as it is.
	Observe func(aviary.Observer) aviary.Observer
}

// Timing is how long the parts of the system wait for each other. A zero field means the default, which is right for production.
type Timing struct {
	Lease     time.Duration // how long a silent worker is believed alive
	Heartbeat time.Duration // carries progress and hears of a cancel, so that it is shorter than the lease needs
	Stall     time.Duration // an attempt without a sign of life for so long hangs
	Grace     time.Duration // between an attempt's run limit, after which it is told to stop, and its worker's end; and once more until the sweeper ends it
	RunFloor  time.Duration // the smallest run limit
	Opening   time.Duration // of a device, weights included; it gives no signs of life
	Term      time.Duration // of a leader
	Keeping   aviary.HousekeepingSchedule
	Queue     queue.Config // but for Drain, which is a setting, and Grace, which is twice the one above
}

// DefaultTiming is right for production.
func DefaultTiming() Timing {
	return Timing{
		Lease:     30 * time.Second,
		Heartbeat: 2 * time.Second,
		Stall:     90 * time.Second,
		Grace:     30 * time.Second,
		RunFloor:  time.Minute,
		Opening:   10 * time.Minute, // gigabytes from a slow disk
		Term:      queue.DefaultTerm,
		Queue:     queue.DefaultConfig(),
	}
}

// withDefaults fills in what is zero.
func (t Timing) withDefaults() Timing {
	fillZeros(reflect.ValueOf(&t).Elem(), reflect.ValueOf(DefaultTiming()))
	return t
}

// fillZeros copies the fields of defaults to those of v that are zero.
func fillZeros(v, defaults reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); {
		case f.Kind() == reflect.Struct:
			fillZeros(f, defaults.Field(i))
		case f.IsZero():
			f.Set(defaults.Field(i))
		}
	}
}

// Main runs a command line and returns the exit code.
func Main(args []string, streams Streams, backends []Backend) int {
	return Program{Backends: backends}.Main(args, streams)
}

// Main runs a command line and returns the exit code.
func (p Program) Main(args []string, streams Streams) int {
	ctx, stop := streams.Signals(context.Background())
	defer stop()
	a := &app{Streams: streams, program: p, settings: DefaultSettings()}
	root := a.rootCommand()
	root.SetArgs(args)
	root.SetIn(streams.In)
	root.SetOut(streams.Out)
	root.SetErr(streams.Err)
	err := root.ExecuteContext(ctx)
	if err != nil && strings.HasPrefix(err.Error(), "unknown command") { // cobra has no error type for it
		err = usageError(err)
	}
	return a.report(ctx, err)
}
