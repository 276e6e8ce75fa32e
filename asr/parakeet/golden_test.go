package parakeet

import (
	"math"
	"slices"
	"testing"

	"github.com/aviary-asr/aviary/asr/ml"
)

// TestGoldenWeights checks the generator itself.
func TestGoldenWeights(t *testing.T) {
	g := readGolden(t)
	if len(g.Weights) == 0 {
		t.Fatal("no samples")
	}
	for name, want := range g.Weights {
		shape := map[string][]int{
			"encoder.pre_encode.conv.0.weight":              {8, 1, 3, 3},
			"encoder.layers.0.self_attn.linear_q.weight":    {32, 32},
			"encoder.layers.0.conv.batch_norm.running_var":  {32},
			"encoder.layers.0.norm_out.weight":              {32},
			"encoder.layers.0.self_attn.pos_bias_u":         {4, 8},
			"decoder.prediction.embed.weight":               {13, 16},
			"joint.joint_net.2.weight":                      {18, 16},
			"decoder.prediction.dec_rnn.lstm.weight_ih_l0":  {64, 16},
			"encoder.layers.0.conv.depthwise_conv.weight":   {32, 1, 9},
			"encoder.layers.0.self_attn.linear_pos.weight":  {32, 32},
			"encoder.layers.1.feed_forward2.linear2.weight": {32, 128},
			"encoder.layers.0.conv.batch_norm.running_mean": {32},
			"encoder.layers.0.feed_forward1.linear1.weight": {128, 32},
			"encoder.layers.0.conv.pointwise_conv1.weight":  {64, 32, 1},
			"encoder.layers.0.self_attn.linear_q.bias":      {32},
			"encoder.pre_encode.out.weight":                 {32, 16},
			"decoder.prediction.dec_rnn.lstm.bias_hh_l1":    {64},
			"decoder.decoder_layers.0.weight":               {13, 32, 1},
		}[name]
		if shape == nil {
			t.Fatalf("%s: what shape?", name)
		}
		within(t, name, tinyValues(name, shape)[:len(want)], want, 1e-7)
	}
}

// TestGoldenEncoder holds every stage of the encoder in the variants of the golden file. The subsampling's output has a peak of 22 and is
// held relative to it; everything behind a layer norm is of order one.
func TestGoldenEncoder(t *testing.T) {
	g := readGolden(t)
	plain := tiny(t, false, false).NewSession()
	full := stages(t, plain, g.logMel(), Full)
	within(t, "enc.pre_encode.out", full["enc.pre_encode.out"], g.PreEncode, 1e-4*peak(g.PreEncode))
	within(t, "enc.block.0.out", full["enc.block.0.out"], g.Layer0, 1e-4)
	within(t, "enc.final", full["enc.final"], g.Encoder, 1e-4)

	local := encode(t, plain, g.logMel(), Attention{4, 4})
	within(t, "enc.final, window 4,4", local, g.EncoderLocal, 1e-4)
	if distance(local, g.Encoder) < 0.01 {
		t.Error("the window changed nothing")
	}

	scaled := stages(t, tiny(t, true, true).NewSession(), g.logMel(), Full)
	within(t, "enc.pre_encode.out of the scaled model", scaled["enc.pre_encode.out"], g.PreEncode, 1e-4*peak(g.PreEncode))
	within(t, "enc.final with biases and scaled input", scaled["enc.final"], g.EncoderBias, 1e-4)
}

// goldenFrames puts the golden encoder frames where a pass would have left its output: the decoders' vectors do not depend on the encoder.
func goldenFrames(t *testing.T, s *Session) {
	t.Helper()
	const frames, width = 40, 32
	d := drawsOf("golden.encoder_frames")
	e := make([]float32, frames*width)
	for i := range e {
		e[i] = float32(3 * d.next())
	}
	within(t, "encoder frames", e[:4], readGolden(t).FramesFirst4, 1e-6)
	if err := s.begin(8*frames, Full); err != nil {
		t.Fatal(err)
	}
	if err := s.model.backend.Write(t.Context(), s.pass.x, e); err != nil {
		t.Fatal(err)
	}
	s.encoded = frames
}

func TestGoldenTransducer(t *testing.T) {
	g := readGolden(t)
	s := tiny(t, false, false).NewSession()
	goldenFrames(t, s)
	all := map[string][]float32{}
	s.Hooks.Dump = func(stage string, _, _ int, v []float32) { all[stage] = v }
	tokens, err := s.DecodeTransducer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	within(t, "dec.pred.0", all["dec.pred.0"], g.LSTMStart, 1e-6)
	within(t, "dec.joint.0", all["dec.joint.0"], g.Joint, 1e-4)
	if got := triples(tokens); !slices.Equal(got, g.TDT) {
		t.Errorf("tokens, frames and durations\n%v\nwant\n%v", got, g.TDT)
	}
}

// triples writes tokens as the golden file does.
func triples(tokens []Token) [][3]int {
	var list [][3]int
	for _, k := range tokens {
		list = append(list, [3]int{k.ID, int(k.Frame), int(k.Duration)})
	}
	return list
}

func TestGoldenCTC(t *testing.T) {
	g := readGolden(t)
	s := tiny(t, false, false).NewSession()
	goldenFrames(t, s)
	var logits []float32
	s.Hooks.Dump = func(_ string, _, _ int, v []float32) { logits = append(logits, v...) }
	var best []int
	if err := s.ctcArgmax(t.Context(), func(_, class int) { best = append(best, class) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(best, g.CTCArgmax) {
		t.Errorf("classes %v, want %v", best, g.CTCArgmax)
	}
	const classes = 13
	for at := 0; at < len(logits); at += classes {
		logSoftmax(logits[at : at+classes])
	}
	within(t, "log-probabilities", logits, g.CTCLogProbs, 1e-5)
}

func logSoftmax(v []float32) {
	sum := 0.0
	for _, x := range v {
		sum += math.Exp(float64(x))
	}
	for i := range v {
		v[i] = float32(float64(v[i]) - math.Log(sum))
	}
}

// TestBFloat16 runs the golden model with bfloat16 matrices: 8 bits of precision, two blocks.
func TestBFloat16(t *testing.T) {
	g := readGolden(t)
	c := tinyConfig(false, false)
	m := open(t, c, tinyTensors(t, c), ml.BFloat16)
	got := encode(t, m.NewSession(), g.logMel(), Full)
	within(t, "enc.final", got, g.Encoder, 0.05)
	if distance(got, g.Encoder) < 1e-4 {
		t.Error("the weights were not rounded")
	}
}
