package checkpointtest

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// WriteHuggingFace writes config.json, processor_config.json, tokenizer.json
// and model.safetensors to dir, which must exist.
func WriteHuggingFace(dir string, m Model) error {
	files := map[string]any{
		"config.json":           hfConfig(m.Config),
		"processor_config.json": hfProcessor(m.Config),
		"tokenizer.json":        hfTokenizer(m.Pieces),
	}
	for name, content := range files {
		text, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	return errors.Join(WriteSafetensors(w, m.Tensors, m.Fill), w.Flush(), f.Close())
}

// WriteSafetensors writes tensors in the order given, under their names.
func WriteSafetensors(w io.Writer, tensors []checkpoint.TensorInfo, fill Fill) error {
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	header := make(map[string]entry, len(tensors))
	at := 0
	for _, t := range tensors {
		end := at + t.Elements()*t.DType.Bytes()
		header[t.Name] = entry{DType: t.DType.String(), Shape: append([]int{}, t.Shape...), Offsets: [2]int{at, end}}
		at = end
	}
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 { // the data starts aligned
		text = append(text, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
		return err
	}
	for _, t := range tensors {
		if err := writeTensor(w, t, fill); err != nil {
			return err
		}
	}
	return nil
}

type object = map[string]any

func hfConfig(c checkpoint.Config) object {
	encoder := object{
		"model_type":                   "parakeet_encoder",
		"hidden_size":                  c.DModel,
		"intermediate_size":            c.FFDim,
		"num_hidden_layers":            c.Layers,
		"num_attention_heads":          c.Heads,
		"num_key_value_heads":          c.Heads,
		"hidden_act":                   "silu",
		"attention_bias":               c.AttentionBias,
		"convolution_bias":             c.ConvBias,
		"conv_kernel_size":             c.ConvKernel,
		"subsampling_factor":           c.SubsamplingFactor,
		"subsampling_conv_channels":    c.SubsamplingChannels,
		"subsampling_conv_kernel_size": 3,
		"subsampling_conv_stride":      2,
		"num_mel_bins":                 c.Mels,
		"scale_input":                  c.ScaleInput,
	}
	if c.AttentionLeft >= 0 {
		encoder["attention_type"] = "rel_pos_local_attn"
		encoder["attention_context_size"] = []int{c.AttentionLeft, c.AttentionRight}
	}
	config := object{
		"vocab_size":     c.VocabSize + 1,
		"encoder_config": encoder,
	}
	if !c.Kind.HasTransducer() {
		config["model_type"] = "parakeet_ctc"
		config["architectures"] = []string{"ParakeetForCTC"}
		config["pad_token_id"] = c.BlankID
		return config
	}
	config["model_type"], config["architectures"] = "parakeet_tdt", []string{"ParakeetForTDT"}
	if len(c.Durations) == 0 {
		config["model_type"], config["architectures"] = "parakeet_rnnt", []string{"ParakeetForRNNT"}
	}
	config["blank_token_id"] = c.BlankID
	config["decoder_hidden_size"] = c.PredHidden
	config["num_decoder_layers"] = c.PredLayers
	config["hidden_act"] = "relu"
	config["durations"] = c.Durations
	config["max_symbols_per_step"] = c.MaxSymbols
	return config
}

func hfProcessor(c checkpoint.Config) object {
	return object{
		"processor_class": "ParakeetProcessor",
		"blank_token":     "<blank>",
		"feature_extractor": object{
			"feature_extractor_type": "ParakeetFeatureExtractor",
			"feature_size":           c.Mels,
			"sampling_rate":          c.SampleRate,
			"n_fft":                  c.NFFT,
			"win_length":             c.Window,
			"hop_length":             c.Hop,
			"preemphasis":            c.Preemphasis,
		},
	}
}

// hfTokenizer adds blank after the pieces, as the published files do.
func hfTokenizer(pieces []checkpoint.Piece) object {
	vocab := make(map[string]int, len(pieces))
	added := []object{}
	unk := ""
	for id, p := range pieces {
		vocab[p.Text] = id
		switch p.Type {
		case checkpoint.Unknown:
			unk = p.Text
		case checkpoint.Control, checkpoint.UserDefined:
			added = append(added, object{"id": id, "content": p.Text, "special": p.Type == checkpoint.Control})
		case checkpoint.Normal, checkpoint.Unused, checkpoint.Byte: // in the vocabulary alone
		}
	}
	added = append(added, object{"id": len(pieces), "content": "<blank>", "special": true})
	return object{
		"version":      "1.0",
		"added_tokens": added,
		"model":        object{"type": "BPE", "unk_token": unk, "vocab": vocab, "merges": []string{}},
	}
}
