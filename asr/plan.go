package asr

import (
	"fmt"
	"time"

	"github.com/aviary-asr/aviary"
	"github.com/aviary-asr/aviary/asr/logmel"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/parakeet"
)

// Shape is what a plan depends on beside the audio: the model and the device.
type Shape struct {
	Config  parakeet.Config
	DType   ml.DType
	Backend ml.Info
	// ScratchBytes is what the backend holds for itself.
	ScratchBytes int64
}

// Settings are the operator's.
type Settings struct {
	Policy aviary.AttentionPolicy
	// MemoryBudget is the number of bytes of device memory that a run may need, weights included; 0 is no bound. It is a configured number,
	// not the memory that happens to be free: the same audio gets the same plan, and so the same text, every time.
	MemoryBudget int64
	// SharedMemory says that the device computes in the host's memory, so that audio and features count, too.
	SharedMemory bool
}

// Plan is how a run will be done.
type Plan struct {
	Attention parakeet.Attention
	Mode      aviary.AttentionMode // full or local
	Reason    string               // why, for people

	Samples       logmel.Samples
	Frames        parakeet.Frames
	EncoderFrames parakeet.EncoderFrames
	Memory        Memory
}

// Memory is the predicted peak of a run. A session keeps the buffers of its longest run: after one, a short run finds more memory
// held than its own plan says, but never more than the longest plan.
type Memory struct {
	WeightBytes  int64
	BufferBytes  int64 // activations on the device
	ScratchBytes int64 // the backend's own
	HostBytes    int64 // audio and features
	shared       bool
}

// PeakBytes is what counts against the budget.
func (m Memory) PeakBytes() int64 {
	n := m.WeightBytes + m.BufferBytes + m.ScratchBytes
	if m.shared {
		n += m.HostBytes
	}
	return n
}

// smallBytes stands for everything that does not grow with the audio and is not worth a formula: rows of the decoder in the
// backend's scratch, and blocks of the log-mel front end and of the position table on the host.
const smallBytes = 1 << 20

// NewPlan decides the attention of a run over n samples and predicts its memory. It is a pure function of its arguments.
//
// Auto is full attention below the threshold and local from it on; a checkpoint that was trained with a window keeps it at any length. A
// run that would not fit is planned with local attention where the mode is auto, and otherwise refused with
// aviary.CodeDeviceOutOfMemory, before anything is computed.
func NewPlan(s Shape, n logmel.Samples, set Settings) (Plan, error) {
	p := choose(s, n, set)
	p.predict(s, set)
	if set.fits(p) {
		return p, nil
	}
	if set.Policy.Mode == aviary.AttentionAuto && p.Mode == aviary.AttentionFull {
		needed := p.Memory.PeakBytes()
		p = local(n, set.Policy.Context,
			fmt.Sprintf("auto: full attention would need %s, the budget is %s", mebibytes(needed), mebibytes(set.MemoryBudget)))
		p.predict(s, set)
		if set.fits(p) {
			return p, nil
		}
	}
	return p, tooLarge(s, p, set)
}

// fits holds a prediction against the budget.
func (set Settings) fits(p Plan) bool {
	return set.MemoryBudget <= 0 || p.Memory.PeakBytes() <= set.MemoryBudget
}

// choose decides by length alone.
func choose(s Shape, n logmel.Samples, set Settings) Plan {
	shipped := s.Config.Shipped()
	length, threshold := duration(n), set.Policy.Threshold
	switch {
	case set.Policy.Mode == aviary.AttentionFull:
		return full(n, "full was asked for")
	case set.Policy.Mode == aviary.AttentionLocal:
		return local(n, set.Policy.Context, "local was asked for")
	case !shipped.IsFull():
		return local(n, aviary.AttentionContext{Left: shipped.Left, Right: shipped.Right}, "auto: the model was trained with a window")
	case length < threshold:
		return full(n, fmt.Sprintf("auto: %.1f s is below the threshold of %v s", length.Seconds(), threshold.Seconds()))
	}
	return local(n, set.Policy.Context, fmt.Sprintf("auto: %.1f s is at or above the threshold of %v s", length.Seconds(), threshold.Seconds()))
}

