package parakeet

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/ml"
)

// Fifteen mistakes are known from other ports of this model. Numbers 1 to 5 are in asr/logmel; the others each have a test here that
// fails when the mistake is made.

// TestMistake06BatchNorm: statistics of the audio instead of the trained ones, or another epsilon. The variances are tiny here, so that
// epsilon counts; and what else is in the memory of a session, or how long its other audio was, must not change a row.
func TestMistake06BatchNorm(t *testing.T) {
	g := readGolden(t)
	m := tiny(t, false, false)
	within(t, "enc.block.0.out", stages(t, m.NewSession(), g.logMel(), Full)["enc.block.0.out"], g.Layer0, 1e-4)

	c := tinyConfig(true, false)
	tensors := tinyTensors(t, c)
	for name, v := range tensors {
		if strings.HasSuffix(name, "running_var") {
			for i := range v.values {
				v.values[i] *= 2e-5
			}
		}
	}
	in := noise(100, c.Mels, 2)
	_, want := reference{c, tensors}.encode(in, Full)
	within(t, "tiny variances", encode(t, open(t, c, tensors, ml.Float32).NewSession(), in, Full), want.float32s(), 1e-3)

	s := m.NewSession()
	first := encode(t, s, g.logMel(), Full)
	encode(t, s, noise(3000, 16, 3), Attention{9, 9})
	if again := encode(t, s, g.logMel(), Full); !slices.Equal(first, again) {
		t.Error("a pass depends on the pass before")
	}
}

// TestMistake07InputScale: sqrt(d) left out, or applied to every model, or to the position table.
func TestMistake07InputScale(t *testing.T) {
	g := readGolden(t)
	with := encode(t, tiny(t, true, true).NewSession(), g.logMel(), Full)
	without := encode(t, tiny(t, true, false).NewSession(), g.logMel(), Full)
	within(t, "scaled", with, g.EncoderBias, 1e-4)
	if distance(without, g.EncoderBias) < 0.01 {
		t.Error("the scale makes no difference")
	}
	within(t, "not scaled", encode(t, tiny(t, false, false).NewSession(), g.logMel(), Full), g.Encoder, 1e-4)
}

