"""Training examples: strings of spoken digits, mixed, augmented and turned into features.

Sources are the training recordings (index 5-49) of the Free Spoken Digit Dataset and the synthetic
voices of voices.py. All randomness comes from the generator that the caller passes.
"""
import os
import re

import numpy as np
from scipy.signal import oaconvolve

import features
from model import FIRST_DIGIT
from voices import at_16k, read_wav

RATE = features.RATE
WARPS = tuple(round(0.86 + 0.02 * i, 2) for i in range(15))


def load_fsdd(folder, indices, rate=RATE, exclude=()):
    """{speaker: {digit: [float32 waves]}} of the recordings whose index is in `indices`."""
    clips = {}
    for name in sorted(os.listdir(folder)):
        match = re.fullmatch(r"(\d)_([a-z]+)_(\d+)\.wav", name)
        if not match or int(match[3]) not in indices or match[2] in exclude:
            continue
        with open(os.path.join(folder, name), "rb") as f:
            x, own = read_wav(f.read())
        clips.setdefault(match[2], {}).setdefault(int(match[1]), []).append(at_16k(x, own) if rate == RATE else x)
    return clips


def load_voices(path):
    """The same for the cache of voices.py."""
    clips = {}
    with np.load(path) as archive:
        for key in archive.files:
            voice, digit = key.split("/")
            clips.setdefault(voice, {}).setdefault(int(digit), []).append(archive[key].astype(np.float32) / 32768)
    return {v: c for v, c in clips.items() if len(c) == 10}


def colour(rng, n, exponent):
    """Noise with a power spectrum of 1 / f^exponent, unit RMS."""
    spectrum = np.fft.rfft(rng.standard_normal(n).astype(np.float32))
    f = np.fft.rfftfreq(n, 1 / RATE)
    spectrum *= np.maximum(f, 30.0) ** (-exponent / 2)
    x = np.fft.irfft(spectrum, n).astype(np.float32)
    return x / x.std()


