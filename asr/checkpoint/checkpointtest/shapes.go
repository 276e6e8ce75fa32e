package checkpointtest

import (
	"fmt"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// ParakeetTDT06BV3 is the shape of nvidia/parakeet-tdt-0.6b-v3: 723 tensors
// and 627,057,310 elements.
func ParakeetTDT06BV3() checkpoint.Config {
	return checkpoint.Config{
		Kind:       checkpoint.KindTDT,
		SampleRate: 16000, Mels: 128, NFFT: 512, Window: 400, Hop: 160, Preemphasis: 0.97,
		DModel: 1024, FFDim: 4096, Layers: 24, Heads: 8, ConvKernel: 9,
		SubsamplingFactor: 8, SubsamplingChannels: 256,
		AttentionLeft: -1, AttentionRight: -1,
		VocabSize: 8192, BlankID: 8192,
		Durations: []int{0, 1, 2, 3, 4}, MaxSymbols: 10,
		PredHidden: 640, PredLayers: 2, JointHidden: 640,
	}
}

// Tensors lists every tensor of a model of this shape in canonical names, in
// the order of the computation, the int64 batch counters included. All others
// have the given dtype.
func Tensors(c checkpoint.Config, dtype checkpoint.DType) []checkpoint.TensorInfo {
	l := list{dtype: dtype}
	l.subsampling(c)
	for i := range c.Layers {
		l.layer(c, fmt.Sprintf("encoder.layers.%d.", i))
	}
	if c.Kind.HasTransducer() {
		l.transducer(c)
	}
	if c.Kind.HasCTC() {
		l.linear("ctc_head", true, c.VocabSize+1, c.DModel, 1)
	}
	return l.tensors
}

type list struct {
	dtype   checkpoint.DType
	tensors []checkpoint.TensorInfo
}

func (l *list) add(name string, shape ...int) {
	l.tensors = append(l.tensors, checkpoint.TensorInfo{Name: name, DType: l.dtype, Shape: shape})
}

// linear adds a weight of the given shape and, if wanted, a bias per row.
func (l *list) linear(name string, bias bool, shape ...int) {
	l.add(name+".weight", shape...)
	if bias {
		l.add(name+".bias", shape[0])
	}
}

func (l *list) norm(name string, width int) { l.linear(name, true, width) }

func (l *list) subsampling(c checkpoint.Config) {
	const at = "encoder.subsampling."
	n := c.SubsamplingChannels
	l.linear(at+"layers.0", true, n, 1, 3, 3)
	l.linear(at+"layers.2", true, n, 1, 3, 3)
	l.linear(at+"layers.3", true, n, n, 1, 1)
	l.linear(at+"layers.5", true, n, 1, 3, 3)
	l.linear(at+"layers.6", true, n, n, 1, 1)
	l.linear(at+"linear", true, c.DModel, n*((c.Mels+7)/8))
}

func (l *list) layer(c checkpoint.Config, at string) {
	d := c.DModel
	l.norm(at+"norm_feed_forward1", d)
	l.linear(at+"feed_forward1.linear1", c.AttentionBias, c.FFDim, d)
	l.linear(at+"feed_forward1.linear2", c.AttentionBias, d, c.FFDim)
	l.norm(at+"norm_self_att", d)
	for _, p := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
		l.linear(at+"self_attn."+p, c.AttentionBias, d, d)
	}
	l.add(at+"self_attn.relative_k_proj.weight", d, d)
	l.add(at+"self_attn.bias_u", c.Heads, d/c.Heads)
	l.add(at+"self_attn.bias_v", c.Heads, d/c.Heads)
	l.norm(at+"norm_conv", d)
	l.linear(at+"conv.pointwise_conv1", c.ConvBias, 2*d, d, 1)
	l.linear(at+"conv.depthwise_conv", c.ConvBias, d, 1, c.ConvKernel)
	l.norm(at+"conv.norm", d)
	l.add(at+"conv.norm.running_mean", d)
	l.add(at+"conv.norm.running_var", d)
	l.tensors = append(l.tensors, checkpoint.TensorInfo{Name: at + "conv.norm.num_batches_tracked", DType: checkpoint.I64, Shape: []int{}})
	l.linear(at+"conv.pointwise_conv2", c.ConvBias, d, d, 1)
	l.norm(at+"norm_feed_forward2", d)
	l.linear(at+"feed_forward2.linear1", c.AttentionBias, c.FFDim, d)
	l.linear(at+"feed_forward2.linear2", c.AttentionBias, d, c.FFDim)
	l.norm(at+"norm_out", d)
}

func (l *list) transducer(c checkpoint.Config) {
	p := c.PredHidden
	l.add("decoder.embedding.weight", c.VocabSize+1, p)
	for i := range c.PredLayers {
		l.add(fmt.Sprintf("decoder.lstm.weight_ih_l%d", i), 4*p, p)
		l.add(fmt.Sprintf("decoder.lstm.weight_hh_l%d", i), 4*p, p)
		l.add(fmt.Sprintf("decoder.lstm.bias_ih_l%d", i), 4*p)
		l.add(fmt.Sprintf("decoder.lstm.bias_hh_l%d", i), 4*p)
	}
	l.linear("encoder_projector", true, c.JointHidden, c.DModel)
	l.linear("decoder.decoder_projector", true, c.JointHidden, p)
	l.linear("joint.head", true, c.VocabSize+1+len(c.Durations), c.JointHidden)
}
