package checkpoint

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// nemoConfig is the part of model_config.yaml that inference depends on.
type nemoConfig struct {
	SampleRate    opt[int]         `yaml:"sample_rate"`
	Preprocessor  nemoPreprocessor `yaml:"preprocessor"`
	Encoder       nemoEncoder      `yaml:"encoder"`
	ModelDefaults struct {
		Durations opt[[]int] `yaml:"tdt_durations"`
	} `yaml:"model_defaults"`
	Decoder struct {
		VocabSize  opt[int] `yaml:"vocab_size"`  // of a transducer
		NumClasses opt[int] `yaml:"num_classes"` // of a CTC model
		PredNet    struct {
			Hidden opt[int] `yaml:"pred_hidden"`
			Layers opt[int] `yaml:"pred_rnn_layers"`
		} `yaml:"prednet"`
	} `yaml:"decoder"`
	Joint struct {
		NumClasses   opt[int] `yaml:"num_classes"`
		ExtraOutputs opt[int] `yaml:"num_extra_outputs"`
		JointNet     struct {
			Hidden     opt[int]    `yaml:"joint_hidden"`
			Activation opt[string] `yaml:"activation"`
		} `yaml:"jointnet"`
	} `yaml:"joint"`
	Decoding struct {
		Durations opt[[]int] `yaml:"durations"`
		Greedy    struct {
			MaxSymbols        opt[int] `yaml:"max_symbols"`
			MaxSymbolsPerStep opt[int] `yaml:"max_symbols_per_step"`
		} `yaml:"greedy"`
	} `yaml:"decoding"`
	Tokenizer struct {
		Type      opt[string] `yaml:"type"`
		ModelPath opt[string] `yaml:"model_path"`
	} `yaml:"tokenizer"`
}

type nemoPreprocessor struct {
	SampleRate    opt[int]     `yaml:"sample_rate"`
	WindowSize    opt[float64] `yaml:"window_size"`   // seconds
	WindowStride  opt[float64] `yaml:"window_stride"` // seconds
	Window        opt[string]  `yaml:"window"`
	Features      opt[int]     `yaml:"features"`
	NFFT          opt[int]     `yaml:"n_fft"`
	Preemph       opt[float64] `yaml:"preemph"`
	Normalize     opt[string]  `yaml:"normalize"`
	Log           opt[bool]    `yaml:"log"`
	FrameSplicing opt[int]     `yaml:"frame_splicing"`
	LowFreq       opt[float64] `yaml:"lowfreq"`
	MagPower      opt[float64] `yaml:"mag_power"`
	MelNorm       opt[string]  `yaml:"mel_norm"`
	GuardType     opt[string]  `yaml:"log_zero_guard_type"`
}

type nemoEncoder struct {
	FeatIn              opt[int]    `yaml:"feat_in"`
	Layers              opt[int]    `yaml:"n_layers"`
	DModel              opt[int]    `yaml:"d_model"`
	UseBias             opt[bool]   `yaml:"use_bias"`
	Subsampling         opt[string] `yaml:"subsampling"`
	SubsamplingFactor   opt[int]    `yaml:"subsampling_factor"`
	SubsamplingChannels opt[int]    `yaml:"subsampling_conv_channels"`
	Causal              opt[bool]   `yaml:"causal_downsampling"`
	Reduction           opt[string] `yaml:"reduction"`
	FFExpansion         opt[int]    `yaml:"ff_expansion_factor"`
	SelfAttention       opt[string] `yaml:"self_attention_model"`
	Heads               opt[int]    `yaml:"n_heads"`
	AttContext          opt[[]int]  `yaml:"att_context_size"`
	AttContextStyle     opt[string] `yaml:"att_context_style"`
	XScaling            opt[bool]   `yaml:"xscaling"`
	UntieBiases         opt[bool]   `yaml:"untie_biases"`
	ConvKernel          opt[int]    `yaml:"conv_kernel_size"`
	ConvNorm            opt[string] `yaml:"conv_norm_type"`
	ConvContext         opt[[]int]  `yaml:"conv_context_size"`
	GlobalTokens        opt[int]    `yaml:"global_tokens"`
}

// opt is a value that may be absent or null. A reference to another key
// ("${model.x}") counts as absent: whatever is written so can be read off the
// tensors, or has its own key.
type opt[T any] struct{ value *T }

// UnmarshalYAML implements yaml.Unmarshaler.
func (o *opt[T]) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && (n.Tag == "!!null" || strings.HasPrefix(n.Value, "${")) {
		return nil
	}
	var v T
	if err := n.Decode(&v); err != nil {
		return err
	}
	o.value = &v
	return nil
}

// parseNemoConfig reads the YAML. It decodes into fixed types only, so nested
// aliases cannot expand.
func parseNemoConfig(text []byte) (*nemoConfig, error) {
	if len(text) > maxConfigBytes {
		return nil, fmt.Errorf("%d bytes, expected at most %d", len(text), maxConfigBytes)
	}
	var c nemoConfig
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	return &c, nil
}

