"""Write golden values of an exported model for one sample, computed by torch in float32.

The weights are the stored bfloat16 ones, widened. Long tensors are stored in part: `rows` names
the frames that are kept; `abs_sum` is over the whole tensor.
"""
import argparse
import json
import os
import wave

import numpy as np
import torch

import export
import features
from model import BLANK

LOCAL = (8, 8)


def rounded(values):
    """Nested lists with 8 significant digits."""
    return [rounded(v) if isinstance(v, list) else float("%.8g" % v) for v in values]


def tensor(x, rows=None):
    """x [frames, width] -> JSON object with all rows, or the given ones."""
    x = np.asarray(x, np.float32)
    keep = list(range(len(x))) if rows is None else sorted(set(rows))
    return dict(shape=list(x.shape), rows=keep, abs_sum=float("%.8g" % np.abs(x.astype(np.float64)).sum()),
                values=rounded(x[keep].tolist()))


@torch.no_grad()
def run(model, mel, context=None):
    """Subsampling output and encoder output, each [T, d]."""
    x, lengths = torch.from_numpy(mel)[None], torch.tensor([len(mel)])
    return model.encoder.subsampling(x, lengths)[0], model.encoder(x, lengths, context)[0][0]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sample", required=True, help="16 kHz mono 16-bit WAV")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with wave.open(args.sample) as f:
        assert (f.getframerate(), f.getnchannels(), f.getsampwidth()) == (features.RATE, 1, 2)
        x = np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float64) / 32768
    model, mel = export.read(args.model), features.features(x)
    sub, full = run(model, mel)
    _, local = run(model, mel, LOCAL)
    with torch.no_grad():
        ctc = model.ctc_log_probs(full[None])[0]
    out = dict(
        sample=os.path.basename(args.sample), samples=len(x), mel_frames=len(mel), frames=len(full), blank=BLANK,
        features=tensor(mel, list(range(6)) + [len(mel) // 2] + list(range(len(mel) - 6, len(mel)))),
        pre_encode=tensor(sub, list(range(0, len(sub), 4)) + [len(sub) - 1]),
        encoder=tensor(full), tdt=[list(k) for k in model.greedy_tdt(full)], ctc_argmax=ctc.argmax(-1).tolist(),
        ctc_log_probs=tensor(ctc, range(0, len(ctc), 8)), local_context=list(LOCAL),
        encoder_local=tensor(local, list(range(0, len(local), 8)) + [len(local) - 1]),
        tdt_local=[list(k) for k in model.greedy_tdt(local)])
    with open(args.out, "w") as f:
        f.write("{\n" + ",\n".join("%s: %s" % (json.dumps(k), json.dumps(v, separators=(",", ":"))) for k, v in out.items()))
        f.write("\n}\n")
    print("%d bytes, tdt %s" % (os.path.getsize(args.out), out["tdt"]))


if __name__ == "__main__":
    main()
