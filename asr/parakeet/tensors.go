package parakeet

import (
	"fmt"
	"slices"
	"strings"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// TensorSpec is a tensor that a checkpoint must have, by its canonical name.
type TensorSpec struct {
	Name  string
	Shape []int
}

// Tensors names every tensor of a model of this shape.
func Tensors(c Config) []TensorSpec {
	var l specList
	n, d := c.SubsamplingChannels, c.DModel
	_, _, w3 := c.melWidths()
	l.layer("encoder.subsampling.layers.0", true, n, 1, 3, 3)
	l.layer("encoder.subsampling.layers.2", true, n, 1, 3, 3)
	l.layer("encoder.subsampling.layers.3", true, n, n, 1, 1)
	l.layer("encoder.subsampling.layers.5", true, n, 1, 3, 3)
	l.layer("encoder.subsampling.layers.6", true, n, n, 1, 1)
	l.layer("encoder.subsampling.linear", true, d, n*w3)
	for i := range c.Layers {
		l.block(c, blockName(i))
	}
	if c.Kind.HasTransducer() {
		h, j := c.PredHidden, c.JointHidden
		l.layer("encoder_projector", true, j, d)
		l.add("decoder.embedding.weight", c.tokens(), h)
		for i := range c.PredLayers {
			l.add(lstmName("weight_ih", i), 4*h, h)
			l.add(lstmName("weight_hh", i), 4*h, h)
			l.add(lstmName("bias_ih", i), 4*h)
			l.add(lstmName("bias_hh", i), 4*h)
		}
		l.layer("decoder.decoder_projector", true, j, h)
		l.layer("joint.head", true, c.tokens()+len(c.Durations), j)
	}
	if c.Kind.HasCTC() {
		l.layer("ctc_head", true, c.tokens(), d, 1)
	}
	return l
}

func blockName(i int) string              { return fmt.Sprintf("encoder.layers.%d.", i) }
func lstmName(part string, i int) string  { return fmt.Sprintf("decoder.lstm.%s_l%d", part, i) }
func attentionName(b, part string) string { return b + "self_attn." + part }

type specList []TensorSpec

func (l *specList) add(name string, shape ...int) { *l = append(*l, TensorSpec{name, shape}) }

// layer adds a weight and, if there is one, its bias.
func (l *specList) layer(name string, bias bool, shape ...int) {
	l.add(name+".weight", shape...)
	if bias {
		l.add(name+".bias", shape[0])
	}
}

// block adds the tensors of one Conformer block.
func (l *specList) block(c Config, b string) {
	d, ff := c.DModel, c.FFDim
	norm := func(name string) { l.layer(b+name, true, d) }
	norm("norm_feed_forward1")
	l.layer(b+"feed_forward1.linear1", c.AttentionBias, ff, d)
	l.layer(b+"feed_forward1.linear2", c.AttentionBias, d, ff)
	norm("norm_self_att")
	for _, p := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
		l.layer(attentionName(b, p), c.AttentionBias, d, d)
	}
	l.layer(attentionName(b, "relative_k_proj"), false, d, d)
	l.add(attentionName(b, "bias_u"), c.Heads, d/c.Heads)
	l.add(attentionName(b, "bias_v"), c.Heads, d/c.Heads)
	norm("norm_conv")
	l.layer(b+"conv.pointwise_conv1", c.ConvBias, 2*d, d, 1)
	l.layer(b+"conv.depthwise_conv", c.ConvBias, d, 1, c.ConvKernel)
	norm("conv.norm")
	l.add(b+"conv.norm.running_mean", d)
	l.add(b+"conv.norm.running_var", d)
	l.layer(b+"conv.pointwise_conv2", c.ConvBias, d, d, 1)
	norm("norm_feed_forward2")
	l.layer(b+"feed_forward2.linear1", c.AttentionBias, ff, d)
	l.layer(b+"feed_forward2.linear2", c.AttentionBias, d, ff)
	norm("norm_out")
}

// biasesOf decides from the tensors, not from a configuration, which optional biases a model has: those of its first block.
// checkTensors then holds every block to it.
func (c Config) biasesOf(t checkpoint.Tensors) Config {
	_, c.AttentionBias = t.Info(blockName(0) + "feed_forward1.linear1.bias")
	_, c.ConvBias = t.Info(blockName(0) + "conv.pointwise_conv1.bias")
	return c
}

// checkTensors compares what a checkpoint has with what a model of this shape needs, and names every difference.
func checkTensors(c Config, t checkpoint.Tensors) error {
	var problems []string
	known := map[string]bool{}
	for _, want := range Tensors(c) {
		known[want.Name] = true
		got, ok := t.Info(want.Name)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("%s: missing, should be %v", want.Name, want.Shape))
		case !slices.Equal(got.Shape, want.Shape):
			problems = append(problems, fmt.Sprintf("%s: %v, should be %v", want.Name, got.Shape, want.Shape))
		case got.DType != checkpoint.F32 && got.DType != checkpoint.F16 && got.DType != checkpoint.BF16:
			problems = append(problems, fmt.Sprintf("%s: has the type %v, should be floating-point", want.Name, got.DType))
		}
	}
	for _, name := range t.Names() {
		if !known[name] {
			problems = append(problems, name+": unexpected")
		}
	}
	if problems != nil {
		return fmt.Errorf("parakeet: %d tensors do not fit this model:\n  %s", len(problems), strings.Join(problems, "\n  "))
	}
	return nil
}
