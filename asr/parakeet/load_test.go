package parakeet

import (
	"slices"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
	"github.com/aviary-asr/aviary/asr/ml/cpu"
)

// published are the shapes of published checkpoints, and how many tensors and elements theirs have, the batch counters included.
var published = []struct {
	name              string
	config            checkpoint.Config
	tensors, elements int
}{
	{"parakeet-tdt-0.6b-v3", shape(24, 128, 8192, 9, false, checkpoint.KindTDT), 723, 627_057_310},
	{"parakeet-tdt-0.6b-v2", shape(24, 128, 1024, 9, false, checkpoint.KindTDT), 723, 617_875_102},
	{"parakeet-ctc-0.6b", shape(24, 80, 1024, 9, true, checkpoint.KindCTC), 974, 608_848_921},
	{"parakeet-ctc-1.1b, 9 taps", shape(42, 80, 1024, 9, true, checkpoint.KindCTC), 1694, 1_062_626_347},
	{"parakeet-ctc-1.1b, 5 taps", shape(42, 80, 1024, 5, true, checkpoint.KindCTC), 1694, 1_062_454_315},
}

func shape(layers, mels, vocabulary, kernel int, biases bool, kind checkpoint.Kind) checkpoint.Config {
	c := checkpoint.Config{
		Kind: kind, SampleRate: 16000, Mels: mels, DModel: 1024, FFDim: 4096, Layers: layers, Heads: 8, ConvKernel: kernel,
		SubsamplingFactor: 8, SubsamplingChannels: 256, AttentionBias: biases, ConvBias: biases,
		AttentionLeft: -1, AttentionRight: -1, VocabSize: vocabulary, BlankID: vocabulary,
	}
	if kind.HasTransducer() {
		c.Durations, c.MaxSymbols, c.PredHidden, c.PredLayers, c.JointHidden = []int{0, 1, 2, 3, 4}, 10, 640, 2, 640
	}
	return c
}

// TestPublishedShapes counts what the published checkpoints have.
func TestPublishedShapes(t *testing.T) {
	for _, p := range published {
		elements := p.config.Layers // batch counters
		list := Tensors(Config{p.config})
		for _, s := range list {
			n := 1
			for _, d := range s.Shape {
				n *= d
			}
			elements += n
		}
		if got := len(list) + p.config.Layers; got != p.tensors {
			t.Errorf("%s: %d tensors, want %d", p.name, got, p.tensors)
		}
		if elements != p.elements {
			t.Errorf("%s: %d elements, want %d", p.name, elements, p.elements)
		}
	}
}

// TestFootprintOfV3 holds the prediction against sums done by hand: 627 M weights, and an hour with local attention in a few T x d.
func TestFootprintOfV3(t *testing.T) {
	b := cpu.New(cpu.Options{Threads: 1})
	defer b.Close()
	c := Config{published[0].config}
	const hour = Frames(360_000)
	for dtype, size := range map[ml.DType]int64{ml.Float32: 4, ml.BFloat16: 2} {
		m := Footprint(c, b.Info(), dtype, hour, Attention{128, 128}, Full)
		if least, most := 626_000_000*size, 628_000_000*size+4_000_000; m.WeightBytes < least || m.WeightBytes > most {
			t.Errorf("%v: weights of %d bytes", dtype, m.WeightBytes)
		}
		const stream = 45_000 * 1024 * 4
		if m.BufferBytes < 4*stream || m.BufferBytes > 4*stream+100<<20 {
			t.Errorf("%v: an hour takes %d MiB of buffers", dtype, m.BufferBytes>>20)
		}
	}
	full := Footprint(c, b.Info(), ml.Float32, hour, Full, Full).BufferBytes
	if scores := int64(45_000) * 45_000 * 4; full > scores/4 {
		t.Errorf("an hour with full attention takes %d MiB of buffers: is there a matrix of scores?", full>>20)
	}
}

func loadError(c checkpoint.Config, tensors checkpoint.Tensors) error {
	b := cpu.New(cpu.Options{Threads: 1})
	defer b.Close()
	m, err := Load(c, tensors, b, ml.Float32)
	if err == nil {
		m.Close()
	}
	if held := b.Memory(); held.WeightBytes != 0 {
		panic("a load left weights behind")
	}
	return err
}

