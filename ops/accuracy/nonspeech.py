"""Whether music can be told from noise by simple measures, on sounds made for the purpose.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.nonspeech [--clips 40]

Makes clips of 8 s of music (chords of harmonic tones with attacks, with and without drums; drums alone), of
noise (white, pink, brown, wind, a crowd's murmur, applause) and of hum (mains and motors), and prints of each
kind the 10th, 50th and 90th percentile of three measures, and how often the best threshold of each measure,
chosen on half of the clips, is right about music on the other half, with hum and without.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

RATE = 16_000
SECONDS = 8
_WINDOW, _HOP = 1024, 256

Floats = NDArray[np.float64]
Random = np.random.Generator


def coloured(chance: Random, slope: float) -> Floats:
    """Noise whose power falls by `slope` with frequency."""
    spectrum = np.fft.rfft(chance.standard_normal(RATE * SECONDS))
    spectrum /= np.maximum(1, np.arange(len(spectrum))) ** (slope / 2)
    samples: Floats = np.fft.irfft(spectrum, RATE * SECONDS)
    return samples / samples.std()


def chords(chance: Random) -> Floats:
    """Three or four harmonic tones every 0.25 to 0.6 s that die away, from a scale."""
    samples, at = np.zeros(RATE * SECONDS), 0.0
    scale = 110 * 2 ** (np.array([0, 2, 4, 5, 7, 9, 11, 12, 14, 16, 17, 19, 21]) / 12)
    beat, decay = chance.uniform(0.25, 0.6), chance.uniform(0.4, 2.0)
    while at < SECONDS:
        first = int(at * RATE)
        times = np.arange(len(samples) - first) / RATE
        for pitch in chance.choice(scale, chance.integers(3, 5), replace=False) * 2 ** chance.integers(0, 2):
            for partial in range(1, 9):
                tone = np.sin(2 * np.pi * pitch * partial * times) / partial**1.2
                samples[first:] += tone * np.exp(-times / decay) * np.minimum(1, times / 0.01)
        at += beat
    return samples / samples.std()


def drums(chance: Random) -> Floats:
    """A hit of noise or of a falling tone every quarter of a second or so."""
    samples, at, beat = np.zeros(RATE * SECONDS), 0.0, chance.uniform(0.2, 0.35)
    while at < SECONDS:
        first = int(at * RATE)
        times = np.arange(len(samples) - first) / RATE
        hit = np.sin(2 * np.pi * (60 + 80 * np.exp(-times * 30)) * times) * np.exp(-times * 12)
        if chance.random() < 0.5:
            hit = chance.standard_normal(len(times)) * np.exp(-times * 25)
        samples[first:] += hit
        at += beat
    return samples / samples.std()


def wind(chance: Random) -> Floats:
    swell = np.interp(
        np.arange(RATE * SECONDS) / RATE, np.arange(SECONDS + 1), chance.uniform(0.1, 1, SECONDS + 1)
    )
    return coloured(chance, 2.0) * swell


def murmur(chance: Random) -> Floats:
    """Twenty voices that say nothing: harmonic tones at syllables' pace through a formant."""
    samples, times = np.zeros(RATE * SECONDS), np.arange(RATE * SECONDS) / RATE
    for _ in range(20):
        drift = np.cumsum(chance.standard_normal(RATE * SECONDS)) * 2e-3
        phase = 2 * np.pi * (chance.uniform(90, 230) * times + np.cumsum(drift) / RATE)
        pulse = sum(np.sin(partial * phase) / partial for partial in range(1, 15))
        samples += pulse * np.maximum(
            0, np.sin(2 * np.pi * chance.uniform(2, 6) * times + chance.uniform(0, 6))
        )
    return samples / samples.std() + 0.1 * coloured(chance, 1.0)


def applause(chance: Random) -> Floats:
    samples = np.zeros(RATE * SECONDS)
    clap = np.exp(-np.arange(400) / 60)
    for first in chance.integers(0, len(samples) - 400, 150 * SECONDS):
        samples[first : first + 400] += chance.standard_normal(400) * clap
    return samples / samples.std()