// duration is exact: a sample is 62,500 ns.
func duration(n logmel.Samples) time.Duration {
	return time.Duration(n) * (time.Second / logmel.SampleRate)
}

func full(n logmel.Samples, reason string) Plan {
	return Plan{Attention: parakeet.Full, Mode: aviary.AttentionFull, Reason: reason, Samples: n}
}

func local(n logmel.Samples, c aviary.AttentionContext, reason string) Plan {
	return Plan{Attention: parakeet.Attention{Left: c.Left, Right: c.Right}, Mode: aviary.AttentionLocal, Reason: reason, Samples: n}
}

// predict fills in the lengths and the memory.
func (p *Plan) predict(s Shape, set Settings) {
	p.Frames = parakeet.Frames(logmel.FrameCount(p.Samples))
	p.EncoderFrames = p.Frames.Encoded()
	m := parakeet.Footprint(s.Config, s.Backend, s.DType, p.Frames, p.Attention, widest(s, set))
	p.Memory = Memory{
		WeightBytes:  m.WeightBytes,
		BufferBytes:  m.BufferBytes,
		ScratchBytes: s.ScratchBytes + smallBytes,
		HostBytes:    4*int64(p.Samples) + 4*int64(p.Frames)*int64(s.Config.Mels) + smallBytes,
		shared:       set.SharedMemory,
	}
}

// widest is the widest window that an engine with these settings may have kept the positions of from an earlier run.
func widest(s Shape, set Settings) parakeet.Attention {
	a := parakeet.Attention{Left: set.Policy.Context.Left, Right: set.Policy.Context.Right}
	if shipped := s.Config.Shipped(); !shipped.IsFull() && shipped.Left+shipped.Right > a.Left+a.Right {
		return shipped
	}
	return a
}

// tooLarge says what did not fit and what would.
func tooLarge(s Shape, p Plan, set Settings) error {
	const op = "asr.plan"
	e := aviary.Errorf(aviary.CodeDeviceOutOfMemory, op, "%.0f s of audio with %s attention would need %s of memory, and %s are allowed.",
		duration(p.Samples).Seconds(), p.Mode, mebibytes(p.Memory.PeakBytes()), mebibytes(set.MemoryBudget))
	e.Limit, e.Actual, e.Unit = float64(set.MemoryBudget), float64(p.Memory.PeakBytes()), "bytes"
	if longest := Longest(s, set); longest > 0 {
		e.Hint = fmt.Sprintf("Up to %.0f s fit with %s attention.", longest.Truncate(time.Second).Seconds(), p.Mode)
		if p.Mode == aviary.AttentionFull {
			e.Hint += " Local attention needs less: use auto or local."
		}
	}
	return e
}

// admit refuses a model that cannot run at all with these settings.
func admit(s Shape, set Settings) error {
	const op = "asr.open"
	if Longest(s, set) > 0 {
		return nil
	}
	p := choose(s, 0, set)
	p.predict(s, set)
	e := aviary.Errorf(aviary.CodeDeviceOutOfMemory, op, "The model needs %s of memory before any audio, and %s are allowed.",
		mebibytes(p.Memory.PeakBytes()), mebibytes(set.MemoryBudget))
	e.Limit, e.Actual, e.Unit = float64(set.MemoryBudget), float64(p.Memory.PeakBytes()), "bytes"
	if s.DType == ml.Float32 {
		e.Hint = "bfloat16 weights take half as much."
	}
	return e
}

// Longest is the longest audio for which a plan with these settings fits, up to 1,000 hours; 0 when not even the weights do.
func Longest(s Shape, set Settings) time.Duration {
	fits := func(n logmel.Samples) bool {
		p := choose(s, n, set)
		if set.Policy.Mode == aviary.AttentionAuto && s.Config.Shipped().IsFull() {
			p = local(n, set.Policy.Context, "") // auto falls back to it
		}
		p.predict(s, set)
		return set.fits(p)
	}
	lo, hi := logmel.Samples(0), logmel.Samples(1000*3600*logmel.SampleRate)
	if !fits(lo) {
		return 0
	}
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; fits(mid) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return duration(lo)
}

func mebibytes(n int64) string { return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20)) }
