package checkpoint_test

import (
	"testing"

	"github.com/aviary-asr/aviary/asr/checkpoint"
	"github.com/aviary-asr/aviary/asr/checkpoint/checkpointtest"
)

func TestCanonicalName(t *testing.T) {
	t.Parallel()
	for nemo, want := range map[string]string{
		"encoder.pre_encode.conv.0.weight":                         "encoder.subsampling.layers.0.weight",
		"encoder.pre_encode.conv.6.bias":                           "encoder.subsampling.layers.6.bias",
		"encoder.pre_encode.out.weight":                            "encoder.subsampling.linear.weight",
		"encoder.layers.23.norm_feed_forward1.bias":                "encoder.layers.23.norm_feed_forward1.bias",
		"encoder.layers.0.feed_forward2.linear2.weight":            "encoder.layers.0.feed_forward2.linear2.weight",
		"encoder.layers.7.self_attn.linear_q.bias":                 "encoder.layers.7.self_attn.q_proj.bias",
		"encoder.layers.7.self_attn.linear_k.weight":               "encoder.layers.7.self_attn.k_proj.weight",
		"encoder.layers.7.self_attn.linear_v.weight":               "encoder.layers.7.self_attn.v_proj.weight",
		"encoder.layers.7.self_attn.linear_out.weight":             "encoder.layers.7.self_attn.o_proj.weight",
		"encoder.layers.7.self_attn.linear_pos.weight":             "encoder.layers.7.self_attn.relative_k_proj.weight",
		"encoder.layers.41.self_attn.pos_bias_u":                   "encoder.layers.41.self_attn.bias_u",
		"encoder.layers.41.self_attn.pos_bias_v":                   "encoder.layers.41.self_attn.bias_v",
		"encoder.layers.1.conv.pointwise_conv1.weight":             "encoder.layers.1.conv.pointwise_conv1.weight",
		"encoder.layers.1.conv.depthwise_conv.bias":                "encoder.layers.1.conv.depthwise_conv.bias",
		"encoder.layers.1.conv.batch_norm.weight":                  "encoder.layers.1.conv.norm.weight",
		"encoder.layers.1.conv.batch_norm.running_mean":            "encoder.layers.1.conv.norm.running_mean",
		"encoder.layers.1.conv.batch_norm.running_var":             "encoder.layers.1.conv.norm.running_var",
		"encoder.layers.1.conv.batch_norm.num_batches_tracked":     "encoder.layers.1.conv.norm.num_batches_tracked",
		"encoder.layers.1.norm_out.weight":                         "encoder.layers.1.norm_out.weight",
		"decoder.prediction.embed.weight":                          "decoder.embedding.weight",
		"decoder.prediction.dec_rnn.lstm.weight_ih_l0":             "decoder.lstm.weight_ih_l0",
		"decoder.prediction.dec_rnn.lstm.bias_hh_l1":               "decoder.lstm.bias_hh_l1",
		"joint.enc.weight":                                         "encoder_projector.weight",
		"joint.pred.bias":                                          "decoder.decoder_projector.bias",
		"joint.joint_net.2.weight":                                 "joint.head.weight",
		"joint.joint_net.1.bias":                                   "joint.head.bias",
		"decoder.decoder_layers.0.weight":                          "ctc_head.weight",
		"ctc_decoder.decoder_layers.0.bias":                        "ctc_head.bias",
		"encoder.pre_encode.conv.1.weight":                         "",
		"encoder.pre_encode.out.scale":                             "",
		"encoder.layers.x.norm_out.weight":                         "",
		"encoder.layers.01.norm_out.weight":                        "",
		"encoder.layers.-1.norm_out.weight":                        "",
		"encoder.layers.99999999999999999999.norm_out.weight":      "",
		"encoder.layers.0":                                         "",
		"encoder.layers.0.self_attn.linear_pos.bias":               "",
		"encoder.layers.0.self_attn.linear_q.weight.extra":         "",
		"encoder.layers.0.conv.depthwise_conv.running_mean":        "",
		"decoder.prediction.dec_rnn.lstm.weight_ih_l":              "",
		"decoder.prediction.dec_rnn.lstm.weight_ih_l0_reverse":     "",
		"joint.joint_net.3.weight":                                 "",
		"preprocessor.featurizer.fb":                               "",
		"encoder.layers.1.conv.norm.weight":                        "",
		"spec_augmentation.weight":                                 "",
		"":                                                         "",
		"decoder.embedding.weight":                                 "",
		"encoder.layers.0.self_attn.relative_k_proj.weight":        "",
		"encoder.layers.0.conv.batch_norm.running_var.running_var": "",
	} {
		got, ok := checkpoint.CanonicalName(nemo)
		if ok != (want != "") || ok && got != want {
			t.Errorf("CanonicalName(%q) = %q, %v, want %q", nemo, got, ok, want)
		}
	}
}

// TestNamesAreOneToOne translates every tensor of a model there and back.
func TestNamesAreOneToOne(t *testing.T) {
	t.Parallel()
	c := checkpointtest.ParakeetTDT06BV3()
	c.Kind, c.AttentionBias, c.ConvBias = checkpoint.KindHybrid, true, true
	seen := make(map[string]bool)
	for _, info := range checkpointtest.Tensors(c, checkpoint.F32) {
		nemo, ok := checkpoint.NemoName(info.Name)
		if !ok || seen[nemo] {
			t.Errorf("NemoName(%q) = %q, %v", info.Name, nemo, ok)
		}
		seen[nemo] = true
		if back, ok := checkpoint.CanonicalName(nemo); !ok || back != info.Name {
			t.Errorf("%q became %q and came back as %q, %v", info.Name, nemo, back, ok)
		}
	}
	if name, ok := checkpoint.NemoName("ghost"); ok {
		t.Errorf("NemoName(ghost) = %q", name)
	}
}
