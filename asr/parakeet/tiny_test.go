package parakeet

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
)

// The tiny model: a Parakeet of two blocks whose weights are drawn from a generator seeded with the tensors' NeMo names, so that its
// reference values (testdata/parakeet-golden.json, made by NeMo's classes) need no checkpoint.

// draws is the generator: uniform in [-0.5, 0.5).
type draws uint32

func (d *draws) next() float64 {
	*d = *d*1664525 + 1013904223
	return float64(*d>>8)/(1<<24) - 0.5
}

// drawsOf seeds a generator with a name.
func drawsOf(name string) *draws {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	d := draws(h.Sum32())
	if d == 0 {
		d = 1
	}
	return &d
}

// tinyValues draws a tensor by its NeMo name.
func tinyValues(name string, shape []int) []float32 {
	n, fan := 1, 16
	for i, s := range shape {
		n *= s
		if i == 1 {
			fan = s
		} else if i > 1 {
			fan *= s
		}
	}
	d := drawsOf(name)
	v := make([]float32, n)
	for i := range v {
		u := d.next()
		switch {
		case strings.HasSuffix(name, "running_var"):
			v[i] = float32(1 + u)
		case strings.Contains(name, "norm") && strings.HasSuffix(name, "weight"):
			v[i] = float32(1 + 0.5*u)
		default:
			v[i] = float32(2 * u / math.Sqrt(float64(fan)))
		}
	}
	scale := func(f float32) {
		for i := range v {
			v[i] *= f
		}
	}
	switch {
	case strings.Contains(name, "pre_encode") && strings.HasSuffix(name, "weight"):
		scale(3)
	case name == "decoder.prediction.embed.weight":
		clear(v[len(v)-shape[1]:]) // blank
		scale(16)
	case name == "joint.joint_net.2.weight":
		scale(4)
	case name == "joint.joint_net.2.bias":
		v[12] += 0.5 // blank
		if len(v) > 13 {
			v[13] += 1.5 // the first duration
		}
	}
	return v
}

// tinyConfig is the golden model's shape.
func tinyConfig(biases, scale bool) checkpoint.Config {
	return checkpoint.Config{
		Kind: checkpoint.KindHybrid, SampleRate: 16000, Mels: 16, DModel: 32, FFDim: 128, Layers: 2, Heads: 4, ConvKernel: 9,
		SubsamplingFactor: 8, SubsamplingChannels: 8, AttentionBias: biases, ConvBias: biases, ScaleInput: scale,
		AttentionLeft: -1, AttentionRight: -1, VocabSize: 12, BlankID: 12,
		Durations: []int{0, 1, 2, 3, 4}, MaxSymbols: 10, PredHidden: 16, PredLayers: 2, JointHidden: 16,
	}
}

// memoryTensors are tensors in memory.
type memoryTensors map[string]memoryTensor

type memoryTensor struct {
	shape  []int
	dtype  checkpoint.DType // 0 is F32
	values []float32
}

// tinyTensors makes all tensors of a shape.
func tinyTensors(t testing.TB, c checkpoint.Config) memoryTensors {
	t.Helper()
	m := memoryTensors{}
	for _, s := range Tensors(Config{c}) {
		name, ok := checkpoint.NemoName(s.Name)
		if !ok {
			t.Fatalf("%s has no NeMo name", s.Name)
		}
		m[s.Name] = memoryTensor{shape: s.Shape, values: tinyValues(name, s.Shape)}
	}
	return m
}

