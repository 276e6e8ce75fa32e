package asr

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
	"github.com/aviary-asr/aviary/asr/logmel"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/parakeet"
)

// v3 is the 0.6B model on a device.
func v3(t *testing.T, dtype ml.DType) Shape {
	t.Helper()
	c, err := parakeet.NewConfig(checkpointtest.ParakeetTDT06BV3())
	if err != nil {
		t.Fatal(err)
	}
	return Shape{Config: c, DType: dtype, Backend: ml.Info{Name: "test", RowBlock: 256, PadRows: 8}, ScratchBytes: 1 << 20}
}

func policy(mode aviary.AttentionMode) aviary.AttentionPolicy {
	p := aviary.DefaultAttentionPolicy()
	p.Mode = mode
	return p
}

const second = logmel.Samples(logmel.SampleRate)

// TestPlan is the table of decisions.
func TestPlan(t *testing.T) {
	window := parakeet.Attention{Left: 128, Right: 128}
	trained := &parakeet.Attention{Left: 70, Right: 70}
	for _, c := range []struct {
		name    string
		samples logmel.Samples
		mode    aviary.AttentionMode
		budget  int64 // added to what full attention needs; 0 is no budget
		shipped *parakeet.Attention
		change  func(*aviary.AttentionPolicy)
		want    parakeet.Attention
		reason  string
	}{
		{name: "nothing", want: parakeet.Full, mode: aviary.AttentionAuto, reason: "below"},
		{name: "30 s", samples: 30 * second, mode: aviary.AttentionAuto, want: parakeet.Full, reason: "below the threshold of 300 s"},
		{name: "a sample below the threshold", samples: 300*second - 1, mode: aviary.AttentionAuto, want: parakeet.Full, reason: "below"},
		{name: "at the threshold", samples: 300 * second, mode: aviary.AttentionAuto, want: window, reason: "at or above"},
		{name: "an hour", samples: 3600 * second, mode: aviary.AttentionAuto, want: window, reason: "at or above"},
		{name: "an hour, full", samples: 3600 * second, mode: aviary.AttentionFull, want: parakeet.Full, reason: "asked for"},
		{name: "a second, local", samples: second, mode: aviary.AttentionLocal, want: window, reason: "asked for"},
		{name: "another threshold", samples: 30 * second, mode: aviary.AttentionAuto, want: window,
			reason: "30.0 s is at or above the threshold of 10 s", change: func(p *aviary.AttentionPolicy) { p.Threshold = 10 * time.Second }},
		{name: "another window", samples: 400 * second, mode: aviary.AttentionAuto, want: parakeet.Attention{Left: 64, Right: 32}, reason: "at or above",
			change: func(p *aviary.AttentionPolicy) { p.Context = aviary.AttentionContext{Left: 64, Right: 32} }},
		{name: "trained with a window", samples: second, mode: aviary.AttentionAuto, shipped: trained,
			want: *trained, reason: "trained with a window"},
		{name: "trained with a window, full asked for", samples: second, mode: aviary.AttentionFull, shipped: trained,
			want: parakeet.Full, reason: "asked for"},
		{name: "full would not fit", samples: 290 * second, mode: aviary.AttentionAuto, budget: -1, want: window,
			reason: "auto: full attention would need"},
		{name: "full fits", samples: 290 * second, mode: aviary.AttentionAuto, budget: 1, want: parakeet.Full, reason: "below"},
	} {
		s := v3(t, ml.Float32)
		if c.shipped != nil {
			s.Config.AttentionLeft, s.Config.AttentionRight = c.shipped.Left, c.shipped.Right
		}
		set := Settings{Policy: policy(c.mode)}
		if c.budget != 0 {
			p, err := NewPlan(s, c.samples, Settings{Policy: policy(aviary.AttentionFull)})
			if err != nil {
				t.Fatal(err)
			}
			set.MemoryBudget = p.Memory.PeakBytes() + c.budget
		}
		if c.change != nil {
			c.change(&set.Policy)
		}
		p, err := NewPlan(s, c.samples, set)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		mode := aviary.AttentionLocal
		if c.want.IsFull() {
			mode = aviary.AttentionFull
		}
		if p.Attention != c.want || p.Mode != mode || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%s: %s attention %v because %q, want %v because %q", c.name, p.Mode, p.Attention, p.Reason, c.want, c.reason)
		}
		if again, err := NewPlan(s, c.samples, set); err != nil || again != p {
			t.Errorf("%s: the second plan is another", c.name)
		}
		if p.Samples != c.samples || p.EncoderFrames != parakeet.Frames(c.samples/160).Encoded() {
			t.Errorf("%s: lengths %d, %d, %d", c.name, p.Samples, p.Frames, p.EncoderFrames)
		}
	}
}

