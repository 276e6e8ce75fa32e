"""Digit clips of synthetic voices (flite, espeak-ng), made once and kept in a cache file.

Usage: voices.py OUT.npz
"""
import io
import os
import subprocess
import sys
import tempfile
import wave

import numpy as np
from scipy.signal import resample_poly

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
RATE = 16000

FLITE = [(voice, stretch, pitch)
         for voice, base in (("kal", 105), ("kal16", 105), ("awb", 120), ("rms", 100), ("slt", 180))
         for stretch, pitch in ((0.85, base), (1.0, int(base * 1.15)), (1.15, int(base * 0.9)), (1.3, base))]
ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029", "en-us-nyc")
VARIANTS = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8", "f1", "f2", "f3", "f4", "f5", "steph", "Andy", "Annie",
            "Alex", "Denis", "Gene", "Jacky", "Lee", "Linda", "Mario", "Michael", "Steph", "belinda", "max", "victor")


def read_wav(data):
    """Bytes of a 16-bit WAV -> float32 at its own rate, and the rate."""
    with wave.open(io.BytesIO(data)) as f:
        rate, channels = f.getframerate(), f.getnchannels()
        x = np.frombuffer(f.readframes(f.getnframes()), "<i2").astype(np.float32) / 32768
    return x[::channels], rate


def trim(x, rate, keep=0.03):
    """Cut silence from both ends, leaving `keep` seconds."""
    size = rate // 100
    if len(x) < 4 * size:
        return x
    energy = np.sqrt((x[:len(x) // size * size].reshape(-1, size) ** 2).mean(1))
    loud = np.flatnonzero(energy > 0.03 * energy.max())
    return x[max(0, loud[0] * size - int(keep * rate)):(loud[-1] + 1) * size + int(keep * rate)]


def at_16k(x, rate):
    if rate == RATE:
        return x
    divisor = np.gcd(RATE, rate)
    return resample_poly(x, RATE // divisor, rate // divisor).astype(np.float32)


def speak(command):
    """Run a synthesiser that writes to the file named last; None when it has no such voice."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.wav")
        done = subprocess.run([c.replace("OUT", path) for c in command], capture_output=True)
        if done.returncode or not os.path.exists(path):
            return None
        with open(path, "rb") as f:
            return read_wav(f.read())


def commands(word):
    for voice, stretch, pitch in FLITE:
        yield "flite-%s-%.2f-%d" % (voice, stretch, pitch), [
            "flite", "-voice", voice, "--setf", "duration_stretch=%.2f" % stretch, "--setf", "int_f0_target_mean=%d" % pitch,
            "-t", word, "-o", "OUT"]
    for i, variant in enumerate(VARIANTS):
        for j in range(3):
            accent = ACCENTS[(i + 3 * j) % len(ACCENTS)]
            speed, pitch = (120, 150, 190)[(i + j) % 3], (35, 50, 65)[(i + 2 * j) % 3]
            yield "espeak-%s-%s-%d-%d" % (accent, variant, speed, pitch), [
                "espeak-ng", "-v", "%s+%s" % (accent, variant), "-s", str(speed), "-p", str(pitch), "-w", "OUT", word]


def make(path):
    clips = {}
    for digit, word in enumerate(WORDS):
        for name, command in commands(word):
            got = speak(command)
            if got is not None and len(got[0]) > 1000:
                x = at_16k(trim(*got), got[1])
                clips["%s/%d" % (name, digit)] = (x / max(1e-6, np.abs(x).max()) * 20000).astype(np.int16)
    np.savez(path, **clips)
    return len(clips)


if __name__ == "__main__":
    print("%d clips" % make(sys.argv[1]))
