"""The encoder against vectors that NeMo's own classes computed for a tiny model with generated weights.

Usage: test_model.py GOLDEN.json (asr/parakeet/testdata/parakeet-golden.json)
"""
import json
import re
import sys

import numpy as np
import torch

import features
from model import Encoder, position_table

TINY = dict(mels=16, width=32, layers=2, heads=4, kernel=9, channels=8, dropout=0.0)
NAMES = ((r"\.subsampling\.layers\.", ".pre_encode.conv."), (r"\.subsampling\.linear\.", ".pre_encode.out."),
         (r"\.([qkv])_proj\.", r".linear_\1."), (r"\.o_proj\.", ".linear_out."), (r"\.relative_k_proj\.", ".linear_pos."),
         (r"\.bias_([uv])$", r".pos_bias_\1"), (r"\.conv\.norm\.", ".conv.batch_norm."))


def draws(seed, count):
    """Uniform numbers in [-0.5, 0.5) from the LCG of the golden file."""
    out = np.empty(count)
    for i in range(count):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out[i] = (seed >> 8) / 2.0 ** 24 - 0.5
    return out


def fnv(text):
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 & 0xFFFFFFFF
    return value or 1


def generated(name, shape):
    """Weights by NeMo name: the rules of the golden file."""
    u = draws(fnv(name), int(np.prod(shape))).reshape(shape)
    if name.endswith("running_var"):
        return 1 + u
    if "norm" in name and name.endswith("weight"):
        return 1 + 0.5 * u
    fan = np.prod(shape[1:]) if len(shape) > 1 else 16
    scale = 3.0 if "pre_encode" in name and name.endswith("weight") else 1.0
    return (2 * u / np.sqrt(fan)).astype(np.float32) * scale


def main():
    with open(sys.argv[1]) as f:
        golden = json.load(f)
    array = lambda key, *shape: np.asarray(golden[key]).reshape(shape)
    encoder, state = Encoder(TINY).eval(), {}
    for name, value in encoder.state_dict().items():
        nemo = "encoder." + name
        for pattern, to in NAMES:
            nemo = re.sub(pattern, to, nemo)
        state[name] = value if value.dtype == torch.int64 else torch.from_numpy(
            np.asarray(generated(nemo, tuple(value.shape)), np.float32))
    encoder.load_state_dict(state)
    mel = features.features(features.check_signal(24000), TINY["mels"])
    x, lengths = torch.from_numpy(mel)[None], torch.tensor([len(mel)])
    worst = {"features": np.abs(mel.T - array("features", 16, 150)).max()}
    with torch.no_grad():
        worst["pre_encode"] = np.abs(encoder.subsampling(x, lengths)[0].numpy() - array("pre_encode", 19, 32)).max() / 22
        for key, context in (("enc_nobias_noxscale", None), ("enc_nobias_noxscale_local_4_4", (4, 4))):
            worst[key] = np.abs(encoder(x, lengths, context)[0][0].numpy() - array(key, 19, 32)).max()
        # the tiled evaluation of long utterances against the plain one
        block, t = encoder.layers[0].self_attn, 300
        z = torch.randn(1, t, 32, generator=torch.Generator().manual_seed(0))
        for context in (None, (70, 70), (5, 20)):
            offset = torch.arange(t)[:, None] - torch.arange(t)[None]
            mask = torch.zeros(t, t).masked_fill((offset > context[0]) | (offset < -context[1]), -1e4) if context else None
            plain = block(z, position_table(t, 32), mask, context)
            block.tile_from, kept = 0, block.tile_from
            worst["tiles %s" % (context,)] = float((block(z, position_table(t, 32), None, context) - plain).abs().max())
            block.tile_from = kept
    for key, value in worst.items():
        print("%-32s %.2g" % (key, value))
    assert all(v < 1e-4 for v in worst.values())


if __name__ == "__main__":
    main()