// TestPlanRefuses: what does not fit and has no way out is refused before it starts, with the numbers.
func TestPlanRefuses(t *testing.T) {
	const gib = int64(1) << 30
	for _, c := range []struct {
		name   string
		mode   aviary.AttentionMode
		length logmel.Samples
		budget int64
		hint   string
	}{
		{"full asked for", aviary.AttentionFull, 3600 * second, 3 * gib, "auto or local"},
		{"local too long", aviary.AttentionLocal, 10 * 3600 * second, 4 * gib, "s fit with local attention"},
		{"auto too long", aviary.AttentionAuto, 10 * 3600 * second, 4 * gib, "s fit with local attention"},
		{"auto, short, but nothing fits", aviary.AttentionAuto, 60 * second, 2 * gib, ""},
	} {
		set := Settings{Policy: policy(c.mode), MemoryBudget: c.budget}
		_, err := NewPlan(v3(t, ml.Float32), c.length, set)
		var e *aviary.Error
		if !errors.As(err, &e) || e.Code != aviary.CodeDeviceOutOfMemory {
			t.Errorf("%s: %v, want %s", c.name, err, aviary.CodeDeviceOutOfMemory)
			continue
		}
		if e.Limit != float64(c.budget) || e.Actual <= e.Limit || e.Unit != "bytes" || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%s: limit %v, actual %v %s, hint %q", c.name, e.Limit, e.Actual, e.Unit, e.Hint)
		}
		if _, err := NewPlan(v3(t, ml.Float32), c.length, Settings{Policy: policy(c.mode)}); err != nil {
			t.Errorf("%s, without a budget: %v", c.name, err)
		}
	}
}

// TestLongest: the longest audio that is said to fit has a plan, and a little more has none.
func TestLongest(t *testing.T) {
	const gib = int64(1) << 30
	var lengths []time.Duration
	for _, mode := range []aviary.AttentionMode{aviary.AttentionFull, aviary.AttentionLocal, aviary.AttentionAuto} {
		for _, shared := range []bool{false, true} {
			s, set := v3(t, ml.BFloat16), Settings{Policy: policy(mode), MemoryBudget: 2 * gib, SharedMemory: shared}
			longest := Longest(s, set)
			n := logmel.Samples(longest / (time.Second / logmel.SampleRate))
			if _, err := NewPlan(s, n, set); err != nil {
				t.Errorf("%s: %v is said to fit: %v", mode, longest, err)
			}
			if _, err := NewPlan(s, n+2*second, set); err == nil {
				t.Errorf("%s: more than %v fits", mode, longest)
			}
			lengths = append(lengths, longest)
		}
	}
	if lengths[0] >= lengths[2] || lengths[1] >= lengths[0] || lengths[4] != lengths[2] {
		t.Errorf("full %v (shared memory %v), local %v (%v), auto %v (%v)", lengths[0], lengths[1], lengths[2], lengths[3], lengths[4], lengths[5])
	}
	if got := Longest(v3(t, ml.Float32), Settings{Policy: policy(aviary.AttentionAuto), MemoryBudget: gib}); got != 0 {
		t.Errorf("%v of audio with weights that do not fit", got)
	}
	if got := Longest(v3(t, ml.Float32), Settings{Policy: policy(aviary.AttentionAuto)}); got < 999*time.Hour {
		t.Errorf("no budget, and at most %v", got)
	}
}

// TestPlanGrowsLinearly: nothing in a run grows with the square of its length, not even with full attention.
func TestPlanGrowsLinearly(t *testing.T) {
	for _, mode := range []aviary.AttentionMode{aviary.AttentionFull, aviary.AttentionLocal} {
		bytes := func(n logmel.Samples) float64 {
			p, err := NewPlan(v3(t, ml.Float32), n, Settings{Policy: policy(mode)})
			if err != nil {
				t.Fatal(err)
			}
			return float64(p.Memory.BufferBytes)
		}
		first, second := bytes(4*3600*second)-bytes(2*3600*second), bytes(2*3600*second)-bytes(0)
		if ratio := first / second; ratio > 1.01 {
			t.Errorf("%s: hours 2 to 4 take %.2f times the memory of hours 0 to 2", mode, ratio)
		}
	}
}
