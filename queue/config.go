package queue

import (
	"fmt"
	"time"
)

// Config says how the queue behaves. Start from DefaultConfig.
type Config struct {
	// Devices is the number of devices in the whole deployment. Zero counts the lanes that are registered in Redis.
	Devices int
	// PerDevice is how many tickets of a class are handed over and unclaimed, for each device: enough that no device waits for the dispatcher, and
	// so few that the order of jobs is decided as late as possible. While devices are faster than the dispatcher's ticks it doubles, up to
	// MaxPerDevice.
	PerDevice, MaxPerDevice int

	// BusyTick and IdleTick are the pauses between two passes of the dispatcher, while there is more to hand over and while there is not. A wake-up
	// ends either. While devices are faster than that, the pause shrinks down to FastTick.
	FastTick, BusyTick, IdleTick time.Duration
	// LongestPause bounds the growing pause while Redis or the store is away.
	LongestPause time.Duration

	// Poll is asynq's pause between two looks at empty queues; half of it is the usual latency of an idle lane.
	Poll time.Duration
	// Drain is how long Worker.Stop lets running jobs go on.
	Drain time.Duration
	// Release is how long Worker.Stop waits for canceled jobs to be given back. A job's last write may take 5 s.
	Release time.Duration

	// SweepEvery is the sweeper's interval, StrandedAfter the age at which it looks after an unclaimed ticket.
	SweepEvery, StrandedAfter time.Duration
	// Grace is how long after its run limit an attempt is ended by the sweeper. Its worker, which should have done so, needs some of it.
	Grace time.Duration
	// Page is how many lost attempts are ended at once.
	Page int
	// DebrisEvery is how often the sweeper looks for what asynq has lost track of in Redis, and DebrisAge for how long that must have been so:
	// asynq's own recoverer comes first.
	DebrisEvery, DebrisAge time.Duration
}

// DefaultTerm is the term of a leader that is right for production: a process that dies is succeeded within it, and one that ends at once.
const DefaultTerm = 5 * time.Second

// DefaultConfig is right for production.
func DefaultConfig() Config {
	return Config{
		PerDevice:     2,
		MaxPerDevice:  64,
		FastTick:      25 * time.Millisecond,
		BusyTick:      200 * time.Millisecond,
		IdleTick:      time.Second,
		LongestPause:  3 * time.Second,
		Poll:          200 * time.Millisecond,
		Drain:         30 * time.Second,
		Release:       15 * time.Second,
		SweepEvery:    10 * time.Second,
		StrandedAfter: 15 * time.Second,
		Grace:         time.Minute,
		Page:          100,
		DebrisEvery:   time.Hour,
		DebrisAge:     time.Hour,
	}
}

// Validate names the first field that cannot be.
func (c Config) Validate() error {
	if c.Devices < 0 {
		return fmt.Errorf("queue: Devices is %d; zero or more is needed", c.Devices)
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{{"Drain", c.Drain}, {"Grace", c.Grace}} {
		if f.value < 0 {
			return fmt.Errorf("queue: %s is %v; zero or more is needed", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"PerDevice", c.PerDevice}, {"MaxPerDevice", c.MaxPerDevice}, {"Page", c.Page}} {
		if f.value < 1 {
			return fmt.Errorf("queue: %s is %d; at least 1 is needed", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"FastTick", c.FastTick}, {"BusyTick", c.BusyTick}, {"IdleTick", c.IdleTick}, {"LongestPause", c.LongestPause}, {"Poll", c.Poll},
		{"Release", c.Release}, {"SweepEvery", c.SweepEvery}, {"StrandedAfter", c.StrandedAfter},
		{"DebrisEvery", c.DebrisEvery}, {"DebrisAge", c.DebrisAge},
	} {
		if f.value <= 0 {
			return fmt.Errorf("queue: %s is %v; a positive duration is needed", f.name, f.value)
		}
	}
	if c.PerDevice > c.MaxPerDevice {
		return fmt.Errorf("queue: PerDevice %d is more than MaxPerDevice %d", c.PerDevice, c.MaxPerDevice)
	}
	if c.FastTick > c.BusyTick {
		return fmt.Errorf("queue: FastTick %v is longer than BusyTick %v", c.FastTick, c.BusyTick)
	}
	if c.BusyTick > c.IdleTick {
		return fmt.Errorf("queue: BusyTick %v is longer than IdleTick %v", c.BusyTick, c.IdleTick)
	}
	return nil
}
