"""Make the bundled speech samples: test strings as WAV and FLAC, with reference texts.

The plan below and the seed fix the samples before any model sees them. Needs ffmpeg for FLAC.
"""
import argparse
import os
import subprocess
import wave

import numpy as np
from scipy.signal import resample_poly

import strings

SEED = 20240502
# file, rate, channels, speaker, digits
PLAN = (
    ("george-5-8k.wav", 8000, 1, "george", 5),
    ("jackson-7-16k.wav", 16000, 1, "jackson", 7),
    ("lucas-10-8k.flac", 8000, 1, "lucas", 10),
    ("nicolas-12-16k.flac", 16000, 1, "nicolas", 12),
    ("theo-4-44k1-stereo.flac", 44100, 2, "theo", 4),
    ("yweweler-20-8k.wav", 8000, 1, "yweweler", 20),
)
LONG, LONG_SECONDS = "six-speakers-6min-8k.flac", 362


def write_wav(path, pcm, rate):
    """pcm: int16 [N] or [N, channels]."""
    with wave.open(path, "wb") as f:
        f.setnchannels(1 if pcm.ndim == 1 else pcm.shape[1])
        f.setsampwidth(2)
        f.setframerate(rate)
        f.writeframes(pcm.tobytes())


def write(path, pcm, rate):
    if path.endswith(".wav"):
        write_wav(path, pcm, rate)
        return
    plain = path[:-len(".flac")] + ".tmp.wav"
    write_wav(plain, pcm, rate)
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", plain, "-map_metadata", "-1", "-fflags", "+bitexact", "-flags:a",
                    "+bitexact", "-c:a", "flac", "-compression_level", "12", path], check=True)
    os.remove(plain)


def convert(rng, x, rate, channels):
    """8 kHz float wave -> int16 at the wanted rate; the second channel is nearer to its own noise."""
    if rate != strings.SOURCE_RATE:
        divisor = np.gcd(rate, strings.SOURCE_RATE)
        x = resample_poly(x, rate // divisor, strings.SOURCE_RATE // divisor)
    if channels == 2:
        delayed = np.concatenate((np.zeros(11), x))[:len(x)]
        x = np.stack((x, 0.8 * delayed), 1)
        x = x + rng.standard_normal(x.shape) * 1e-4
    return strings.to_int16(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recordings", required=True)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    people, rows = strings.load(args.recordings), []
    for i, (name, rate, channels, speaker, count) in enumerate(PLAN):
        rng = np.random.default_rng([SEED, i])
        x, digits = strings.join(rng, people, [speaker], count)
        pcm = convert(rng, strings.level(rng, x), rate, channels)
        write(os.path.join(args.out, name), pcm, rate)
        rows.append((name, len(pcm) / rate, strings.words(digits), speaker))
    rng = np.random.default_rng([SEED, len(PLAN)])
    x, digits = strings.long_string(rng, people, LONG_SECONDS)
    pcm = strings.to_int16(strings.level(rng, x, peak=(0.5, 0.5), floor=(1.5e-4, 1.5e-4)))
    write(os.path.join(args.out, LONG), pcm, strings.SOURCE_RATE)
    rows.append((LONG, len(pcm) / strings.SOURCE_RATE, strings.words(digits), ",".join(sorted(people))))
    with open(os.path.join(args.out, "references.tsv"), "w") as f:
        f.write("file\tseconds\ttext\tspeakers\n")
        for name, seconds, text, speakers in rows:
            f.write("%s\t%.6f\t%s\t%s\n" % (name, seconds, text, speakers))


if __name__ == "__main__":
    main()
