package queue

import (
	"fmt"
	"time"
)

// Config says how the queue behaves. Start from DefaultConfig.
type Config struct {
	// Devices is the number of devices in the whole deployment. Zero counts the lanes that are registered in Redis.
	Devices int
	// InteractiveWindow is how many interactive tickets at most are handed over and unclaimed.
	InteractiveWindow int
	// BulkPerDevice is the same for bulk tickets, for each device: enough that no device waits for the dispatcher, and so few that an order
	// of jobs is decided as late as possible.
	BulkPerDevice int

	// BusyTick and IdleTick are the pauses between two passes of the dispatcher, while there is more to hand over and while there is not.
	// A wake-up ends either.
	BusyTick, IdleTick time.Duration
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
	// Page is how many lost attempts are ended at once.
	Page int
}

// DefaultConfig is right for production.
func DefaultConfig() Config {
	return Config{
		InteractiveWindow: 200,
		BulkPerDevice:     2,
		BusyTick:          200 * time.Millisecond,
		IdleTick:          time.Second,
		LongestPause:      3 * time.Second,
		Poll:              200 * time.Millisecond,
		Drain:             30 * time.Second,
		Release:           15 * time.Second,
		SweepEvery:        10 * time.Second,
		StrandedAfter:     15 * time.Second,
		Page:              100,
	}
}

// Validate names the first field that cannot be.
func (c Config) Validate() error {
	if c.Devices < 0 {
		return fmt.Errorf("queue: Devices is %d; zero or more is needed", c.Devices)
	}
	if c.Drain < 0 {
		return fmt.Errorf("queue: Drain is %v; zero or more is needed", c.Drain)
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"InteractiveWindow", c.InteractiveWindow}, {"BulkPerDevice", c.BulkPerDevice}, {"Page", c.Page}} {
		if f.value < 1 {
			return fmt.Errorf("queue: %s is %d; at least 1 is needed", f.name, f.value)
		}
	}
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"BusyTick", c.BusyTick}, {"IdleTick", c.IdleTick}, {"LongestPause", c.LongestPause}, {"Poll", c.Poll},
		{"Release", c.Release}, {"SweepEvery", c.SweepEvery}, {"StrandedAfter", c.StrandedAfter},
	} {
		if f.value <= 0 {
			return fmt.Errorf("queue: %s is %v; a positive duration is needed", f.name, f.value)
		}
	}
	if c.BusyTick > c.IdleTick {
		return fmt.Errorf("queue: BusyTick %v is longer than IdleTick %v", c.BusyTick, c.IdleTick)
	}
	return nil
}