class Mixer:
    """Makes one example: (features [F, 80] float32, token ids)."""

    def __init__(self, people, voices, rng):
        self.people, self.voices, self.rng = people, voices, rng
        self.everyone = [c for c in people.values()] + [c for c in voices.values()]
        self.noises = [colour(rng, 30 * RATE, e) for e in (0.0, 0.5, 1.0, 1.5, 2.0)]
        self.noises += [self.babble(talkers) for talkers in (2, 4, 8)]

    def uniform(self, lo, hi):
        return float(self.rng.uniform(lo, hi))

    def chance(self, p):
        return self.rng.random() < p

    def clip(self, source):
        digit = int(self.rng.integers(10))
        takes = source[digit]
        return digit, takes[int(self.rng.integers(len(takes)))]

    def resample(self, x, factor):
        """Play `factor` times as fast (pitch and formants move along)."""
        n = max(2, int(len(x) / factor))
        return np.interp(np.arange(n) * factor, np.arange(len(x)), x).astype(np.float32)

    def snippets(self, seconds):
        """Speech-like sound without words: short reversed pieces of recordings in random order."""
        out, total = [], 0
        while total < seconds * RATE:
            _, x = self.clip(self.everyone[int(self.rng.integers(len(self.everyone)))])
            size = int(self.uniform(0.03, 0.09) * RATE)
            at = int(self.rng.integers(max(1, len(x) - size)))
            piece = x[at:at + size][::-1] * np.hanning(len(x[at:at + size])).astype(np.float32)
            piece = self.resample(piece, self.uniform(0.7, 1.4))
            silence = int(self.uniform(0, 0.3) * RATE) if self.chance(0.3) else 0
            out += [piece, np.zeros(silence, np.float32)]
            total += len(piece) + silence
        return np.concatenate(out)[:int(seconds * RATE)]

    def babble(self, talkers):
        x = sum(self.snippets(30) for _ in range(talkers))
        return (x / max(1e-6, x.std())).astype(np.float32)

    def noise(self, n):
        """Unit RMS noise of a random kind."""
        if self.chance(0.12):  # mains hum or a machine: harmonics of a low tone
            base, t = self.uniform(45, 130), np.arange(n, dtype=np.float32) / RATE
            x = sum(self.uniform(0, 1) / k * np.sin(2 * np.pi * base * k * t + self.uniform(0, 6)) for k in range(1, 7))
        else:
            bank = self.noises[int(self.rng.integers(len(self.noises)))]
            x = np.resize(np.roll(bank, int(self.rng.integers(len(bank)))), n) if n > len(bank) else \
                bank[(at := int(self.rng.integers(len(bank) - n + 1))):at + n]
        if self.chance(0.25):  # slow swells
            knots = self.rng.uniform(0.1, 1.0, max(2, n // RATE + 2))
            x = x * np.interp(np.arange(n), np.linspace(0, n, len(knots)), knots)
        return (x / max(1e-6, float(np.sqrt((x * x).mean())))).astype(np.float32)

    def room(self):
        """Short impulse response: direct sound and an exponentially decaying tail."""
        t60, n = self.uniform(0.08, 0.6), int(RATE * 0.35)
        tail = self.rng.standard_normal(n) * np.exp(-6.9 * np.arange(n) / (t60 * RATE))
        tail[:int(self.uniform(0.001, 0.008) * RATE)] = 0
        tail *= self.uniform(0.1, 0.9) / max(1e-9, np.sqrt((tail ** 2).sum()))
        tail[0] = 1.0
        return tail.astype(np.float32)

    def event(self):
        """A sound between words: click, beep or breath-like burst."""
        kind, n = self.rng.integers(4), int(self.uniform(0.005, 0.25) * RATE)
        if kind == 0:
            return (self.rng.standard_normal(n) * np.exp(-np.arange(n) / (0.004 * RATE)) * 0.2).astype(np.float32)
        if kind == 1:
            return (0.1 * np.sin(2 * np.pi * self.uniform(200, 3000) * np.arange(n) / RATE)).astype(np.float32)
        if kind == 2:
            return (0.03 * self.noise(n) * np.hanning(n)).astype(np.float32)
        return self.snippets(self.uniform(0.05, 0.4)) * self.uniform(0.1, 0.7)

    def pause(self, style):
        if self.chance(0.025):
            return self.uniform(0.8, 4.0)
        return self.uniform(0, 0.08) if style == 0 else self.uniform(0.03, (0.3, 0.7)[style - 1])

    def string(self, seconds, limit):
        """Speech of about `seconds`: (wave, digits)."""
        kind = self.rng.random()
        names = list(self.people)
        pick = lambda pool: pool[list(pool)[int(self.rng.integers(len(pool)))]]
        one = pick(self.voices) if kind < 0.22 else self.people[names[int(self.rng.integers(len(names)))]]
        mixed, style = kind > 0.9, int(self.rng.integers(3))
        speed, even = self.uniform(0.85, 1.2), self.chance(0.5)
        lead, trail = self.uniform(0, 1.0) ** 2 * 1.5, self.uniform(0, 1.0) ** 2 * 1.5
        parts, digits, total = [np.zeros(int(lead * RATE), np.float32)], [], lead
        while len(digits) < limit:
            source = one
            if mixed:
                source = pick(self.voices) if self.chance(0.3) else pick(self.people)
            digit, x = self.clip(source)
            x = self.resample(x, speed * self.uniform(0.95, 1.05))
            gain = 10 ** (self.uniform(-4, 4) / 20)
            x = x * (gain * 0.1 / max(1e-4, float(x.std())) if even or mixed else gain)
            gap = np.zeros(int(self.pause(style) * RATE), np.float32)
            if len(gap) > 0.25 * RATE and self.chance(0.08):
                extra = self.event()[:len(gap)]
                at = int(self.rng.integers(len(gap) - len(extra) + 1))
                gap[at:at + len(extra)] += extra
            if digits and total + (len(x) + len(gap)) / RATE + trail > seconds:
                break
            parts += [x, gap]
            digits.append(digit)
            total += (len(x) + len(gap)) / RATE
        parts.append(np.zeros(int(trail * RATE), np.float32))
        return np.concatenate(parts), digits

    def wordless(self, seconds):
        """A clip with nothing to transcribe."""
        n, kind = int(seconds * RATE), self.rng.random()
        level = 10 ** (self.uniform(-90, -10) / 20)
        if kind < 0.08:
            return np.zeros(n, np.float32)
        if kind < 0.6:
            return self.noise(n) * level
        if kind < 0.8:
            return self.snippets(seconds) * self.uniform(0.05, 1) + self.noise(n) * level * 0.1
        x = self.noise(n) * level * 0.1
        for _ in range(int(self.rng.integers(1, 8))):
            extra = self.event()[:n]
            at = int(self.rng.integers(n - len(extra) + 1))
            x[at:at + len(extra)] += extra
        return x

    def channel(self):
        """Gain per FFT bin [257]: tilt, resonances, band limits of a random microphone and line."""
        f = np.arange(features.N_FFT // 2 + 1) * (RATE / features.N_FFT)
        db = np.zeros(len(f))
        if self.chance(0.6):
            db += self.uniform(-4, 4) * np.log2(np.maximum(f, 60) / 1000)
            for _ in range(int(self.rng.integers(0, 4))):
                gain, octaves = self.uniform(-9, 9), np.log2(np.maximum(f, 30) / self.uniform(100, 7000))
                db += gain * np.exp(-0.5 * (octaves / self.uniform(0.2, 0.8)) ** 2)
        if self.chance(0.35):  # low-pass: narrow-band sources, each resampler with its own stop band
            edge = self.uniform(3300, 4000) if self.chance(0.7) else self.uniform(4000, 7500)
            db -= np.clip((f - edge) / self.uniform(30, 400), 0, 1) * self.uniform(25, 120)
        if self.chance(0.25):  # telephone: no lows
            db -= np.clip((self.uniform(80, 330) - f) / 100, 0, 1) * self.uniform(10, 40)
        return 10 ** (db / 10)

    def example(self, seconds, limit=20, strength=1.0):
        if self.chance(0.045):
            x, digits = self.wordless(seconds), []
        else:
            x, digits = self.string(seconds, limit)
            if self.chance(0.35 * strength):
                x = oaconvolve(x, self.room())[:len(x)].astype(np.float32)
            rms = max(1e-6, float(np.sqrt((x * x).mean())))
            peak = max(1e-6, float(np.abs(x).max()))
            if self.chance(0.75):
                x = x + self.noise(len(x)) * (rms * 10 ** (-self.uniform(5 + 20 * (1 - strength), 45) / 20))
            x = x * (10 ** (self.uniform(-30, 0) / 20) / peak)
            if self.chance(0.05):
                x = np.clip(x * self.uniform(1, 4), -1, 1)
        x = np.clip(np.round(x * 32768), -32768, 32767) / 32768 if self.chance(0.6) else x
        power = features.power_frames(x.astype(np.float32), np.float32)
        if self.chance(0.8 * strength):
            power = (power * self.channel()).astype(np.float32)
        warp = WARPS[int(self.rng.integers(len(WARPS)))] if self.chance(0.7 * strength) else 1.0
        mel = features.normalise(features.log_mel(power, warp=warp))
        if self.chance(0.6 * strength):
            self.mask(mel)
        return mel, [FIRST_DIGIT + d for d in digits]

    def mask(self, mel):
        """SpecAugment, mild: bands of mels and short stretches of time."""
        for _ in range(int(self.rng.integers(0, 3))):
            size = int(self.rng.integers(1, 14))
            at = int(self.rng.integers(mel.shape[1] - size))
            mel[:, at:at + size] = 0
        for _ in range(int(self.rng.integers(0, 1 + len(mel) // 250))):
            size = int(self.rng.integers(1, 9))
            at = int(self.rng.integers(max(1, len(mel) - size)))
            mel[at:at + size] = 0


def batch_seconds(rng, progress):
    """Length of the strings of a batch; long ones come late in the training."""
    p = rng.random()
    if progress > 0.85 and p < 0.03:
        return rng.uniform(110, 200)
    if progress > 0.45 and p < 0.10:
        return rng.uniform(30, 90)
    lo, hi = [(1, 3), (3, 6), (6, 12), (12, 20), (20, 26)][int(rng.choice(5, p=(0.14, 0.3, 0.34, 0.17, 0.05)))]
    return rng.uniform(lo, hi)


def make_batch(mixer, seconds, progress, budget):
    """dict of mel [B, S, 80], mel_frames [B], labels [B, U], lengths [B].

    The strings last about `seconds` each, all together about `budget`.
    """
    strength = min(1.0, 0.3 + progress / 0.2 * 0.7)
    limit = 20 if seconds < 26 else 10 ** 6
    items = [mixer.example(seconds, limit, strength) for _ in range(max(1, round(budget / seconds)))]
    mel = np.zeros((len(items), max(len(m) for m, _ in items), features.MELS), np.float32)
    labels = np.zeros((len(items), max(1, max(len(l) for _, l in items))), np.int64)
    for i, (m, l) in enumerate(items):
        mel[i, :len(m)] = m
        labels[i, :len(l)] = l
    return dict(mel=mel, mel_frames=np.array([len(m) for m, _ in items]), labels=labels,
                lengths=np.array([len(l) for _, l in items]))
