"""Log-mel features as Parakeet computes them (the frontend of NeMo >= 2.5).

Waveform [N] (mono, 16 kHz, float, about +-1) -> features [F, mels], F = N // 160.
The constants are those of the published Parakeet checkpoints; see `self_check`
for the numbers that the implementation is held to.
"""
import functools

import numpy as np
import scipy.fft

RATE = 16000
N_FFT = 512
WIN = 400
HOP = 160
PREEMPHASIS = 0.97
GUARD = 2.0 ** -24
MELS = 80


def hz_to_mel(hz):
    """Slaney scale: linear below 1 kHz, logarithmic above."""
    hz = np.asarray(hz, np.float64)
    log_part = 15.0 + 27.0 * np.log(np.maximum(hz, 1e-9) / 1000.0) / np.log(6.4)
    return np.where(hz < 1000.0, 3.0 * hz / 200.0, log_part)


def mel_to_hz(mel):
    mel = np.asarray(mel, np.float64)
    return np.where(mel < 15.0, 200.0 * mel / 3.0, 1000.0 * np.exp(np.log(6.4) / 27.0 * (mel - 15.0)))


@functools.lru_cache(maxsize=None)
def filterbank(mels=MELS, warp=1.0):
    """Triangular filters [mels, 257], float32, area normalised.

    warp != 1 moves the frequency axis of the input (vocal tract length
    perturbation, training only).
    """
    edges = mel_to_hz(np.linspace(0.0, float(hz_to_mel(RATE / 2)), mels + 2))
    bins = np.arange(N_FFT // 2 + 1) * (RATE / N_FFT) * warp
    up = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    triangle = np.maximum(0.0, np.minimum(up, down)).astype(np.float32)
    area = 2.0 / (edges[2:] - edges[:-2])
    return (triangle * area[:, None]).astype(np.float32)


@functools.lru_cache(maxsize=None)
def padded_window():
    """Symmetric Hann of 400 samples, centred in the frame of 512."""
    window = 0.5 - 0.5 * np.cos(2.0 * np.pi * np.arange(WIN) / (WIN - 1))
    side = (N_FFT - WIN) // 2
    return np.pad(window, (side, side))


def power_frames(wave, dtype=np.float64):
    """Power spectra [F, 257] of the pre-emphasised, zero padded signal."""
    x = np.asarray(wave, dtype)
    y = x.copy()
    y[1:] -= dtype(PREEMPHASIS) * x[:-1]
    y = np.pad(y, (N_FFT // 2, N_FFT // 2))
    frames = len(x) // HOP
    view = np.lib.stride_tricks.as_strided(y, (frames, N_FFT), (y.strides[0] * HOP, y.strides[0]))
    spec = scipy.fft.rfft(view * padded_window().astype(dtype), axis=1)
    return spec.real ** 2 + spec.imag ** 2


def log_mel(power, mels=MELS, warp=1.0):
    """ln(mel energy + 2^-24), [F, mels]."""
    return np.log(power @ filterbank(mels, warp).T.astype(power.dtype) + power.dtype.type(GUARD))


def normalise(x):
    """Zero mean, unit variance (n - 1) per mel channel over all frames."""
    if len(x) < 2:
        return np.zeros_like(x)
    mean = x.mean(0, dtype=np.float64)
    std = np.sqrt(((x - mean) ** 2).sum(0, dtype=np.float64) / (len(x) - 1))
    return ((x - mean) / (std + 1e-5)).astype(np.float32)


def features(wave, mels=MELS, dtype=np.float64):
    """The whole frontend: [N] -> float32 [F, mels]."""
    return normalise(log_mel(power_frames(wave, dtype), mels))


def check_signal(count=16000):
    """Deterministic test signal: noise from an LCG plus two tones."""
    state, noise = 12345, np.empty(count)
    for i in range(count):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        noise[i] = (state >> 8) / 2.0 ** 24 - 0.5
    n = np.arange(count)
    tones = 0.3 * np.sin(2 * np.pi * 440 * n / RATE)
    tones += 0.2 * np.sin(2 * np.pi * 1750 * n / RATE) * np.exp(-2 * n / RATE)
    return (0.1 * noise + tones).astype(np.float32)


def self_check():
    """Compare with values that NeMo gave for the test signal; raise if they differ."""
    want = {
        80: ([3.4984157, 0.8250828, -5.0005984], [-0.5776684, 0.0371273, -0.5784459],
             [1.3660238, -1.7705120, 1.0631664], 2.558260781399),
        128: ([3.0888262, 1.1025181, -4.0044017], [-0.1934090, 0.0470637, -0.4327798],
              [0.9801036, -1.9026669, 0.2255965], 4.090487653877),
    }
    worst = 0.0
    for mels, (*frames, total) in want.items():
        assert abs(filterbank(mels).sum(dtype=np.float64) - total) < 1e-6
        for dtype in (np.float64, np.float32):
            got = features(check_signal(), mels, dtype)
            assert got.shape == (100, mels)
            for row, values in zip((0, 50, 99), frames):
                worst = max(worst, np.abs(got[row, [0, mels // 2, mels - 1]] - values).max())
    assert worst < 3e-4, worst
    silence = log_mel(power_frames(np.zeros(1600)))
    assert np.abs(silence + 16.635532).max() < 1e-5
    return worst


if __name__ == "__main__":
    print("features agree with the reference values, worst difference %.2g" % self_check())
