package checkpoint

import (
	"strconv"
	"strings"
)

// affix pairs two spellings of a part of a tensor name.
type affix struct{ nemo, hf string }

// layerParts follow "encoder.layers.<n>." in both conventions.
var layerParts = []affix{
	{"norm_feed_forward1.", "norm_feed_forward1."},
	{"feed_forward1.linear1.", "feed_forward1.linear1."},
	{"feed_forward1.linear2.", "feed_forward1.linear2."},
	{"norm_self_att.", "norm_self_att."},
	{"self_attn.linear_q.", "self_attn.q_proj."},
	{"self_attn.linear_k.", "self_attn.k_proj."},
	{"self_attn.linear_v.", "self_attn.v_proj."},
	{"self_attn.linear_out.", "self_attn.o_proj."},
	{"norm_conv.", "norm_conv."},
	{"conv.pointwise_conv1.", "conv.pointwise_conv1."},
	{"conv.depthwise_conv.", "conv.depthwise_conv."},
	{"conv.batch_norm.", "conv.norm."},
	{"conv.pointwise_conv2.", "conv.pointwise_conv2."},
	{"norm_feed_forward2.", "norm_feed_forward2."},
	{"feed_forward2.linear1.", "feed_forward2.linear1."},
	{"feed_forward2.linear2.", "feed_forward2.linear2."},
	{"norm_out.", "norm_out."},
}

// layerWhole are names in a layer that are not a pair of weight and bias.
var layerWhole = []affix{
	{"self_attn.linear_pos.weight", "self_attn.relative_k_proj.weight"},
	{"self_attn.pos_bias_u", "self_attn.bias_u"},
	{"self_attn.pos_bias_v", "self_attn.bias_v"},
	{"conv.batch_norm.running_mean", "conv.norm.running_mean"},
	{"conv.batch_norm.running_var", "conv.norm.running_var"},
	{"conv.batch_norm.num_batches_tracked", "conv.norm.num_batches_tracked"},
}

// outerParts are pairs of weight and bias outside the layers. Where two NeMo
// names share a Hugging Face name, the first is NemoName's answer.
var outerParts = []affix{
	{"encoder.pre_encode.conv.0.", "encoder.subsampling.layers.0."},
	{"encoder.pre_encode.conv.2.", "encoder.subsampling.layers.2."},
	{"encoder.pre_encode.conv.3.", "encoder.subsampling.layers.3."},
	{"encoder.pre_encode.conv.5.", "encoder.subsampling.layers.5."},
	{"encoder.pre_encode.conv.6.", "encoder.subsampling.layers.6."},
	{"encoder.pre_encode.out.", "encoder.subsampling.linear."},
	{"joint.enc.", "encoder_projector."},
	{"joint.pred.", "decoder.decoder_projector."},
	// The index counts activation and dropout; a joint built without dropout
	// has its linear at 1.
	{"joint.joint_net.2.", "joint.head."},
	{"joint.joint_net.1.", "joint.head."},
	{"decoder.decoder_layers.0.", "ctc_head."},
	{"ctc_decoder.decoder_layers.0.", "ctc_head."},
}

const (
	nemoEmbedding = "decoder.prediction.embed.weight"
	hfEmbedding   = "decoder.embedding.weight"
	nemoLSTM      = "decoder.prediction.dec_rnn.lstm."
	hfLSTM        = "decoder.lstm."
	layersPrefix  = "encoder.layers."
)

// CanonicalName maps a NeMo tensor name to the one used here, Hugging Face's;
// the CTC head of CTC and of hybrid models is ctc_head. ok is false for a name
// that no Parakeet model has.
func CanonicalName(nemo string) (name string, ok bool) {
	return translate(nemo, func(a affix) (string, string) { return a.nemo, a.hf })
}

// NemoName is the inverse of CanonicalName. It names the CTC head as a pure CTC
// model does; a hybrid's has "ctc_" in front.
func NemoName(canonical string) (name string, ok bool) {
	return translate(canonical, func(a affix) (string, string) { return a.hf, a.nemo })
}

// translate rewrites name, where dir gives the old and the new spelling.
func translate(name string, dir func(affix) (from, to string)) (string, bool) {
	if rest, ok := strings.CutPrefix(name, layersPrefix); ok {
		index, part, ok := strings.Cut(rest, ".")
		if !ok || !isIndex(index) {
			return "", false
		}
		to, ok := translatePart(part, layerWhole, layerParts, dir)
		return layersPrefix + index + "." + to, ok
	}
	embedding := []affix{{nemoEmbedding, hfEmbedding}}
	if to, ok := translatePart(name, embedding, outerParts, dir); ok {
		return to, true
	}
	from, to := dir(affix{nemoLSTM, hfLSTM})
	if part, ok := strings.CutPrefix(name, from); ok && isLSTMPart(part) {
		return to + part, true
	}
	return "", false
}

func translatePart(name string, whole, pairs []affix, dir func(affix) (string, string)) (string, bool) {
	for _, a := range whole {
		if from, to := dir(a); name == from {
			return to, true
		}
	}
	for _, a := range pairs {
		from, to := dir(a)
		if rest, ok := strings.CutPrefix(name, from); ok && (rest == "weight" || rest == "bias") {
			return to + rest, true
		}
	}
	return "", false
}

// isLSTMPart accepts weight_ih_l0 and the like.
func isLSTMPart(s string) bool {
	for _, p := range []string{"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"} {
		if n, ok := strings.CutPrefix(s, p); ok {
			return isIndex(n)
		}
	}
	return false
}

// isIndex accepts a layer number as PyTorch writes it: no sign, no leading zero.
func isIndex(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && n < 1000 && strconv.Itoa(n) == s
}

// isIgnored reports whether a tensor, under either convention, is known and
// not a weight. Frozen training counters and the front end's tables, which
// asr/logmel computes, are the only ones.
func isIgnored(name string) bool {
	if strings.HasSuffix(name, ".num_batches_tracked") {
		_, nemo := CanonicalName(name)
		_, hf := NemoName(name)
		return nemo || hf
	}
	return name == "preprocessor.featurizer.window" || name == "preprocessor.featurizer.fb"
}
