"""Makes the fixtures of asr/checkpoint with PyTorch itself.

Run in this folder: python3 make.py. Needs torch; the tests do not.

views.ckpt   torch.save of an OrderedDict: all four types, a transposed view with
             an offset, a row of a matrix, two tensors that share one storage, a
             scalar, an empty tensor.
tiny.nemo    a whole model of one layer, as NeMo packs it, without compression;
             element i of every floating tensor is i/8 - 3.
evil.ckpt    a state dict whose pickle calls os.system.
"""
import collections
import io
import struct
import tarfile

import torch


def views():
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 4
    flat = torch.arange(10, dtype=torch.float32) - 5
    d = collections.OrderedDict()
    d["f32"] = torch.tensor([[1.5, -2.25, 3e-8], [float("inf"), 0.0, -0.0]])
    d["f16"] = torch.tensor([1.5, -65504.0, 6e-8, 0.333251953125], dtype=torch.float16)
    d["bf16"] = torch.tensor([1.5, -3.0e38, 1e-40, 0.333984375], dtype=torch.bfloat16)
    d["i64"] = torch.tensor([7, -1], dtype=torch.int64)
    d["scalar"] = torch.tensor(42, dtype=torch.int64)
    d["empty"] = torch.zeros(0, 3)
    d["view"] = base.t()[1:5, 1:]  # shape 4x3, strides (1, 6), offset 7
    d["row"] = base[2]
    d["shared.a"] = flat[:6].view(2, 3)
    d["shared.b"] = flat[6:]
    torch.save(d, "views.ckpt")


class Evil:
    def __reduce__(self):
        import os
        return os.system, ("true",)


def evil():
    torch.save(collections.OrderedDict(weight=Evil()), "evil.ckpt")


D, FF, HEADS, CH, MELS, V, P, K = 4, 8, 2, 2, 16, 6, 3, 3


