package gpu

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/aviary-asr/aviary"
)

// SelfTest runs a second of a faint signal through the device, before it is given jobs. A device that fails it, or that measures what cannot be, is not to be
// used. What the model hears in the signal does not matter.
func (d *Device) SelfTest(ctx context.Context) error {
	const op = "gpu.self_test"
	t, err := d.Transcribe(ctx, SelfTestSignal(), "", func(time.Duration) {})
	if err != nil {
		return fmt.Errorf("%s: device %s: %w", op, d.name, err)
	}
	for _, m := range []struct {
		name  string
		value float64
	}{
		{"duration", t.DurationSeconds}, {"audio seconds", t.Usage.AudioSeconds}, {"device seconds", t.Usage.DeviceSeconds}, {"RTFx", t.Usage.RTFx},
	} {
		if math.IsNaN(m.value) || math.IsInf(m.value, 0) || m.value < 0 {
			return aviary.Errorf(aviary.CodeDeviceFailed, op, "device %s: the %s of a second of audio is %v", d.name, m.name, m.value)
		}
	}
	return nil
}

// SelfTestSignal is what SelfTest has transcribed: the same faint noise around a tone each time. Silence would let a device pass that multiplies with zeros.
func SelfTestSignal() aviary.PCM {
	const level, hertz = 1e-3, 220
	pcm := make(aviary.PCM, aviary.SampleRate)
	noise := uint32(1)
	for i := range pcm {
		noise = noise*1664525 + 1013904223
		tone := math.Sin(2 * math.Pi * hertz * float64(i) / aviary.SampleRate)
		pcm[i] = float32(level * (tone + float64(int32(noise))/(1<<31)) / 2)
	}
	return pcm
}
