package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// hfConfig is config.json. A nil field is absent.
type hfConfig struct {
	ModelType         string    `json:"model_type"`
	Architectures     []string  `json:"architectures"`
	VocabSize         *int      `json:"vocab_size"`
	BlankTokenID      *int      `json:"blank_token_id"`
	PadTokenID        *int      `json:"pad_token_id"`
	DecoderHiddenSize *int      `json:"decoder_hidden_size"`
	NumDecoderLayers  *int      `json:"num_decoder_layers"`
	HiddenAct         *string   `json:"hidden_act"`
	Durations         []int     `json:"durations"`
	MaxSymbols        *int      `json:"max_symbols_per_step"`
	Encoder           hfEncoder `json:"encoder_config"`
}

type hfEncoder struct {
	HiddenSize            *int    `json:"hidden_size"`
	IntermediateSize      *int    `json:"intermediate_size"`
	NumHiddenLayers       *int    `json:"num_hidden_layers"`
	NumAttentionHeads     *int    `json:"num_attention_heads"`
	NumKeyValueHeads      *int    `json:"num_key_value_heads"`
	HiddenAct             *string `json:"hidden_act"`
	AttentionBias         *bool   `json:"attention_bias"`
	ConvolutionBias       *bool   `json:"convolution_bias"`
	ConvKernelSize        *int    `json:"conv_kernel_size"`
	SubsamplingFactor     *int    `json:"subsampling_factor"`
	SubsamplingChannels   *int    `json:"subsampling_conv_channels"`
	SubsamplingKernelSize *int    `json:"subsampling_conv_kernel_size"`
	SubsamplingStride     *int    `json:"subsampling_conv_stride"`
	NumMelBins            *int    `json:"num_mel_bins"`
	ScaleInput            *bool   `json:"scale_input"`
	AttentionType         *string `json:"attention_type"`
	AttentionContext      []int   `json:"attention_context_size"`
}

// hfProcessor is processor_config.json, which holds the front end as an
// object, or preprocessor_config.json, which is that object.
type hfProcessor struct {
	FeatureExtractor *hfFrontEnd `json:"feature_extractor"`
	hfFrontEnd
}

type hfFrontEnd struct {
	FeatureSize  *int     `json:"feature_size"`
	SamplingRate *int     `json:"sampling_rate"`
	NFFT         *int     `json:"n_fft"`
	WinLength    *int     `json:"win_length"`
	HopLength    *int     `json:"hop_length"`
	Preemphasis  *float64 `json:"preemphasis"`
}

const (
	configFile       = "config.json"
	processorFile    = "processor_config.json"
	preprocessorFile = "preprocessor_config.json"
	tokenizerFile    = "tokenizer.json"
	weightsFile      = "model.safetensors"
	weightsIndexFile = "model.safetensors.index.json"

	maxConfigBytes    = 4 << 20
	maxTokenizerBytes = 64 << 20
)

// maxSymbolsDefault is the cap of both references where a file is silent.
const maxSymbolsDefault = 10

// openHuggingFace reads a directory in the Hugging Face layout into c.
func openHuggingFace(dir *directory, c *Checkpoint) error {
	c.Format = HuggingFace
	list, err := dir.safetensors(c)
	if err != nil {
		return err
	}
	set, err := c.adopt(list)
	if err != nil {
		return err
	}
	s, err := deriveShapes(set)
	if err != nil {
		return fmt.Errorf("%s: %w", weightsFile, err)
	}
	var config hfConfig
	if err := dir.json(configFile, maxConfigBytes, &config); err != nil {
		return err
	}
	if err := config.apply(&s); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	name := processorFile
	if !dir.has(name) && dir.has(preprocessorFile) {
		name = preprocessorFile
	}
	var processor hfProcessor
	if err := dir.json(name, maxConfigBytes, &processor); err != nil {
		return err
	}
	if err := processor.apply(&s); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if c.Config, err = s.finish(); err != nil {
		return fmt.Errorf("%s: %w", configFile, err)
	}
	text, err := dir.read(tokenizerFile, maxTokenizerBytes)
	if err != nil {
		return err
	}
	pieces, err := readTokenizer(text)
	if err == nil {
		c.Pieces, err = settlePieces(pieces, c.Config)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", tokenizerFile, err)
	}
	return nil
}

