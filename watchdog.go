package aviary

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
)

// Watchdog tells work that takes long from work that hangs. A call that hangs in a driver or in a loop cannot be stopped from outside: only the end of
// the process frees its device.
//
// Work gives a sign of life when it looks at its context's Err, or says so. It has to look at the very context that it is handed: to look at one that is
// derived from it is no sign.
type Watchdog struct {
	Stall time.Duration // work without a sign of life for so long hangs; zero: it may be silent
	Limit time.Duration // after so long the work is told to stop, with the cause ErrOverdue; zero: never
	Grace time.Duration // and when it has still not come back by then, it hangs
}

// ErrOverdue stops work that has reached its limit.
var ErrOverdue = errors.New("the run limit is reached")

// Do runs work on a goroutine of its own. It returns when the work has, or, with an error that says why, when the work hangs; then done is closed if it
// comes back after all. stop ends ctx.
//
// What is counted is looks, not the clock: a process that was frozen for an hour finds its work as alive as it left it.
func (w Watchdog) Do(ctx context.Context, stop context.CancelCauseFunc, work func(ctx context.Context, sign func())) (done <-chan struct{}, err error) {
	watched := &watchedContext{Context: ctx}
	returned := make(chan struct{})
	go func() { //nolint:contextcheck // watched is ctx
		defer close(returned)
		work(watched, watched.sign)
	}()
	return returned, w.watch(returned, watched, stop)
}

func (w Watchdog) watch(done <-chan struct{}, work *watchedContext, stop context.CancelCauseFunc) error {
	pause := w.pause()
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	var signs uint64
	var silent, age time.Duration
	for {
		select {
		case <-done:
			return nil
		case <-ticker.C:
		}
		age += pause
		silent += pause
		if now := work.signs.Load(); now != signs {
			signs, silent = now, 0
		}
		switch {
		case w.Stall > 0 && silent >= w.Stall:
			return fmt.Errorf("no sign of life for %v", silent)
		case w.Limit > 0 && age >= w.Limit+w.Grace:
			return fmt.Errorf("not back %v after the run limit of %v", age-w.Limit, w.Limit)
		case w.Limit > 0 && age >= w.Limit:
			stop(ErrOverdue)
		}
	}
}

// pause is between two looks: short enough to be exact within a few percent.
func (w Watchdog) pause() time.Duration {
	pause := 5 * time.Second
	for _, d := range []time.Duration{w.Stall, w.Limit, w.Grace} {
		if d > 0 {
			pause = min(pause, d/10)
		}
	}
	return max(pause, time.Millisecond)
}

// watchedContext counts how often it is looked at.
type watchedContext struct {
	context.Context //nolint:containedctx // it is one
	signs           atomic.Uint64
}

func (c *watchedContext) sign() { c.signs.Add(1) }

// Err is what work in progress asks again and again.
func (c *watchedContext) Err() error {
	c.sign()
	return c.Context.Err()
}

// stacks is where all goroutines are.
func stacks() string {
	for b := make([]byte, 256<<10); ; b = make([]byte, 2*len(b)) {
		if n := runtime.Stack(b, true); n < len(b) || len(b) >= 16<<20 {
			return string(b[:n])
		}
	}
}
