package gpu_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/gpu"
)

func TestSelfTest(t *testing.T) {
	usage := func(rtfx float64) aviary.Transcript {
		return aviary.Transcript{DurationSeconds: 1, Usage: aviary.Usage{AudioSeconds: 1, DeviceSeconds: 0.1, RTFx: rtfx}}
	}
	failed := aviary.Errorf(aviary.CodeDeviceFailed, "device", "It fell off the bus.")
	for _, c := range []struct {
		name   string
		answer aviary.Transcript
		err    error
		good   bool
	}{
		{"a device that works", usage(10), nil, true},
		{"one that takes no time that can be measured", usage(0), nil, true},
		{"one that fails", aviary.Transcript{}, failed, false},
		{"one that measures no number", usage(math.NaN()), nil, false},
		{"infinity", usage(math.Inf(1)), nil, false},
		{"less than nothing", usage(-1), nil, false},
	} {
		d := open(t, &engine{run: func(context.Context) (aviary.Transcript, error) { return c.answer, c.err }})
		err := d.SelfTest(t.Context())
		if (err == nil) != c.good || c.err != nil && !errors.Is(err, c.err) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// listener keeps what it hears.
type listener struct{ heard []aviary.PCM }

func (l *listener) Transcribe(_ context.Context, pcm aviary.PCM, _ aviary.AttentionMode, _ func(time.Duration)) (aviary.Transcript, error) {
	l.heard = append(l.heard, slices.Clone(pcm))
	return aviary.Transcript{}, nil
}

func (l *listener) Close() error { return nil }

func TestTheSelfTestIsASecondOfTheSameFaintSound(t *testing.T) {
	l := &listener{}
	d, err := gpu.Open("cpu", func() (gpu.Engine, error) { return l, nil })
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := errors.Join(d.SelfTest(t.Context()), d.SelfTest(t.Context())); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(l.heard[0], l.heard[1]) || l.heard[0].Duration() != time.Second {
		t.Errorf("heard %v and %v", l.heard[0].Duration(), l.heard[1].Duration())
	}
	quiet := 0
	for _, v := range l.heard[0] {
		if v < -1e-3 || v > 1e-3 {
			t.Fatalf("%v is not faint", v)
		}
		if v == 0 {
			quiet++
		}
	}
	if quiet > 10 {
		t.Errorf("%d samples are silent", quiet)
	}
}
