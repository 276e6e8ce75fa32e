package queue

import (
	"testing"
	"time"
)

func TestBrake(t *testing.T) {
	t.Parallel()
	type step struct {
		after           time.Duration
		lost, succeeded int // since the step before
		on              bool
	}
	for name, steps := range map[string][]step{
		"nothing happens":            {{0, 0, 0, false}, {time.Minute, 0, 0, false}},
		"a few losses":               {{0, 0, 0, false}, {time.Second, 9, 0, false}},
		"ten, and nothing else":      {{0, 0, 0, false}, {time.Second, 9, 0, false}, {time.Second, 1, 0, true}},
		"lost before the first look": {{0, 10, 0, false}, {time.Second, 9, 0, false}, {time.Second, 1, 0, true}},
		"successes before the first": {{0, 0, 1000, false}, {time.Second, 10, 0, true}},
		"a fifth is not above":       {{0, 0, 0, false}, {time.Second, 10, 40, false}, {time.Second, 1, 0, true}},
		"it goes when they succeed":  {{0, 0, 0, false}, {time.Second, 10, 0, true}, {time.Minute, 0, 39, true}, {time.Minute, 0, 1, false}},
		"it goes with time":          {{0, 0, 0, false}, {time.Second, 20, 0, true}, {brakeSpan - time.Second, 0, 0, true}, {time.Second, 0, 0, false}},
		"old successes do not help":  {{0, 0, 0, false}, {time.Second, 0, 1000, false}, {brakeSpan, 10, 0, true}},
		"a trickle": {
			{0, 0, 0, false}, {2 * time.Minute, 3, 0, false}, {2 * time.Minute, 3, 0, false}, {2 * time.Minute, 3, 0, false}, {2 * time.Minute, 3, 0, false},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b brake
			now, lost, succeeded := time.Now(), 300, 500
			for i, s := range steps {
				now = now.Add(s.after)
				lost, succeeded = lost+s.lost, succeeded+s.succeeded
				if got := b.observe(now, lost, succeeded); got != s.on {
					t.Errorf("step %d: %v, want %v", i, got, s.on)
				}
			}
		})
	}
}

// TestBrakeForgets: what is kept is bounded by the span.
func TestBrakeForgets(t *testing.T) {
	t.Parallel()
	var b brake
	now := time.Now()
	for n := range 10_000 {
		now = now.Add(10 * time.Second)
		b.observe(now, n, 0)
	}
	if n := len(b.points); n > int(brakeSpan/(10*time.Second))+2 {
		t.Errorf("%d points are kept", n)
	}
}
