"""Sound without words, made from a seed: silence, noise, hum, tones, clicks, music, and babble.

Every generator gives float32 samples at 16 kHz. What the model must answer to all of them is nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ops.train.data.features import RATE, Audio

Rng = np.random.Generator


def silence(count: int, rng: Rng) -> Audio:
    """Digital silence, or a floor of a few steps of a 16-bit converter."""
    kind = rng.integers(3)
    if kind == 0:
        return np.zeros(count, np.float32)
    level = 1 / 32768 if kind == 1 else 10.0 ** rng.uniform(-4.3, -3.0)
    return np.round(rng.normal(0.0, level * 32768, count)).astype(np.float32) / np.float32(32768)


def noise(count: int, rng: Rng) -> Audio:
    """Noise with a random slope and curve over frequency, swelling slowly as wind and traffic do."""
    spectrum = np.fft.rfft(rng.standard_normal(count))
    hertz = np.maximum(np.fft.rfftfreq(count, 1 / RATE), 20.0)
    curve = np.interp(np.log(hertz), np.linspace(3.0, 9.0, 8), rng.normal(0.0, 1.0, 8))
    shaped = np.fft.irfft(spectrum * hertz ** -rng.uniform(0.0, 1.2) * np.exp(curve), count)
    knots = max(3, int(count / RATE * rng.uniform(0.3, 4.0)))
    swell = np.exp(rng.uniform(0.0, 1.2) * rng.standard_normal(knots))
    return _levelled(shaped * np.interp(np.arange(count), np.linspace(0, count, knots), swell), rng)


def hum(count: int, rng: Rng) -> Audio:
    """Mains at 50 or 60 Hz with its harmonics, or a motor, over some noise."""
    base = float(rng.choice([50.0, 60.0, 100.0, 120.0, rng.uniform(30.0, 300.0)]))
    time = np.arange(count) / RATE
    drift = 1.0 + 0.01 * rng.random() * np.sin(2 * np.pi * rng.uniform(0.05, 0.5) * time)
    phase = 2 * np.pi * base * np.cumsum(drift) / RATE
    tones = sum(
        rng.random() / k * np.sin(k * phase + rng.uniform(0, 6)) for k in range(1, rng.integers(3, 25))
    )
    return _levelled(tones + rng.uniform(0.0, 0.3) * noise(count, rng), rng)


def tones(count: int, rng: Rng) -> Audio:
    """Beeps, ringing, keys of a telephone, sweeps."""
    out = np.zeros(count)
    place = int(rng.uniform(0, 0.3) * RATE)
    keys = [(a, b) for a in (697, 770, 852, 941) for b in (1209, 1336, 1477)]
    kind = rng.integers(3)
    while place < count:
        size = min(count - place, int(rng.uniform(0.04, 1.2) * RATE))
        time = np.arange(size) / RATE
        if kind == 0:
            low, high = keys[rng.integers(len(keys))]
            sound = np.sin(2 * np.pi * low * time) + np.sin(2 * np.pi * high * time)
        elif kind == 1:
            sound = np.sin(2 * np.pi * rng.uniform(200, 3500) * time)
        else:
            bend = rng.uniform(-1500, 1500)
            sound = np.sin(2 * np.pi * (rng.uniform(1600, 2500) * time + bend * time**2 / 2))
        out[place : place + size] += sound
        place += size + int(rng.uniform(0.02, 0.8) * RATE)
    return _levelled(out + rng.uniform(0.0, 0.05) * rng.standard_normal(count), rng)


def clicks(count: int, rng: Rng) -> Audio:
    """Knocks, claps, keys: short bursts that ring off, over a quiet floor."""
    out = rng.uniform(0.0, 0.02) * rng.standard_normal(count)
    for _ in range(max(1, int(count / RATE * rng.uniform(0.5, 5.0)))):
        place = int(rng.integers(0, max(1, count - 1600)))
        size = min(count - place, int(rng.uniform(0.005, 0.25) * RATE))
        time = np.arange(size) / RATE
        ring = np.sin(2 * np.pi * rng.uniform(80, 4000) * time) + rng.standard_normal(size)
        out[place : place + size] += rng.uniform(0.2, 1.0) * ring * np.exp(-time * rng.uniform(10, 120))
    return _levelled(out, rng)


def music(count: int, rng: Rng) -> Audio:
    """Chords and a melody with decaying harmonics, now and then with drums."""
    out = np.zeros(count)
    beat = int(RATE * 60 / rng.uniform(60, 180))
    root, scale = rng.uniform(80, 300), (0, 2, 4, 5, 7, 9, 11, 12, 14, 16)
    partials, decay, drums = int(rng.integers(2, 12)), rng.uniform(0.5, 8.0), rng.random() < 0.5
    for place in range(0, count, max(1, beat // int(rng.integers(1, 4)))):
        for _ in range(int(rng.integers(1, 5))):
            size = min(count - place, int(beat * rng.uniform(0.5, 4.0)))
            time = np.arange(size) / RATE
            pitch = root * 2 ** (float(rng.choice(scale)) / 12)
            vibrato = 1 + 0.003 * np.sin(2 * np.pi * 5.5 * time)
            phase = 2 * np.pi * pitch * np.cumsum(vibrato) / RATE
            voice = sum(np.sin(k * phase) / k ** rng.uniform(0.7, 2.0) for k in range(1, partials + 1))
            out[place : place + size] += voice * np.exp(-time * decay) * np.minimum(1, time * 50)
        if drums and place + 3200 < count:
            out[place : place + 3200] += rng.standard_normal(3200) * np.exp(
                -np.arange(3200) / rng.uniform(150, 900)
            )
    return _levelled(out, rng)


def babble(count: int, rng: Rng, voices: Sequence[Audio]) -> Audio:
    """Seven or more voices at once, none to be understood."""
    out = np.zeros(count)
    for _ in range(int(rng.integers(7, 13))):
        voice = voices[int(rng.integers(len(voices)))]
        laid = np.take(voice, np.arange(count) + int(rng.integers(len(voice))), mode="wrap")
        out += laid / (np.sqrt(np.mean(voice**2)) + 1e-6) * rng.uniform(0.6, 1.0)
    return _levelled(out, rng)


def _levelled(samples: np.ndarray, rng: Rng) -> Audio:
    loudest = float(np.abs(samples).max()) + 1e-9
    return (samples / loudest * 10 ** rng.uniform(-2.2, -0.05)).astype(np.float32)


KINDS: dict[str, Callable[[int, Rng], Audio]] = {
    "silence": silence,
    "noise": noise,
    "hum": hum,
    "tones": tones,
    "clicks": clicks,
    "music": music,
}
