"""Write a trained state as a Hugging Face Parakeet directory in bfloat16, and read one back.

The CTC head, which Hugging Face's TDT class does not know, is stored as ctc_head.{weight,bias}.
"""
import argparse
import json
import os
import struct

import numpy as np
import torch

import features
from model import BLANK, PIECES, Parakeet


def write_safetensors(path, tensors, metadata):
    """tensors: {name: torch tensor}; floats become bfloat16. Wide types first keeps every tensor aligned."""
    entries = []
    for name, value in tensors.items():
        if value.dtype.is_floating_point:
            raw = value.to(torch.bfloat16).contiguous().view(torch.int16).numpy().astype("<i2").tobytes()
            entries.append((1, name, "BF16", list(value.shape), raw))
        else:
            entries.append((0, name, "I64", list(value.shape), value.numpy().astype("<i8").tobytes()))
    header, at = {"__metadata__": metadata}, 0
    for _, name, dtype, shape, raw in sorted(entries):
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for entry in sorted(entries):
            f.write(entry[4])


def read_safetensors(path):
    """{name: tensor}, bfloat16 widened to float32."""
    with open(path, "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, body = json.loads(f.read(size)), f.read()
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        raw = body[slice(*entry["data_offsets"])]
        if entry["dtype"] == "BF16":
            wide = np.frombuffer(raw, "<u2").astype(np.uint32) << 16
            out[name] = torch.from_numpy(wide.view(np.float32).reshape(entry["shape"]).copy())
        else:
            out[name] = torch.from_numpy(np.frombuffer(raw, "<i8").reshape(entry["shape"]).copy())
    return out


def config(c):
    encoder = dict(
        model_type="parakeet_encoder", hidden_size=c["width"], intermediate_size=4 * c["width"],
        num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["heads"], hidden_act="silu",
        attention_bias=False, convolution_bias=False, conv_kernel_size=c["kernel"], subsampling_factor=8,
        subsampling_conv_channels=c["channels"], subsampling_conv_kernel_size=3, subsampling_conv_stride=2,
        num_mel_bins=c["mels"], scale_input=False, max_position_embeddings=5000, dropout=c["dropout"],
        activation_dropout=0.0, attention_dropout=0.0, layerdrop=0.0, dropout_positions=0.0, attention_type="rel_pos",
        initializer_range=0.02)
    return dict(
        architectures=["ParakeetForTDT"], model_type="parakeet_tdt", dtype="bfloat16", vocab_size=BLANK + 1,
        blank_token_id=BLANK, pad_token_id=BLANK, decoder_hidden_size=c["hidden"], num_decoder_layers=1, hidden_act="relu",
        durations=list(c["durations"]), max_symbols_per_step=c["max_symbols"], is_encoder_decoder=True, ctc_head=True,
        initializer_range=0.02, encoder_config=encoder)


def processor(c):
    return dict(
        processor_class="ParakeetProcessor", blank_token="<blank>", decoder_type="tdt",
        feature_extractor=dict(
            feature_extractor_type="ParakeetFeatureExtractor", feature_size=c["mels"], sampling_rate=features.RATE,
            n_fft=features.N_FFT, win_length=features.WIN, hop_length=features.HOP, preemphasis=features.PREEMPHASIS,
            padding_side="right", padding_value=0.0, return_attention_mask=True))


def tokenizer():
    special = lambda i, text: dict(id=i, content=text, single_word=False, lstrip=False, rstrip=False, normalized=False,
                                   special=True)
    space = dict(type="Metaspace", replacement="\u2581", prepend_scheme="always", split=True)
    return dict(
        version="1.0", truncation=None, padding=None,
        added_tokens=[special(0, "<unk>"), special(BLANK, "<blank>")], normalizer=None, pre_tokenizer=space,
        post_processor=None, decoder=space,
        model=dict(type="BPE", dropout=None, unk_token="<unk>", continuing_subword_prefix=None, end_of_word_suffix=None,
                   fuse_unk=True, byte_fallback=False, ignore_merges=True,
                   vocab={piece: i for i, piece in enumerate(PIECES)}, merges=[]))


def write(folder, state, c):
    """state: state_dict of a Parakeet with config c."""
    os.makedirs(folder, exist_ok=True)
    write_safetensors(os.path.join(folder, "model.safetensors"), state, {"format": "pt"})
    files = {
        "config.json": config(c), "processor_config.json": processor(c), "tokenizer.json": tokenizer(),
        "tokenizer_config.json": dict(tokenizer_class="ParakeetTokenizer", unk_token="<unk>", blank_token="<blank>",
                                      pad_token="<blank>", clean_up_tokenization_spaces=False),
        "generation_config.json": dict(decoder_start_token_id=BLANK, pad_token_id=BLANK,
                                       suppress_tokens=[BLANK + 1 + i for i in range(len(c["durations"]))]),
    }
    for name, value in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=2, ensure_ascii=False)
            f.write("\n")


def read(folder):
    """Model in eval mode with exactly the stored (rounded) weights, computing in float32."""
    model = Parakeet()
    model.load_state_dict(read_safetensors(os.path.join(folder, "model.safetensors")))
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", help="state.pt of train.py")
    parser.add_argument("folder")
    args = parser.parse_args()
    state = torch.load(args.state)
    write(args.folder, state["average"], state["config"])
    print("step %d, %.1f minutes, %d bytes" % (state["step"], state["used"] / 60,
                                               os.path.getsize(os.path.join(args.folder, "model.safetensors"))))


if __name__ == "__main__":
    main()