// TestMistake08Biases: which biases there are is decided by the tensors. A configuration that says otherwise changes nothing, a bias that
// is not used is an error, and so is one that is missing.
func TestMistake08Biases(t *testing.T) {
	g := readGolden(t)
	c := tinyConfig(true, true)
	wrong := c
	wrong.AttentionBias, wrong.ConvBias = false, false
	m := open(t, wrong, tinyTensors(t, c), ml.Float32)
	within(t, "biases not configured", encode(t, m.NewSession(), g.logMel(), Full), g.EncoderBias, 1e-4)
	m = open(t, c, tinyTensors(t, tinyConfig(false, true)), ml.Float32)
	if m.Config.AttentionBias || m.Config.ConvBias {
		t.Error("biases from nowhere")
	}
	for name, change := range map[string]func(memoryTensors){
		"missing": func(m memoryTensors) { delete(m, "encoder.layers.1.self_attn.k_proj.bias") },
		"unexpected": func(m memoryTensors) {
			m["encoder.layers.1.self_attn.relative_k_proj.bias"] = m["encoder.layers.1.norm_out.bias"]
		},
	} {
		tensors := tinyTensors(t, c)
		change(tensors)
		err := loadError(c, tensors)
		if err == nil || !strings.Contains(err.Error(), "encoder.layers.1.self_attn.") || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMistake09LSTM: only the first layer run, or the gates in another order.
func TestMistake09LSTM(t *testing.T) {
	g := readGolden(t)
	start := func(layers int) []float32 {
		c := tinyConfig(false, false)
		c.PredLayers = layers
		s := open(t, c, tinyTensors(t, c), ml.Float32).NewSession()
		goldenFrames(t, s)
		var out []float32
		s.Hooks.Dump = func(stage string, _, _ int, v []float32) {
			if stage == "dec.pred.0" {
				out = v
			}
		}
		if _, err := s.DecodeTransducer(t.Context()); err != nil {
			t.Fatal(err)
		}
		return out
	}
	within(t, "two layers", start(2), g.LSTMStart, 1e-6)
	if distance(start(1), g.LSTMStart) < 1e-3 {
		t.Error("the second layer makes no difference")
	}
}

// evaluation is one call of the joint network, as seen from outside.
type evaluation struct {
	frame, token, duration int
}

// trace decodes the golden frames and reconstructs every evaluation from the dumped logits.
func trace(t *testing.T, c checkpoint.Config, tensors memoryTensors) (tokens []Token, evaluations []evaluation, predictions int) {
	t.Helper()
	s := open(t, c, tensors, ml.Float32).NewSession()
	goldenFrames(t, s)
	frame, symbols := 0, 0
	s.Hooks.Dump = func(stage string, _, _ int, v []float32) {
		if strings.HasPrefix(stage, "dec.pred.") {
			predictions++
			return
		}
		e := evaluation{frame, first(v[:c.VocabSize+1]), c.Durations[first(v[c.VocabSize+1:])]}
		evaluations = append(evaluations, e)
		advance := e.duration
		symbols++
		if e.token == c.BlankID {
			advance = max(advance, 1)
		} else if e.duration == 0 && symbols == c.MaxSymbols {
			advance = 1
		}
		if advance > 0 {
			symbols = 0
		}
		frame += advance
	}
	tokens, err := s.DecodeTransducer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tokens, evaluations, predictions
}

// first is the index of the first maximum.
func first(v []float32) int {
	best := 0
	for i, x := range v {
		if x > v[best] {
			best = i
		}
	}
	return best
}

// TestMistake10State: the prediction network advanced by blanks, or started anew.
func TestMistake10State(t *testing.T) {
	c := tinyConfig(false, false)
	tokens, evaluations, predictions := trace(t, c, tinyTensors(t, c))
	if !slices.Equal(triples(tokens), readGolden(t).TDT) {
		t.Error("the golden tokens differ")
	}
	if predictions != len(tokens)+1 || len(evaluations) <= len(tokens) {
		t.Errorf("%d steps of the prediction network and %d of the joint network for %d tokens", predictions, len(evaluations), len(tokens))
	}
}

// TestMistake11Durations: the duration head ignored, an RNN-T loop on TDT weights.
func TestMistake11Durations(t *testing.T) {
	c := tinyConfig(false, false)
	tokens, evaluations, _ := trace(t, c, tinyTensors(t, c))
	seen := map[string]bool{}
	for _, e := range evaluations {
		switch {
		case e.token != c.BlankID && (e.duration == 1 || e.duration == 3):
			seen["token jump of 1 or 3"] = true
		case e.token == c.BlankID && e.duration == 3:
			seen["blank jump of 3"] = true
		case e.token == c.BlankID && e.duration == 4:
			seen["blank jump of 4"] = true
		}
	}
	if len(seen) != 3 {
		t.Errorf("the golden path shows only %v", seen)
	}
	c.Durations = []int{0, 0, 0, 0, 0}
	ignored, _, _ := trace(t, c, tinyTensors(t, c))
	if slices.Equal(triples(ignored), triples(tokens)) {
		t.Error("the durations make no difference")
	}
}

// TestMistake12DurationZero: a blank of duration 0 that stays for ever, a token of duration 0 that is moved on from, a cap that is not there.
func TestMistake12DurationZero(t *testing.T) {
	c := tinyConfig(false, false)
	tokens, evaluations, _ := trace(t, c, tinyTensors(t, c))
	var blanks []int
	zeros := 0
	perFrame := map[int]int{}
	for _, e := range evaluations {
		switch {
		case e.token == c.BlankID && e.duration == 0:
			blanks = append(blanks, e.frame)
		case e.token != c.BlankID && e.duration == 0:
			zeros++
			perFrame[e.frame]++
		}
	}
	capped := 0
	for _, n := range perFrame {
		if n == c.MaxSymbols {
			capped++
		}
		if n > c.MaxSymbols {
			t.Errorf("%d symbols on one frame", n)
		}
	}
	if want := []int{16, 19, 27, 31, 37, 38}; !slices.Equal(blanks, want) {
		t.Errorf("blanks of duration 0 on the frames %v, want %v", blanks, want)
	}
	if capped != 7 || zeros != 79 || len(tokens) != 85 {
		t.Errorf("%d frames capped, %d of %d tokens of duration 0; want 7, 79 of 85", capped, zeros, len(tokens))
	}
	if tokens[9].Frame != 0 || tokens[10].Frame != 1 {
		t.Errorf("after the cap on frame 0 comes frame %d", tokens[10].Frame)
	}
}

// TestMistake13LogSoftmax: with one confident token, the softmax of the durations vanishes beside it and every duration becomes the first.
func TestMistake13LogSoftmax(t *testing.T) {
	c := tinyConfig(false, false)
	_, plain, _ := trace(t, c, tinyTensors(t, c))
	confident := tinyTensors(t, c)
	confident["joint.head.bias"].values[plain[0].token] += 200
	_, got, _ := trace(t, c, confident)
	if got[0] != plain[0] {
		t.Errorf("first evaluation %+v, without the confidence %+v", got[0], plain[0])
	}
	varied := map[int]bool{}
	for _, e := range got {
		varied[e.duration] = true
	}
	if len(varied) < 2 {
		t.Errorf("the only duration is %v", varied)
	}
}

// TestMistake14Blank: blank taken for 8192, for <pad>, or from the joint network's size; duration logits taken for tokens.
func TestMistake14Blank(t *testing.T) {
	c := tinyConfig(false, false)
	c.VocabSize, c.BlankID = 1024, 1024
	tensors := tinyTensors(t, c)
	m := open(t, c, tensors, ml.Float32)
	if rows := m.prediction.embedding.Shape()[0]; m.Config.BlankID != rows-1 {
		t.Errorf("blank is %d with %d rows of the embedding", m.Config.BlankID, rows)
	}
	bias := tensors["joint.head.bias"].values
	for i := c.VocabSize + 1; i < len(bias); i++ {
		bias[i] += 1000 // no token can have such a logit
	}
	tokens, _, _ := trace(t, c, tensors)
	for _, k := range tokens {
		if k.ID < 0 || k.ID >= c.VocabSize {
			t.Fatalf("token %d of %d pieces", k.ID, c.VocabSize)
		}
	}
	bias[c.BlankID] += 2000
	if tokens, _, _ := trace(t, c, tensors); len(tokens) != 0 {
		t.Errorf("%d tokens though blank always wins", len(tokens))
	}
	c.BlankID = 2
	if err := loadError(c, tensors); err == nil || !strings.Contains(err.Error(), "blank") {
		t.Errorf("blank in the middle of the vocabulary: %v", err)
	}
}

// TestMistake15Padding: NaN from rows that see no key, or padding that leaks. Here nothing is padded: a clip gives the same bits alone and after
// a clip ten times as long in the same memory, and every stage is finite, at lengths that are a multiple of 80 ms too.
func TestMistake15Padding(t *testing.T) {
	m := tiny(t, true, false)
	short, long := noise(100, 16, 11), noise(1000, 16, 12)
	for _, a := range []Attention{Full, {6, 2}} {
		alone := encode(t, m.NewSession(), short, a)
		s := m.NewSession()
		encode(t, s, long, a)
		if got := encode(t, s, short, a); !slices.Equal(got, alone) {
			t.Errorf("window %v: the long clip leaks into the short one", a)
		}
		for _, frames := range []Frames{1, 8, 96, 104, 800} {
			for stage, v := range stages(t, s, noise(frames, 16, 13), a) {
				for _, x := range v {
					if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
						t.Fatalf("%d frames, window %v: %s has %v", frames, a, stage, x)
					}
				}
			}
		}
	}
}