// apply checks the configuration against the tensors and adds what they do not
// say. The defaults of absent keys are those of NeMo's constructors.
func (n *nemoConfig) apply(s *shapes) error {
	if err := cmp.Or(n.Preprocessor.apply(s), n.Encoder.apply(s)); err != nil {
		return err
	}
	err := cmp.Or(
		expect("sample_rate", n.SampleRate.value, s.SampleRate),
		expect("tokenizer.type", n.Tokenizer.Type.value, "bpe"),
		n.checkClasses(s),
	)
	if err != nil || !s.Kind.HasTransducer() {
		return err
	}
	// An RNN-T file may still carry durations that nothing uses.
	if s.extra > 0 {
		s.Durations = slices.Clone(or(cmp.Or(n.Decoding.Durations.value, n.ModelDefaults.Durations.value), nil))
	}
	g := &n.Decoding.Greedy
	s.MaxSymbols = or(cmp.Or(g.MaxSymbols.value, g.MaxSymbolsPerStep.value), maxSymbolsDefault)
	return cmp.Or(
		agree("decoder.prednet.pred_hidden", n.Decoder.PredNet.Hidden.value, s.PredHidden),
		agree("decoder.prednet.pred_rnn_layers", n.Decoder.PredNet.Layers.value, s.PredLayers),
		agree("joint.num_extra_outputs", n.Joint.ExtraOutputs.value, s.extra),
		agree("joint.jointnet.joint_hidden", n.Joint.JointNet.Hidden.value, s.JointHidden),
		expect("joint.jointnet.activation", n.Joint.JointNet.Activation.value, "relu"),
	)
}

// checkClasses checks the vocabulary of the main head, whose key has another
// name in CTC models.
func (n *nemoConfig) checkClasses(s *shapes) error {
	if !s.Kind.HasTransducer() {
		return agree("decoder.num_classes", set(n.Decoder.NumClasses), s.VocabSize)
	}
	return cmp.Or(
		agree("decoder.vocab_size", set(n.Decoder.VocabSize), s.VocabSize),
		agree("joint.num_classes", set(n.Joint.NumClasses), s.VocabSize),
	)
}

// set is the value, but for a negative number, which means that NeMo fills it in.
func set(o opt[int]) *int {
	if o.value != nil && *o.value < 0 {
		return nil
	}
	return o.value
}

func (p *nemoPreprocessor) apply(s *shapes) error {
	s.SampleRate = or(p.SampleRate.value, 16000)
	seconds := func(v *float64, otherwise float64) int {
		return int(math.Round(min(max(or(v, otherwise), 0), 1) * float64(s.SampleRate)))
	}
	if s.SampleRate <= 0 || s.SampleRate > 1<<20 {
		return fmt.Errorf("preprocessor.sample_rate is %d", s.SampleRate)
	}
	s.Window = seconds(p.WindowSize.value, 0.02)
	s.Hop = seconds(p.WindowStride.value, 0.01)
	powerOfTwo := 1
	for powerOfTwo < s.Window {
		powerOfTwo *= 2
	}
	s.NFFT = or(p.NFFT.value, powerOfTwo)
	s.Mels = or(p.Features.value, 64)
	s.Preemphasis = or(p.Preemph.value, 0.97)
	return cmp.Or(
		expect("preprocessor.window", p.Window.value, "hann"),
		expect("preprocessor.normalize", p.Normalize.value, "per_feature"),
		expect("preprocessor.log", p.Log.value, true),
		expect("preprocessor.frame_splicing", p.FrameSplicing.value, 1),
		expect("preprocessor.lowfreq", p.LowFreq.value, 0),
		expect("preprocessor.mag_power", p.MagPower.value, 2),
		expect("preprocessor.mel_norm", p.MelNorm.value, "slaney"),
		expect("preprocessor.log_zero_guard_type", p.GuardType.value, "add"),
	)
}

func (e *nemoEncoder) apply(s *shapes) error {
	err := cmp.Or(
		agree("encoder.feat_in", e.FeatIn.value, s.Mels),
		agree("encoder.n_layers", e.Layers.value, s.Layers),
		agree("encoder.d_model", e.DModel.value, s.DModel),
		agree("encoder.use_bias", e.UseBias.value, s.AttentionBias),
		agree("encoder.use_bias", e.UseBias.value, s.ConvBias),
		agree("encoder.n_heads", e.Heads.value, s.Heads),
		agree("encoder.subsampling_conv_channels", set(e.SubsamplingChannels), s.SubsamplingChannels),
		agree("encoder.conv_kernel_size", e.ConvKernel.value, s.ConvKernel),
		expect("encoder.subsampling", e.Subsampling.value, "dw_striding"),
		expect("encoder.subsampling_factor", e.SubsamplingFactor.value, s.SubsamplingFactor),
		expect("encoder.causal_downsampling", e.Causal.value, false),
		expect("encoder.att_context_style", e.AttContextStyle.value, "regular"),
		expect("encoder.untie_biases", e.UntieBiases.value, true),
		expect("encoder.conv_norm_type", e.ConvNorm.value, "batch_norm"),
		expect("encoder.global_tokens", e.GlobalTokens.value, 0),
	)
	switch {
	case err != nil:
		return err
	case e.Reduction.value != nil:
		return fmt.Errorf("encoder.reduction is %q, expected null: other values are not supported", *e.Reduction.value)
	}
	half := (s.ConvKernel - 1) / 2
	if context := or(e.ConvContext.value, []int{half, half}); !slices.Equal(context, []int{half, half}) {
		return fmt.Errorf("encoder.conv_context_size is %v, expected null or [%d, %d]: other values are not supported", context, half, half)
	}
	if v := e.FFExpansion.value; v != nil && *v*s.DModel != s.FFDim {
		return fmt.Errorf("encoder.ff_expansion_factor is %d, but the tensors say %d times %d", *v, s.DModel, s.FFDim/s.DModel)
	}
	s.ScaleInput = or(e.XScaling.value, true)
	kind := or(e.SelfAttention.value, "rel_pos")
	if kind != "rel_pos" && kind != "rel_pos_local_attn" {
		return fmt.Errorf("encoder.self_attention_model is %q, expected rel_pos or rel_pos_local_attn", kind)
	}
	context := or(e.AttContext.value, []int{-1, -1})
	return s.attentionWindow("encoder.att_context_size", context, kind == "rel_pos_local_attn")
}