def hum(chance: Random) -> Floats:
    """A mains' or a motor's tone with overtones, hardly changing, over faint noise."""
    times = np.arange(RATE * SECONDS) / RATE
    base = chance.choice([50.0, 60.0, chance.uniform(80, 300)])
    wobble = 1 + chance.uniform(0, 0.01) * np.sin(2 * np.pi * chance.uniform(0.2, 2) * times)
    samples = sum(
        chance.uniform(0.1, 1) / k * np.sin(2 * np.pi * base * k * np.cumsum(wobble) / RATE)
        for k in range(1, 9)
    )
    return samples / samples.std() + chance.uniform(0.05, 0.3) * coloured(chance, 1.0)


MUSIC: dict[str, Callable[[Random], Floats]] = {
    "chords": chords,
    "chords and drums": lambda chance: chords(chance) + chance.uniform(0.5, 1.5) * drums(chance),
    "drums": drums,
}
NOISE: dict[str, Callable[[Random], Floats]] = {
    "white": lambda chance: coloured(chance, 0.0),
    "pink": lambda chance: coloured(chance, 1.0),
    "brown": lambda chance: coloured(chance, 2.0),
    "wind": wind,
    "murmur": murmur,
    "applause": applause,
}
HUM: dict[str, Callable[[Random], Floats]] = {"hum": hum}


def measures(samples: Floats) -> tuple[float, float, float]:
    """Spectral flatness (0 a tone, 1 white), harmonicity (the autocorrelation's highest peak between 60 and
    500 Hz, the median over frames), and the share of the envelope's modulation that lies at 3 to 6 Hz."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP] * np.hanning(_WINDOW)
    power = np.abs(np.fft.rfft(frames)) ** 2 + 1e-9
    flatness = float(np.median(np.exp(np.log(power).mean(1)) / power.mean(1)))
    alike = np.fft.irfft(np.abs(np.fft.rfft(frames, 2 * _WINDOW)) ** 2)
    peaks = alike[:, RATE // 500 : RATE // 60].max(1) / alike[:, 0]
    envelope = np.sqrt(power.sum(1))
    pace = np.abs(np.fft.rfft(envelope - envelope.mean())) ** 2
    at = np.fft.rfftfreq(len(envelope), _HOP / RATE)
    modulation = pace[(at >= 3) & (at <= 6)].sum() / pace[(at > 0.3) & (at < 20)].sum()
    return flatness, float(np.median(peaks)), float(modulation)


def accuracy(values: Floats, music: NDArray[np.bool_]) -> float:
    """Of the best threshold on every second clip, the mean of the shares of music and of the rest that it has
    right on the others."""
    best = max(
        ((right(values[::2], music[::2], at, sign), at, sign) for at in values[::2] for sign in (1, -1)),
    )
    return right(values[1::2], music[1::2], *best[1:])


def right(values: Floats, music: NDArray[np.bool_], at: float, sign: int) -> float:
    says = sign * values >= sign * at
    return float((says[music].mean() + (~says[~music]).mean()) / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clips", type=int, default=40, help="of each kind")
    clips = parser.parse_args().clips
    chance = np.random.default_rng(17)
    kinds = {**MUSIC, **NOISE, **HUM}
    table = {name: np.array([measures(make(chance)) for _ in range(clips)]) for name, make in kinds.items()}
    names = ("flatness", "harmonicity", "modulation at 3 to 6 Hz")
    for name, rows in table.items():
        spread = np.percentile(rows, (10, 50, 90), axis=0).T
        text = "; ".join(
            f"{one} {a:.3f} {b:.3f} {c:.3f}" for one, (a, b, c) in zip(names, spread, strict=True)
        )
        print(f"{name}: {text}")
    for title, others in (("noise", NOISE), ("noise and hum", {**NOISE, **HUM})):
        rows = np.concatenate([table[name] for name in (*MUSIC, *others)])
        music = np.arange(len(rows)) < clips * len(MUSIC)
        rates = ", ".join(f"{one} {accuracy(rows[:, k], music):.0%}" for k, one in enumerate(names))
        print(f"music against {title}, right: {rates}")


if __name__ == "__main__":
    main()