func (m memoryTensors) Names() []string {
	var names []string
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func (m memoryTensors) Info(name string) (checkpoint.TensorInfo, bool) {
	t, ok := m[name]
	dtype := t.dtype
	if dtype == 0 {
		dtype = checkpoint.F32
	}
	return checkpoint.TensorInfo{Name: name, DType: dtype, Shape: t.shape}, ok
}

func (m memoryTensors) Float32(name string, dst []float32) error {
	t, ok := m[name]
	if !ok || len(dst) != len(t.values) {
		return fmt.Errorf("%s: %d of %d values", name, len(dst), len(t.values))
	}
	copy(dst, t.values)
	return nil
}

func (m memoryTensors) BFloat16(string, []uint16) error { return errors.New("not used") }

// golden is testdata/parakeet-golden.json.
type golden struct {
	Features     []float32            `json:"features"` // mel-major
	PreEncode    []float32            `json:"pre_encode"`
	Layer0       []float32            `json:"layer0_nobias"`
	Encoder      []float32            `json:"enc_nobias_noxscale"`
	EncoderLocal []float32            `json:"enc_nobias_noxscale_local_4_4"`
	EncoderBias  []float32            `json:"enc_bias_xscale"`
	FramesFirst4 []float32            `json:"encoder_frames_first4"`
	LSTMStart    []float32            `json:"lstm_start_output"`
	Joint        []float32            `json:"joint_logits_frame0_start"`
	TDT          [][3]int             `json:"tdt"`
	CTCLogProbs  []float32            `json:"ctc_logprobs"`
	CTCArgmax    []int                `json:"ctc_argmax"`
	Weights      map[string][]float32 `json:"sample_weights"`
}

func readGolden(t testing.TB) golden {
	t.Helper()
	raw, err := os.ReadFile("testdata/parakeet-golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var g golden
	if err := json.Unmarshal(raw, &g); err != nil {
		t.Fatal(err)
	}
	return g
}

// logMel is the golden features, time-major.
func (g golden) logMel() LogMel {
	const mels, frames = 16, 150
	return LogMel{Frames: frames, Values: transpose(make([]float32, mels*frames), g.Features, mels, frames)}
}

// open loads a model onto a CPU backend of its own.
func open(t testing.TB, c checkpoint.Config, tensors checkpoint.Tensors, dtype ml.DType) *Model {
	t.Helper()
	b := cpu.New(cpu.Options{Threads: 2})
	m, err := Load(c, tensors, b, dtype)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.Close()
		_ = b.Close()
	})
	return m
}

// tiny opens the golden model.
func tiny(t testing.TB, biases, scale bool) *Model {
	t.Helper()
	c := tinyConfig(biases, scale)
	return open(t, c, tinyTensors(t, c), ml.Float32)
}

// stages runs a pass and returns every dumped stage of it.
func stages(t testing.TB, s *Session, in LogMel, a Attention) map[string][]float32 {
	t.Helper()
	all := map[string][]float32{}
	s.Hooks.Dump = func(stage string, _, _ int, v []float32) { all[stage] = v }
	defer func() { s.Hooks.Dump = nil }()
	n, err := s.Encode(t.Context(), in, a)
	if err != nil {
		t.Fatal(err)
	}
	if n != in.Frames.Encoded() {
		t.Fatalf("%d encoder frames of %d frames", n, in.Frames)
	}
	return all
}

// encode runs a pass and returns the encoder's output.
func encode(t testing.TB, s *Session, in LogMel, a Attention) []float32 {
	t.Helper()
	return stages(t, s, in, a)["enc.final"]
}

// noise makes features of order one.
func noise(frames Frames, mels int, seed draws) LogMel {
	v := make([]float32, int(frames)*mels)
	for i := range v {
		v[i] = float32(4 * seed.next())
	}
	return LogMel{Frames: frames, Values: v}
}

// within holds got against want: the largest absolute difference.
func within(t testing.TB, what string, got, want []float32, limit float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	d := distance(got, want)
	t.Logf("%s: differs by %.3g, limit %.3g", what, d, limit)
	if !(d <= limit) {
		t.Fail()
	}
}

// distance is the largest absolute difference; NaN where there is one.
func distance(got, want []float32) float64 {
	worst := 0.0
	for i := range want {
		d := math.Abs(float64(got[i]) - float64(want[i]))
		if !(d <= worst) {
			worst = d
			if math.IsNaN(d) {
				return d
			}
		}
	}
	return worst
}

// peak is the largest magnitude, at least 1.
func peak(v []float32) float64 {
	p := 1.0
	for _, x := range v {
		p = max(p, math.Abs(float64(x)))
	}
	return p
}
