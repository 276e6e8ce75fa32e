package checkpoint_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.yaml.in/yaml/v3"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// set changes the value at a dotted path of a decoded JSON or YAML file; nil
// removes the key.
func set(tree map[string]any, path string, value any) {
	parts := strings.Split(path, ".")
	for _, p := range parts[:len(parts)-1] {
		if _, ok := tree[p].(map[string]any); !ok {
			tree[p] = map[string]any{}
		}
		tree = tree[p].(map[string]any)
	}
	last := parts[len(parts)-1]
	if value == nil {
		delete(tree, last)
		return
	}
	tree[last] = value
}

// openHF opens a tiny model, one of whose files has one key changed.
func openHF(t *testing.T, c checkpoint.Config, file, key string, value any) (*checkpoint.Checkpoint, error) {
	t.Helper()
	dir := writeHF(t, model(c, checkpoint.F32))
	path := filepath.Join(dir, file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		t.Fatal(err)
	}
	set(tree, key, value)
	if text, err = json.Marshal(tree); err != nil {
		t.Fatal(err)
	}
	write(t, path, text)
	return checkpoint.Open(dir)
}

// TestHuggingFaceDefaults removes a key: the library's default counts, unless
// the tensors tell.
func TestHuggingFaceDefaults(t *testing.T) {
	t.Parallel()
	plain := tiny(checkpoint.KindTDT)
	biased := plain
	biased.AttentionBias, biased.ConvBias, biased.ScaleInput = true, true, true
	for _, tt := range []struct {
		file, key string
		config    checkpoint.Config
		want      func(checkpoint.Config) bool
	}{
		{"config.json", "encoder_config.scale_input", plain, func(c checkpoint.Config) bool { return c.ScaleInput }},
		{"config.json", "encoder_config.attention_bias", plain, func(c checkpoint.Config) bool { return !c.AttentionBias }},
		{"config.json", "encoder_config.convolution_bias", plain, func(c checkpoint.Config) bool { return !c.ConvBias }},
		{"config.json", "encoder_config.attention_bias", biased, func(c checkpoint.Config) bool { return c.AttentionBias }},
		{"config.json", "encoder_config.num_mel_bins", plain, func(c checkpoint.Config) bool { return c.Mels == 80 }},
		{"config.json", "max_symbols_per_step", plain, func(c checkpoint.Config) bool { return c.MaxSymbols == 10 }},
		{"config.json", "encoder_config.hidden_size", plain, func(c checkpoint.Config) bool { return c.DModel == 8 }},
		{"processor_config.json", "feature_extractor.feature_size", plain, func(c checkpoint.Config) bool { return c.Mels == 80 }},
		{"processor_config.json", "feature_extractor.preemphasis", plain, func(c checkpoint.Config) bool { return c.Preemphasis == 0.97 }},
		{"processor_config.json", "feature_extractor.win_length", plain, func(c checkpoint.Config) bool { return c.Window == 400 && c.NFFT == 512 }},
	} {
		c, err := openHF(t, tt.config, tt.file, tt.key, nil)
		if err != nil {
			t.Errorf("without %s: %v", tt.key, err)
			continue
		}
		if !tt.want(c.Config) {
			t.Errorf("without %s: %+v", tt.key, c.Config)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestHuggingFaceContradictions changes a key so that it no longer fits.
func TestHuggingFaceContradictions(t *testing.T) {
	t.Parallel()
	tdt, ctc := tiny(checkpoint.KindTDT), tiny(checkpoint.KindCTC)
	for _, tt := range []struct {
		config    checkpoint.Config
		file, key string
		value     any
		want      string
	}{
		{tdt, "config.json", "model_type", "whisper", `config.json: model_type is "whisper" (architectures ["ParakeetForTDT"]), expected parakeet_tdt`},
		{tdt, "config.json", "model_type", "parakeet_ctc", `model_type is "parakeet_ctc", but the tensors are those of a tdt model`},
		{tdt, "config.json", "vocab_size", 12, `vocab_size is 12, but the tensors say 13`},
		{tdt, "config.json", "vocab_size", "12", `config.json: vocab_size is a string, expected int`},
		{tdt, "config.json", "blank_token_id", 13, `blank_token_id is 13, but the tensors say 12`},
		{ctc, "config.json", "pad_token_id", 2, `pad_token_id is 2, but the tensors say 12`},
		{tdt, "config.json", "durations", []int{0, 1}, `durations [0 1], but tensor joint.head.weight has outputs for 4`},
		{tdt, "config.json", "durations", nil, `durations [], but tensor joint.head.weight has outputs for 4`},
		{tdt, "config.json", "durations", []int{0, 1, 2, -4}, `expected none below 0`},
		{tdt, "config.json", "max_symbols_per_step", 0, `at most 0 symbols per frame`},
		{tdt, "config.json", "hidden_act", "tanh", `hidden_act is tanh, expected relu`},
		{tdt, "config.json", "decoder_hidden_size", 6, `decoder_hidden_size is 6, but the tensors say 5`},
		{tdt, "config.json", "num_decoder_layers", 1, `num_decoder_layers is 1, but the tensors say 2`},
		{tdt, "config.json", "encoder_config.hidden_size", 16, `encoder_config.hidden_size is 16, but the tensors say 8`},
		{tdt, "config.json", "encoder_config.intermediate_size", 16, `intermediate_size is 16, but the tensors say 32`},
		{tdt, "config.json", "encoder_config.num_hidden_layers", 3, `num_hidden_layers is 3, but the tensors say 2`},
		{tdt, "config.json", "encoder_config.num_attention_heads", 4, `num_attention_heads is 4, but the tensors say 2`},
		{tdt, "config.json", "encoder_config.attention_bias", true, `attention_bias is true, but the tensors say false`},
		{tdt, "config.json", "encoder_config.convolution_bias", true, `convolution_bias is true, but the tensors say false`},
		{tdt, "config.json", "encoder_config.conv_kernel_size", 31, `conv_kernel_size is 31, but the tensors say 9`},
		{tdt, "config.json", "encoder_config.subsampling_factor", 4, `subsampling_factor is 4, expected 8`},
		{tdt, "config.json", "encoder_config.num_mel_bins", 128, `feature_size is 80, but config.json says num_mel_bins 128`},
		{tdt, "config.json", "encoder_config.attention_type", "flash", `attention_type is "flash"`},
		{tdt, "config.json", "encoder_config.attention_type", "rel_pos_local_attn", `attention_context_size is [], expected [left, right]`},
		{tdt, "processor_config.json", "feature_extractor.feature_size", 128, `feature_size is 128`},
		{tdt, "processor_config.json", "feature_extractor.hop_length", 0, `hop 0`},
		{tdt, "tokenizer.json", "model.type", "Unigram", `tokenizer.json: model.type is "Unigram"`},
		{tdt, "tokenizer.json", "model.vocab.a", 3, `model.vocab: `},
		{tdt, "tokenizer.json", "model.vocab.zz", 1000, `14 pieces, but none has id 13`},
		{tdt, "tokenizer.json", "model.vocab.\u2581b", nil, `12 pieces, but none has id 1`},
	} {
		_, err := openHF(t, tt.config, tt.file, tt.key, tt.value)
		wantError(t, err, tt.want)
	}
}

// TestMelsMustFitTheTensors changes both files that give the number.
func TestMelsMustFitTheTensors(t *testing.T) {
	t.Parallel()
	c := tiny(checkpoint.KindTDT)
	m := model(c, checkpoint.F32)
	m.Config.Mels = 128 // the tensors stay those of 80
	_, err := checkpoint.Open(writeHF(t, m))
	wantError(t, err, "the front end has 128 mel bins, but tensor encoder.subsampling.linear.weight is for 73 to 80")
}

func TestPreprocessorConfigServesToo(t *testing.T) {
	t.Parallel()
	dir := writeHF(t, model(tiny(checkpoint.KindCTC), checkpoint.F32))
	if err := os.Remove(filepath.Join(dir, "processor_config.json")); err != nil {
		t.Fatal(err)
	}
	_, err := checkpoint.Open(dir)
	wantError(t, err, "processor_config.json")
	write(t, filepath.Join(dir, "preprocessor_config.json"), []byte(`{"feature_size": 80, "preemphasis": 0.5}`))
	if c := open(t, dir); c.Config.Preemphasis != 0.5 {
		t.Errorf("pre-emphasis %v, want 0.5", c.Config.Preemphasis)
	}
}

// openNemo opens a tiny model with one key of the YAML changed.
func openNemo(t *testing.T, c checkpoint.Config, key string, value any) (*checkpoint.Checkpoint, error) {
	t.Helper()
	members := untar(t, nemoBytes(t, model(c, checkpoint.F32)))
	var tree map[string]any
	if err := yaml.Unmarshal(members["./model_config.yaml"], &tree); err != nil {
		t.Fatal(err)
	}
	set(tree, key, value)
	text, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	members["./model_config.yaml"] = text
	return checkpoint.OpenFS(fstest.MapFS{"x.nemo": {Data: retar(t, members)}})
}

func untar(t testing.TB, data []byte) map[string][]byte {
	t.Helper()
	members := make(map[string][]byte)
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return members
		}
		if err != nil {
			t.Fatal(err)
		}
		if members[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func retar(t testing.TB, members map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(members[name]))}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(members[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestNemoConfig changes a key of model_config.yaml: want is an error, or ""
// where check must hold.
func TestNemoConfig(t *testing.T) {
	t.Parallel()
	type config = checkpoint.Config
	tdt, ctc, local := tiny(checkpoint.KindTDT), tiny(checkpoint.KindCTC), tiny(checkpoint.KindTDT)
	local.AttentionLeft, local.AttentionRight = 128, 128
	always := func(config) bool { return true }
	for _, tt := range []struct {
		config config
		key    string
		value  any
		want   string
		check  func(config) bool
	}{
		// NeMo's defaults are true for both; the tensors decide about biases.
		{tdt, "encoder.xscaling", nil, "", func(c config) bool { return c.ScaleInput }},
		{tdt, "encoder.use_bias", nil, "", func(c config) bool { return !c.AttentionBias && !c.ConvBias }},
		{tdt, "encoder.use_bias", true, "encoder.use_bias is true, but the tensors say false", nil},
		{tdt, "encoder.conv_context_size", []int{4, 4}, "", always},
		{tdt, "encoder.conv_context_size", []int{8, 0}, "encoder.conv_context_size is [8 0], expected null or [4, 4]", nil},
		{tdt, "encoder.feat_in", "${model.preprocessor.features}", "", always},
		{tdt, "encoder.n_layers", "two", "model_config.yaml", nil},
		{tdt, "encoder.att_context_size", nil, "", func(c config) bool { return c.AttentionLeft == -1 && c.AttentionRight == -1 }},
		{tdt, "encoder.att_context_size", []int{-1, 5}, "encoder.att_context_size is [-1 5]", nil},
		{tdt, "encoder.self_attention_model", "abs_pos", `encoder.self_attention_model is "abs_pos"`, nil},
		{tdt, "encoder.self_attention_model", "rel_pos_local_attn", "encoder.att_context_size is [-1 -1]", nil},
		{local, "encoder.self_attention_model", "rel_pos_local_attn", "", func(c config) bool { return c.AttentionLeft == 128 && c.AttentionRight == 128 }},
		{tdt, "encoder.reduction", "pooling", `encoder.reduction is "pooling"`, nil},
		{tdt, "encoder.subsampling", "striding", "encoder.subsampling is striding, expected dw_striding", nil},
		{tdt, "encoder.conv_norm_type", "layer_norm", "encoder.conv_norm_type is layer_norm", nil},
		{tdt, "encoder.ff_expansion_factor", 2, "encoder.ff_expansion_factor is 2, but the tensors say 8 times 4", nil},
		{tdt, "encoder.subsampling_conv_channels", -1, "", always},
		{tdt, "preprocessor.features", 64, "encoder.feat_in is 80", nil},
		{tdt, "preprocessor.normalize", "all_features", "preprocessor.normalize is all_features", nil},
		{tdt, "preprocessor.window_size", nil, "", func(c config) bool { return c.Window == 320 }},
		{tdt, "preprocessor.n_fft", nil, "", func(c config) bool { return c.NFFT == 512 }},
		{tdt, "preprocessor.sample_rate", 8000, "sample_rate is 16000, expected 8000", nil},
		{tdt, "sample_rate", nil, "", always},
		{tdt, "decoding.durations", nil, "durations [], but tensor joint.head.weight has outputs for 4", nil},
		{tdt, "model_defaults.tdt_durations", []int{9, 9, 9, 9}, "", func(c config) bool { return slices.Equal(c.Durations, []int{0, 1, 2, 4}) }},
		{tdt, "decoding.greedy.max_symbols", nil, "", func(c config) bool { return c.MaxSymbols == 10 }},
		{tdt, "decoder.prednet", nil, "", func(c config) bool { return c.PredHidden == 5 && c.PredLayers == 2 }},
		{tdt, "joint.jointnet", nil, "", func(c config) bool { return c.JointHidden == 6 }},
		{tdt, "joint.num_classes", 11, "joint.num_classes is 11, but the tensors say 12", nil},
		{tdt, "joint.jointnet.activation", "tanh", "joint.jointnet.activation is tanh", nil},
		{ctc, "decoder.num_classes", 11, "decoder.num_classes is 11, but the tensors say 12", nil},
		{tdt, "tokenizer.type", "wpe", "tokenizer.type is wpe", nil},
		{tdt, "tokenizer.model_path", "nemo:missing.model", "tokenizer.model_path: there is no member missing.model", nil},
		{tdt, "tokenizer.model_path", "/a/tokenizer.model", `tokenizer.model_path is "/a/tokenizer.model"`, nil},
		{tdt, "tokenizer.model_path", "nemo:model_config.yaml", "model_config.yaml: ", nil},
	} {
		c, err := openNemo(t, tt.config, tt.key, tt.value)
		if tt.want != "" {
			wantError(t, err, tt.want)
			continue
		}
		if err != nil {
			t.Errorf("%s = %v: %v", tt.key, tt.value, err)
			continue
		}
		if !tt.check(c.Config) {
			t.Errorf("%s = %v: %+v", tt.key, tt.value, c.Config)
		}
	}
}

// TestNemoDurationsFromModelDefaults: older files have them only there.
func TestNemoDurationsFromModelDefaults(t *testing.T) {
	t.Parallel()
	members := untar(t, nemoBytes(t, model(tiny(checkpoint.KindTDT), checkpoint.F32)))
	text := strings.ReplaceAll(string(members["./model_config.yaml"]), "decoding:", "unused:")
	members["./model_config.yaml"] = []byte(text + "model_defaults: {tdt_durations: [0, 1, 2, 3]}\n")
	c, err := checkpoint.OpenFS(fstest.MapFS{"x.nemo": {Data: retar(t, members)}})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.Config.Durations, []int{0, 1, 2, 3}) {
		t.Errorf("durations %v", c.Config.Durations)
	}
}

func TestNemoMembers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(map[string][]byte)
		want   string
	}{
		"no yaml":    {func(m map[string][]byte) { delete(m, "./model_config.yaml") }, "x.nemo: member model_config.yaml is missing"},
		"no weights": {func(m map[string][]byte) { delete(m, "./model_weights.ckpt") }, "x.nemo: member model_weights.ckpt is missing"},
		"twice":      {func(m map[string][]byte) { m["model_config.yaml"] = nil }, "x.nemo: member model_config.yaml comes twice"},
		"legacy torch": {func(m map[string][]byte) {
			m["./model_weights.ckpt"] = []byte("\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.")
		}, "model_weights.ckpt: not a zip"},
		"large": {func(m map[string][]byte) { m["./other"] = make([]byte, 17<<20) }, "member other has 17825792 bytes"},
	} {
		members := untar(t, nemoBytes(t, model(tiny(checkpoint.KindTDT), checkpoint.F32)))
		tt.change(members)
		_, err := checkpoint.OpenFS(fstest.MapFS{"x.nemo": {Data: retar(t, members)}})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v\nwant %s", name, err, tt.want)
		}
	}
	for _, data := range []string{"", "x", "\x1f\x8b", strings.Repeat("no tar ", 200)} {
		if _, err := checkpoint.OpenFS(fstest.MapFS{"x.nemo": {Data: []byte(data)}}); err == nil {
			t.Errorf("%.10q was accepted", data)
		}
	}
}
