package checkpointtest

import (
	"archive/tar"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/aviary-asr/aviary/asr/checkpoint"
)

// vocabularyMember names the SentencePiece model; NeMo puts a random id there.
const vocabularyMember = "0123456789abcdef0123456789abcdef_tokenizer.model"

// WriteNemo writes m as an uncompressed .nemo archive: a tar with the
// configuration, the SentencePiece model and the weights as torch.save writes
// them. It needs no seeking.
func WriteNemo(w io.Writer, m Model) error {
	config, err := yaml.Marshal(nemoConfig(m.Config))
	if err != nil {
		return err
	}
	tensors := make([]checkpoint.TensorInfo, len(m.Tensors))
	fills := make(map[string]checkpoint.TensorInfo, len(m.Tensors))
	for i, t := range m.Tensors {
		tensors[i] = t
		if tensors[i].Name, err = nemoName(t.Name, m.Config.Kind); err != nil {
			return err
		}
		fills[tensors[i].Name] = t
	}
	fill := func(t checkpoint.TensorInfo, offset int, dst []float32) { m.Fill(fills[t.Name], offset, dst) }
	// tar wants the size first. Writing zeros to nowhere finds it.
	var size counter
	if err := WriteTorch(&size, tensors, func(checkpoint.TensorInfo, int, []float32) {}); err != nil {
		return err
	}
	t := tar.NewWriter(w)
	small := []struct {
		name string
		data []byte
	}{{"model_config.yaml", config}, {vocabularyMember, SentencePiece(m.Pieces)}}
	for _, s := range small {
		if err := t.WriteHeader(&tar.Header{Name: "./" + s.name, Mode: 0o644, Size: int64(len(s.data))}); err != nil {
			return err
		}
		if _, err := t.Write(s.data); err != nil {
			return err
		}
	}
	if err := t.WriteHeader(&tar.Header{Name: "./model_weights.ckpt", Mode: 0o644, Size: int64(size)}); err != nil {
		return err
	}
	if err := WriteTorch(t, tensors, fill); err != nil {
		return err
	}
	return t.Close()
}

type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func nemoName(canonical string, kind checkpoint.Kind) (string, error) {
	name, ok := checkpoint.NemoName(canonical)
	if !ok {
		return "", fmt.Errorf("tensor %q has no NeMo name", canonical)
	}
	if kind == checkpoint.KindHybrid && strings.HasPrefix(canonical, "ctc_head.") {
		name = "ctc_" + name
	}
	return name, nil
}

func nemoConfig(c checkpoint.Config) object {
	config := object{
		"sample_rate": c.SampleRate,
		"preprocessor": object{
			"sample_rate":    c.SampleRate,
			"window_size":    float64(c.Window) / float64(c.SampleRate),
			"window_stride":  float64(c.Hop) / float64(c.SampleRate),
			"window":         "hann",
			"features":       c.Mels,
			"n_fft":          c.NFFT,
			"preemph":        c.Preemphasis,
			"normalize":      "per_feature",
			"log":            true,
			"frame_splicing": 1,
		},
		"encoder": object{
			"feat_in": c.Mels, "feat_out": -1,
			"n_layers": c.Layers, "d_model": c.DModel, "n_heads": c.Heads,
			"use_bias":    c.AttentionBias,
			"subsampling": "dw_striding", "subsampling_factor": c.SubsamplingFactor,
			"subsampling_conv_channels": c.SubsamplingChannels,
			"causal_downsampling":       false,
			"reduction":                 nil,
			"ff_expansion_factor":       c.FFDim / c.DModel,
			"self_attention_model":      "rel_pos",
			"att_context_size":          []int{c.AttentionLeft, c.AttentionRight},
			"att_context_style":         "regular",
			"xscaling":                  c.ScaleInput,
			"untie_biases":              true,
			"conv_kernel_size":          c.ConvKernel, "conv_norm_type": "batch_norm", "conv_context_size": nil,
		},
		"tokenizer": object{"type": "bpe", "model_path": "nemo:" + vocabularyMember},
	}
	if !c.Kind.HasTransducer() {
		config["decoder"] = object{"num_classes": c.VocabSize}
		return config
	}
	config["decoder"] = object{
		"vocab_size": c.VocabSize,
		"prednet":    object{"pred_hidden": c.PredHidden, "pred_rnn_layers": c.PredLayers},
	}
	config["joint"] = object{
		"num_classes": c.VocabSize, "num_extra_outputs": len(c.Durations),
		"jointnet": object{"joint_hidden": c.JointHidden, "activation": "relu"},
	}
	config["decoding"] = object{"durations": c.Durations, "greedy": object{"max_symbols": c.MaxSymbols}}
	return config
}

// SentencePiece writes a vocabulary as a SentencePiece model: of each piece
// the text, a score and the type.
func SentencePiece(pieces []checkpoint.Piece) []byte {
	var model []byte
	for id, p := range pieces {
		body := append([]byte{1<<3 | 2}, binary.AppendUvarint(nil, uint64(len(p.Text)))...)
		body = append(body, p.Text...)
		body = binary.LittleEndian.AppendUint32(append(body, 2<<3|5), math.Float32bits(-float32(id)))
		if p.Type != checkpoint.Normal { // the default is left out, as protobuf does
			body = append(body, 3<<3, byte(p.Type))
		}
		model = append(model, 1<<3|2)
		model = binary.AppendUvarint(model, uint64(len(body)))
		model = append(model, body...)
	}
	return model
}