// apply checks the configuration against the tensors and adds what they do
// not say. The defaults of absent keys are transformers' own.
func (h *hfConfig) apply(s *shapes) error {
	e := &h.Encoder
	classes := s.VocabSize + 1
	err := cmp.Or(
		h.checkKind(s.Kind),
		agree("vocab_size", h.VocabSize, classes),
		agree("encoder_config.hidden_size", e.HiddenSize, s.DModel),
		agree("encoder_config.intermediate_size", e.IntermediateSize, s.FFDim),
		agree("encoder_config.num_hidden_layers", e.NumHiddenLayers, s.Layers),
		agree("encoder_config.num_attention_heads", e.NumAttentionHeads, s.Heads),
		agree("encoder_config.num_key_value_heads", e.NumKeyValueHeads, s.Heads),
		agree("encoder_config.attention_bias", e.AttentionBias, s.AttentionBias),
		agree("encoder_config.convolution_bias", e.ConvolutionBias, s.ConvBias),
		agree("encoder_config.conv_kernel_size", e.ConvKernelSize, s.ConvKernel),
		agree("encoder_config.subsampling_conv_channels", e.SubsamplingChannels, s.SubsamplingChannels),
		expect("encoder_config.subsampling_factor", e.SubsamplingFactor, s.SubsamplingFactor),
		expect("encoder_config.subsampling_conv_kernel_size", e.SubsamplingKernelSize, 3),
		expect("encoder_config.subsampling_conv_stride", e.SubsamplingStride, 2),
		expect("encoder_config.hidden_act", e.HiddenAct, "silu"),
	)
	if err != nil {
		return err
	}
	s.Mels = or(e.NumMelBins, 80)
	s.ScaleInput = or(e.ScaleInput, true)
	switch kind := or(e.AttentionType, "rel_pos"); kind {
	case "rel_pos":
	case "rel_pos_local_attn":
		if err := s.attentionWindow("encoder_config.attention_context_size", e.AttentionContext, true); err != nil {
			return err
		}
	default:
		return fmt.Errorf("encoder_config.attention_type is %q, expected rel_pos or rel_pos_local_attn", kind)
	}
	if !s.Kind.HasTransducer() {
		// A CTC model's blank is its padding.
		return agree("pad_token_id", h.PadTokenID, s.BlankID)
	}
	s.Durations = slices.Clone(h.Durations)
	s.MaxSymbols = or(h.MaxSymbols, maxSymbolsDefault)
	return cmp.Or(
		agree("blank_token_id", h.BlankTokenID, s.BlankID),
		agree("decoder_hidden_size", h.DecoderHiddenSize, s.PredHidden),
		agree("num_decoder_layers", h.NumDecoderLayers, s.PredLayers),
		expect("hidden_act", h.HiddenAct, "relu"),
	)
}

// checkKind holds model_type against the heads that are there. A TDT model
// with an additional CTC head is a hybrid; no configuration of Hugging Face's
// says so.
func (h *hfConfig) checkKind(derived Kind) error {
	accepts := map[string][]Kind{
		"parakeet_tdt":  {KindTDT, KindHybrid},
		"parakeet_rnnt": {KindRNNT, KindHybrid},
		"parakeet_ctc":  {KindCTC},
	}
	kinds, ok := accepts[h.ModelType]
	if !ok {
		return fmt.Errorf("model_type is %q (architectures %q), expected parakeet_tdt, parakeet_rnnt or parakeet_ctc", h.ModelType, h.Architectures)
	}
	if !slices.Contains(kinds, derived) {
		return fmt.Errorf("model_type is %q, but the tensors are those of a %s model", h.ModelType, derived)
	}
	return nil
}

func (p *hfProcessor) apply(s *shapes) error {
	f := &p.hfFrontEnd
	if p.FeatureExtractor != nil {
		f = p.FeatureExtractor
	}
	s.SampleRate = or(f.SamplingRate, 16000)
	s.NFFT = or(f.NFFT, 512)
	s.Window = or(f.WinLength, 400)
	s.Hop = or(f.HopLength, 160)
	s.Preemphasis = or(f.Preemphasis, 0.97)
	if mels := or(f.FeatureSize, 80); mels != s.Mels {
		return fmt.Errorf("feature_size is %d, but %s says num_mel_bins %d", mels, configFile, s.Mels)
	}
	return nil
}

// safetensors opens the weights: one file, or the shards that an index names.
func (d *directory) safetensors(c *Checkpoint) ([]tensor, error) {
	if d.has(weightsFile) {
		s, err := d.open(weightsFile, c)
		if err != nil {
			return nil, err
		}
		c.hashed = append(c.hashed, s)
		return readSafetensors(s)
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := d.json(weightsIndexFile, maxHeaderBytes, &index); err != nil {
		return nil, err
	}
	files := make(map[string]bool)
	for _, file := range index.WeightMap {
		files[file] = true
	}
	if len(files) > 1000 {
		return nil, fmt.Errorf("%s: %d shards, expected at most 1000", weightsIndexFile, len(files))
	}
	var all []tensor
	for _, file := range sortedKeys(files) {
		s, err := d.open(file, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", weightsIndexFile, err)
		}
		c.hashed = append(c.hashed, s)
		list, err := readSafetensors(s)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, checkIndex(index.WeightMap, all)
}

// checkIndex holds the index against the shards, both ways.
func checkIndex(weightMap map[string]string, all []tensor) error {
	for _, t := range all {
		if file, ok := weightMap[t.Name]; !ok || file != t.data.name {
			return fmt.Errorf("%s: tensor %q is in %s, the index says %q", weightsIndexFile, t.Name, t.data.name, file)
		}
	}
	if len(all) != len(weightMap) {
		found := make(map[string]bool, len(all))
		for _, t := range all {
			found[t.Name] = true
		}
		for _, name := range sortedKeys(weightMap) {
			if !found[name] {
				return fmt.Errorf("%s: tensor %q is not in %s", weightsIndexFile, name, weightMap[name])
			}
		}
	}
	return nil
}

// json reads a small file of the directory into v.
func (d *directory) json(name string, limit int64, v any) error {
	data, err := d.read(name, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) {
			return fmt.Errorf("%s: %s is a %s, expected %s", name, wrong.Field, wrong.Value, wrong.Type)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