// TestLoadNamesEveryProblem: missing, unexpected and misshapen tensors are all in one error.
func TestLoadNamesEveryProblem(t *testing.T) {
	c := tinyConfig(false, false)
	tensors := tinyTensors(t, c)
	delete(tensors, "encoder.layers.0.norm_out.bias")
	delete(tensors, "joint.head.weight")
	tensors["encoder.adapter.weight"] = memoryTensor{shape: []int{1}, values: []float32{0}}
	bent := tensors["encoder.layers.1.self_attn.bias_u"]
	bent.shape = []int{8, 4}
	tensors["encoder.layers.1.self_attn.bias_u"] = bent
	counted := tensors["encoder.layers.1.norm_out.weight"]
	counted.dtype = checkpoint.I64
	tensors["encoder.layers.1.norm_out.weight"] = counted
	err := loadError(c, tensors)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"5 tensors",
		"encoder.layers.0.norm_out.bias: missing, should be [32]",
		"joint.head.weight: missing, should be [18 16]",
		"encoder.adapter.weight: unexpected",
		"encoder.layers.1.self_attn.bias_u: [8 4], should be [4 8]",
		"encoder.layers.1.norm_out.weight: has the type I64",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

// unreadable fails on one tensor.
type unreadable struct {
	memoryTensors
	name string
}

func (u unreadable) Float32(name string, dst []float32) error {
	if name == u.name {
		return errUnreadable
	}
	return u.memoryTensors.Float32(name, dst)
}

var errUnreadable = errNothingEncoded // any error

// TestLoadReadErrors: whichever tensor cannot be read, the load fails with that error and leaves nothing behind.
func TestLoadReadErrors(t *testing.T) {
	c := tinyConfig(true, false)
	tensors := tinyTensors(t, c)
	for _, name := range tensors.Names() {
		if err := loadError(c, unreadable{tensors, name}); err == nil || !strings.Contains(err.Error(), errUnreadable.Error()) {
			t.Errorf("%s unreadable: %v", name, err)
		}
	}
}

func TestNewConfigErrors(t *testing.T) {
	for name, change := range map[string]func(*checkpoint.Config){
		"no layers":        func(c *checkpoint.Config) { c.Layers = 0 },
		"odd heads":        func(c *checkpoint.Config) { c.Heads = 5 },
		"even kernel":      func(c *checkpoint.Config) { c.ConvKernel = 8 },
		"subsampling by 4": func(c *checkpoint.Config) { c.SubsamplingFactor = 4 },
		"no prediction":    func(c *checkpoint.Config) { c.PredLayers = 0 },
		"no symbols":       func(c *checkpoint.Config) { c.MaxSymbols = 0 },
		"no head":          func(c *checkpoint.Config) { c.Kind = "" },
		"blank elsewhere":  func(c *checkpoint.Config) { c.BlankID = 0 },
	} {
		c := tinyConfig(false, false)
		change(&c)
		if _, err := NewConfig(c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestKinds: models with one head load without the other's tensors, and say so when the other is asked for.
func TestKinds(t *testing.T) {
	for _, kind := range []checkpoint.Kind{checkpoint.KindTDT, checkpoint.KindCTC} {
		c := tinyConfig(false, false)
		c.Kind = kind
		m := open(t, c, tinyTensors(t, c), ml.Float32)
		s := m.NewSession()
		if _, err := s.DecodeCTC(t.Context()); err == nil {
			t.Error("decoded before a pass")
		}
		encode(t, s, noise(100, 16, 1), Full)
		_, ctc := s.DecodeCTC(t.Context())
		_, tdt := s.DecodeTransducer(t.Context())
		if (ctc == nil) != kind.HasCTC() || (tdt == nil) != kind.HasTransducer() {
			t.Errorf("%s: CTC %v, transducer %v", kind, ctc, tdt)
		}
	}
}

// TestRNNT: without durations a token stays on its frame and blank moves on by one, as a TDT does whose only duration is 0.
func TestRNNT(t *testing.T) {
	decode := func(kind checkpoint.Kind, durations []int) []Token {
		c := tinyConfig(false, false)
		c.Kind, c.Durations = kind, durations
		s := open(t, c, tinyTensors(t, c), ml.Float32).NewSession()
		goldenFrames(t, s)
		tokens, err := s.DecodeTransducer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	want := decode(checkpoint.KindTDT, []int{0})
	got := decode(checkpoint.KindRNNT, nil)
	if len(want) == 0 || len(got) != len(want) {
		t.Fatalf("%d tokens, want %d", len(got), len(want))
	}
	for i := range want {
		if got[i].ID != want[i].ID || got[i].Frame != want[i].Frame || got[i].Duration != 1 {
			t.Errorf("token %d is %+v, want %+v for a frame", i, got[i], want[i])
		}
	}
}

func TestCollapse(t *testing.T) {
	const blank = 9
	for _, c := range []struct {
		classes []int
		want    []Token
	}{
		{nil, nil},
		{[]int{9, 9}, nil},
		{[]int{1, 1, 9, 1}, []Token{{1, 0, 2}, {1, 3, 1}}},
		{[]int{9, 0, 0, 2, 9, 9, 2}, []Token{{0, 1, 2}, {2, 3, 1}, {2, 6, 1}}},
		{[]int{3, 3, 3}, []Token{{3, 0, 3}}}, // the last token is there though no blank follows
	} {
		var k collapser
		for frame, class := range c.classes {
			k.add(frame, class, blank)
		}
		if !slices.Equal(k.tokens, c.want) {
			t.Errorf("%v: %v, want %v", c.classes, k.tokens, c.want)
		}
	}
}
