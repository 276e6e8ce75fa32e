"""Test strings: digits of the FSDD test recordings (index 0-4) joined with natural pauses.

Nothing here touches the training recordings, and all is drawn from the seed alone.
"""
import numpy as np

import data
from model import WORDS

SOURCE_RATE = 8000
TEST_INDICES = range(0, 5)


def load(recordings):
    """{speaker: {digit: [waves at 8 kHz]}} of the test set."""
    return data.load_fsdd(recordings, TEST_INDICES, SOURCE_RATE)


def join(rng, people, speakers, count, pause=(0.06, 0.6), long_pause=0.0, lead=(0.2, 0.7)):
    """`count` digits spoken by `speakers` (each digit by one of them): (wave at 8 kHz, digits)."""
    silence = lambda lo, hi: np.zeros(int(rng.uniform(lo, hi) * SOURCE_RATE), np.float32)
    parts, digits = [silence(*lead)], []
    for i in range(count):
        takes = people[speakers[int(rng.integers(len(speakers)))]]
        digit = int(rng.integers(10))
        parts.append(takes[digit][int(rng.integers(len(takes[digit])))])
        if i < count - 1:
            parts.append(silence(1.0, 4.0) if rng.random() < long_pause else silence(*pause))
        digits.append(digit)
    parts.append(silence(*lead))
    return np.concatenate(parts), digits


def level(rng, wave, peak=(0.25, 0.9), floor=(2e-4, 8e-4)):
    """Scale to a random peak and lay a gentle noise floor (RMS of full scale) under it."""
    wave = wave * (rng.uniform(*peak) / max(1e-6, float(np.abs(wave).max())))
    noise = data.colour(rng, len(wave), rng.uniform(0.0, 1.0)) * rng.uniform(*floor)
    return np.clip(wave + noise, -1, 32767 / 32768).astype(np.float32)


def to_int16(wave):
    return np.clip(np.round(wave * 32768), -32768, 32767).astype("<i2")


def words(digits):
    return " ".join(WORDS[d] for d in digits)


def short_set(people, count, seed):
    """`count` strings of 1 to 20 digits, one speaker each in turn: (speaker, wave at 16 kHz, digits)."""
    rng, names = np.random.default_rng(seed), sorted(people)
    for i in range(count):
        name = names[i % len(names)]
        wave, digits = join(rng, people, [name], int(rng.integers(1, 21)))
        pcm = to_int16(level(rng, wave)).astype(np.float32) / 32768
        yield name, data.at_16k(pcm, SOURCE_RATE), digits


def long_string(rng, people, seconds):
    """Turns of changing speakers, 5 to 20 digits each, for about `seconds`: (wave at 8 kHz, digits)."""
    names, parts, digits, total = sorted(people), [], [], 0
    while total < seconds * SOURCE_RATE:
        name = names[int(rng.integers(len(names)))]
        wave, said = join(rng, people, [name], int(rng.integers(5, 21)), long_pause=0.04)
        wave = wave * (rng.uniform(0.4, 0.8) / max(1e-6, float(np.abs(wave).max())))
        parts.append(wave)
        digits += said
        total += len(wave)
    return np.concatenate(parts), digits
