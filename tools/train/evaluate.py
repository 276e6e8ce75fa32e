"""Measure an exported model: WER on test strings, full against local attention, words on noise.

All figures are of the stored (bfloat16) weights. Test strings come from the FSDD test recordings only.
"""
import argparse
import json

import numpy as np
import torch

import data
import export
import features
import strings
from model import FIRST_DIGIT

LOCAL = (128, 128)
SEED = 20240501


def distance(a, b):
    """Edit distance between two lists."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            diagonal, row[j] = row[j], min(diagonal + (x != y), row[j] + 1, row[j - 1] + 1)
    return row[-1]


@torch.no_grad()
def encode(model, wave, context=None):
    """Wave at 16 kHz -> encoder frames [T, d]."""
    mel = torch.from_numpy(features.features(wave))[None]
    return model.encoder(mel, torch.tensor([mel.shape[1]]), context)[0][0]


def transcribe(model, wave, context=None):
    """(digits by TDT, digits by CTC)."""
    encoded = encode(model, wave, context)
    tdt = [k - FIRST_DIGIT for k, _, _ in model.greedy_tdt(encoded)]
    with torch.no_grad():
        return tdt, [k - FIRST_DIGIT for k in model.greedy_ctc(encoded)]


def percent(errors, words):
    return round(100 * errors / max(1, words), 3)


def short_strings(model, people, count, change=None):
    """WER in percent by decoder, and by speaker for TDT. `change` alters a wave first."""
    wrong, words, by = np.zeros(2, int), 0, {}
    for name, wave, digits in strings.short_set(people, count, SEED):
        got = transcribe(model, wave if change is None else change(wave))
        errors = np.array([distance(g, digits) for g in got])
        wrong, words = wrong + errors, words + len(digits)
        one = by.setdefault(name, [0, 0])
        one[0], one[1] = one[0] + errors[0], one[1] + len(digits)
    return dict(strings=count, words=words, tdt=percent(wrong[0], words), ctc=percent(wrong[1], words),
                tdt_by_speaker={n: percent(*v) for n, v in sorted(by.items())})


def noisy(people):
    """Adds noise at 10 to 25 dB SNR, of a fixed sequence of kinds."""
    rng = np.random.default_rng(SEED + 1)
    bank = [data.colour(rng, 40 * features.RATE, e) for e in (0.0, 1.0, 2.0)]

    def change(wave):
        noise = np.resize(bank[int(rng.integers(len(bank)))], len(wave))
        rms = float(np.sqrt((wave ** 2).mean()))
        return wave + noise * rms * 10 ** (-rng.uniform(10, 25) / 20)
    return change


def attention(model, people, count=6, seconds=(60, 360)):
    """WER of long strings with full and with local attention, TDT."""
    rng, rows = np.random.default_rng(SEED + 2), []
    total = np.zeros(4, int)
    for i in range(count):
        wave, digits = strings.long_string(rng, people, np.linspace(*seconds, count)[i])
        wave = data.at_16k(strings.to_int16(strings.level(rng, wave)).astype(np.float32) / 32768, strings.SOURCE_RATE)
        full, local = transcribe(model, wave)[0], transcribe(model, wave, LOCAL)[0]
        row = (len(digits), distance(full, digits), distance(local, digits), distance(full, local))
        total += row
        rows.append(dict(seconds=round(len(wave) / features.RATE, 1), words=row[0], full=row[1], local=row[2],
                         differ=row[3]))
    return dict(context=list(LOCAL), words=int(total[0]), full=percent(total[1], total[0]), local=percent(total[2], total[0]),
                differ=percent(total[3], total[0]), strings=rows)


def wordless(model, repeats=10):
    """Words heard in 10 s clips without speech, by kind: (clips with words, clips)."""
    rng, n = np.random.default_rng(SEED + 3), 10 * features.RATE
    t = np.arange(n) / features.RATE
    kinds = {"digital silence": lambda: np.zeros(n), "dither of one bit": lambda: rng.integers(-1, 2, n) / 32768}
    for name, exponent in (("white", 0.0), ("pink", 1.0), ("brown", 2.0)):
        for db in (-70, -40, -15):
            kinds["%s noise %d dB" % (name, db)] = lambda e=exponent, d=db: data.colour(rng, n, e) * 10 ** (d / 20)
    kinds["hum 50 Hz"] = lambda: 0.05 * np.sin(2 * np.pi * 50 * t) + 0.02 * np.sin(2 * np.pi * 150 * t + rng.uniform(0, 6)) \
        + data.colour(rng, n, 1.0) * 1e-3
    kinds["tone"] = lambda: 0.2 * np.sin(2 * np.pi * rng.uniform(200, 3000) * t) + data.colour(rng, n, 0.0) * 1e-3
    kinds["clicks"] = lambda: (rng.random(n) < 3e-4) * rng.uniform(-0.7, 0.7, n) + data.colour(rng, n, 0.0) * 1e-3
    kinds["swelling noise"] = lambda: data.colour(rng, n, 1.0) * 0.05 * (1 + np.sin(2 * np.pi * rng.uniform(0.3, 3) * t))
    out = {}
    for name, make in kinds.items():
        heard = 0
        for _ in range(repeats):
            wave = strings.to_int16(np.asarray(make())).astype(np.float32) / 32768
            heard += bool(transcribe(model, wave)[0])
        out[name] = [heard, repeats]
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--recordings", required=True)
    parser.add_argument("--strings", type=int, default=500)
    parser.add_argument("--speaker", help="test strings of this speaker only (one left out of the training)")
    parser.add_argument("--quick", action="store_true", help="short strings only")
    parser.add_argument("--out", help="write the figures here as JSON")
    args = parser.parse_args()
    model, people = export.read(args.model), strings.load(args.recordings)
    if args.speaker:
        people = {args.speaker: people[args.speaker]}
    report = dict(test=short_strings(model, people, args.strings))
    print("test", json.dumps(report["test"]), flush=True)
    if not args.quick:
        for name, call in (("noisy", lambda: short_strings(model, people, args.strings, noisy(people))),
                           ("attention", lambda: attention(model, people)), ("wordless", lambda: wordless(model))):
            report[name] = call()
            print(name, json.dumps(report[name]), flush=True)
    if args.out:
        with open(args.out, "w") as f:
            json.dump(report, f, indent=1)


if __name__ == "__main__":
    main()