def shapes():
    pre = "encoder.pre_encode."
    s = {}
    for i, w in {0: [CH, 1, 3, 3], 2: [CH, 1, 3, 3], 3: [CH, CH, 1, 1], 5: [CH, 1, 3, 3], 6: [CH, CH, 1, 1]}.items():
        s[f"{pre}conv.{i}.weight"], s[f"{pre}conv.{i}.bias"] = w, [CH]
    s[pre + "out.weight"], s[pre + "out.bias"] = [D, CH * MELS // 8], [D]
    at = "encoder.layers.0."
    for n in ["norm_feed_forward1", "norm_self_att", "norm_conv", "norm_feed_forward2", "norm_out", "conv.batch_norm"]:
        s[f"{at}{n}.weight"], s[f"{at}{n}.bias"] = [D], [D]
    for n in ["feed_forward1", "feed_forward2"]:
        s[f"{at}{n}.linear1.weight"], s[f"{at}{n}.linear2.weight"] = [FF, D], [D, FF]
    for n in ["q", "k", "v", "out", "pos"]:
        s[f"{at}self_attn.linear_{n}.weight"] = [D, D]
    s[at + "self_attn.pos_bias_u"] = s[at + "self_attn.pos_bias_v"] = [HEADS, D // HEADS]
    s[at + "conv.pointwise_conv1.weight"] = [2 * D, D, 1]
    s[at + "conv.depthwise_conv.weight"] = [D, 1, K]
    s[at + "conv.pointwise_conv2.weight"] = [D, D, 1]
    s[at + "conv.batch_norm.running_mean"] = s[at + "conv.batch_norm.running_var"] = [D]
    s["preprocessor.featurizer.window"], s["preprocessor.featurizer.fb"] = [4], [1, 2, 3]  # small: a reader skips them
    s["joint.enc.weight"], s["joint.enc.bias"] = [P, D], [P]
    s["joint.pred.weight"], s["joint.pred.bias"] = [P, P], [P]
    s["joint.joint_net.2.weight"], s["joint.joint_net.2.bias"] = [V + 1 + 5, P], [V + 1 + 5]
    s["decoder.prediction.embed.weight"] = [V + 1, P]
    s["ctc_decoder.decoder_layers.0.weight"], s["ctc_decoder.decoder_layers.0.bias"] = [V + 1, D, 1], [V + 1]
    return s


def fill(shape):
    n = 1
    for d in shape:
        n *= d
    return (torch.arange(n, dtype=torch.float32) / 8 - 3).reshape(shape)


def sentencepiece(pieces):
    out = b""
    for i, (text, kind) in enumerate(pieces):
        t = text.encode()
        body = b"\x0a" + bytes([len(t)]) + t + b"\x15" + struct.pack("<f", -i)
        if kind != 1:
            body += b"\x18" + bytes([kind])
        out += b"\x0a" + bytes([len(body)]) + body
    return out + b"\x12\x04\x08\x01\x10\x02"  # trainer_spec, which a reader skips


YAML = """\
sample_rate: 16000
log_prediction: true
labels:
- <unk>
- \u2581one
preprocessor:
  _target_: nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor
  sample_rate: 16000
  normalize: per_feature
  window_size: 0.025
  window_stride: 0.01
  window: hann
  features: 16
  n_fft: 512
  log: true
  frame_splicing: 1
  dither: 1.0e-05
  pad_to: 0
encoder:
  _target_: nemo.collections.asr.modules.ConformerEncoder
  feat_in: ${preprocessor.features}
  feat_out: -1
  n_layers: 1
  d_model: 4
  use_bias: false
  subsampling: dw_striding
  subsampling_factor: 8
  subsampling_conv_channels: 2
  causal_downsampling: false
  reduction: null
  ff_expansion_factor: 2
  self_attention_model: rel_pos
  n_heads: 2
  att_context_size:
  - -1
  - -1
  att_context_style: regular
  xscaling: false
  untie_biases: true
  conv_kernel_size: 3
  conv_norm_type: batch_norm
  conv_context_size: null
model_defaults:
  enc_hidden: 4
  pred_hidden: 3
  joint_hidden: 3
  tdt_durations: &durations
  - 0
  - 1
  - 2
  - 3
  - 4
  num_tdt_durations: 5
decoder:
  vocab_size: 6
  prednet:
    pred_hidden: ${model_defaults.pred_hidden}
    pred_rnn_layers: 1
    t_max: null
joint:
  num_classes: 6
  num_extra_outputs: 5
  jointnet:
    joint_hidden: 3
    activation: relu
decoding:
  strategy: greedy_batch
  durations: *durations
  greedy:
    max_symbols: 10
aux_ctc:
  decoder:
    num_classes: 6
tokenizer:
  type: bpe
  dir: null
  model_path: nemo:c0ffee00c0ffee00c0ffee00c0ffee00_tokenizer.model
target: nemo.collections.asr.models.hybrid_rnnt_ctc_bpe_models.EncDecHybridRNNTCTCBPEModel
"""


def nemo():
    state = collections.OrderedDict((n, fill(s)) for n, s in shapes().items())
    state["encoder.layers.0.conv.batch_norm.num_batches_tracked"] = torch.tensor(9)
    # As cuDNN flattens an LSTM: all its weights in one storage.
    sizes = {"weight_ih_l0": [4 * P, P], "weight_hh_l0": [4 * P, P], "bias_ih_l0": [4 * P], "bias_hh_l0": [4 * P]}
    parts = [fill(s) for s in sizes.values()]
    flat, at = torch.cat([p.flatten() for p in parts]), 0
    for (n, s), p in zip(sizes.items(), parts):
        state["decoder.prediction.dec_rnn.lstm." + n] = flat[at:at + p.numel()].view(s)
        at += p.numel()
    weights = io.BytesIO()
    torch.save(state, weights)
    pieces = [("<unk>", 2), ("<pad>", 3), ("\u2581one", 1), ("<0x41>", 6), ("<|x|>", 4), (".", 1)]
    members = {
        "model_config.yaml": YAML.encode(),
        "deadbeefdeadbeefdeadbeefdeadbeef_tokenizer.model": sentencepiece(pieces[:2]),  # an old one, not referred to
        "c0ffee00c0ffee00c0ffee00c0ffee00_tokenizer.model": sentencepiece(pieces),
        "model_weights.ckpt": weights.getvalue(),
    }
    with tarfile.open("tiny.nemo", "w:", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo("./" + name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


views()
evil()
nemo()
