"""Whether music can be told from noise by simple measures, on sounds made for the purpose.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.nonspeech [--clips 40]

Makes clips of 8 s of music (chords of harmonic tones with attacks, with and without drums; drums alone), of
noise (white, pink, brown, wind, a crowd's murmur, applause) and of hum (mains and motors), and prints of each
kind the 10th, 50th and 90th percentile of three measures, and how often the best threshold of each measure,
chosen on half of the clips, is right about music on the other half, with hum and without.

Then all measures together, with those of Scheirer and Slaney (1997, "Construction and evaluation of a robust
multifeature speech/music discriminator") that need no pitch: a logistic regression that is asked about each
kind after learning from all others alone, as real sounds are none of those it knows. Prints of each kind how
often it says music, noise and, below nine to one, that it is unclear; organ, melody, bells, siren and engine
are kinds of this table only.
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


def organ(chance: Random) -> Floats:
    """Chords that are held for two seconds each, without attacks."""
    times, samples = np.arange(RATE * SECONDS) / RATE, np.zeros(RATE * SECONDS)
    for first in range(0, SECONDS, 2):
        held = np.clip(np.minimum(times - first, first + 2.2 - times) / 0.2, 0, 1)
        for step in chance.choice([0, 3, 4, 5, 7, 9, 12], 3, replace=False):
            pitch = 130 * 2 ** (step / 12)
            samples += held * sum(np.sin(2 * np.pi * pitch * k * times) / k for k in (1, 2, 3, 4, 6, 8))
    return samples / samples.std() + 0.03 * coloured(chance, 1.0)


def melody(chance: Random) -> Floats:
    """One voice with vibrato over faint noise, a note every 0.2 to 0.8 s."""
    pitch, samples = np.zeros(RATE * SECONDS), np.zeros(RATE * SECONDS)
    loud, at = np.zeros(RATE * SECONDS), 0
    while at < len(pitch):
        length = int(RATE * chance.uniform(0.2, 0.8))
        note = slice(at, min(at + length, len(pitch)))
        pitch[note] = 260 * 2 ** (chance.choice([0, 2, 4, 5, 7, 9, 11, 12]) / 12)
        loud[note] = np.minimum(1, np.arange(note.stop - at) / 800) * np.exp(
            -np.arange(note.stop - at) / RATE
        )
        at += length
    times = np.arange(len(pitch)) / RATE
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.005 * np.sin(2 * np.pi * 5.5 * times))) / RATE
    samples = loud * sum(np.sin(k * phase) / k**1.5 for k in range(1, 7))
    return samples / samples.std() + 0.03 * coloured(chance, 1.0)


def bells(chance: Random) -> Floats:
    """Church bells: partials in no simple ratio, struck every second or so."""
    samples, at = np.zeros(RATE * SECONDS), 0.0
    base = chance.uniform(180, 420)
    while at < SECONDS:
        times = np.arange(len(samples) - int(at * RATE)) / RATE
        for ratio in (0.5, 1, 1.2, 1.5, 2, 2.5, 2.67, 3.01, 4.1):
            samples[int(at * RATE) :] += np.sin(2 * np.pi * base * ratio * times) * np.exp(-times * ratio)
        at += chance.uniform(0.7, 1.4)
    return samples / samples.std() + 0.03 * coloured(chance, 1.0)


def siren(chance: Random) -> Floats:
    """A tone that rises and falls, over traffic."""
    times = np.arange(RATE * SECONDS) / RATE
    pitch = 700 + 300 * np.sin(2 * np.pi * chance.uniform(0.2, 3) * times)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    return sum(np.sin(k * phase) / k for k in (1, 2, 3)) + chance.uniform(0.1, 0.5) * coloured(chance, 1.5)


def engine(chance: Random) -> Floats:
    """Bursts of low noise at a motor's pace, which wanders."""
    times = np.arange(RATE * SECONDS) / RATE
    pace = chance.uniform(8, 40) * (1 + 0.05 * np.sin(2 * np.pi * chance.uniform(0.05, 0.3) * times))
    firing = np.exp(-6 * np.mod(np.cumsum(pace) / RATE, 1.0))
    return coloured(chance, 1.5) * (0.2 + firing)


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


def all_measures(samples: Floats) -> Floats:
    """`[9]`: the three of `measures`; the share of quiet frames in a second, spread of the spectrum's centre,
    its roll-off, mean and spread of its flux (on spectra of length one), and the beat: how high the flux's
    autocorrelation is between 0.2 and 1 s."""
    frames = np.lib.stride_tricks.sliding_window_view(samples, _WINDOW)[::_HOP] * np.hanning(_WINDOW)
    size = np.abs(np.fft.rfft(frames)) + 1e-9
    bins, loud = np.arange(size.shape[1]), np.sqrt(np.square(size).sum(1))
    second = RATE // _HOP
    means = np.convolve(loud, np.ones(second) / second, "same")
    centre = size @ bins / size.sum(1)
    shares = np.cumsum(size**2, axis=1) / np.square(size).sum(1, keepdims=True)
    rolloff = (shares < 0.95).sum(1)
    flux = np.linalg.norm(np.diff(size / np.linalg.norm(size, axis=1, keepdims=True), axis=0), axis=1)
    wave = flux - flux.mean()
    alike = np.correlate(wave, wave, "full")[len(wave) - 1 :]
    beat = alike[second // 5 : second].max() / max(alike[0], 1e-9)
    own = [(loud < 0.5 * means).mean(), centre.std(), rolloff.mean(), flux.mean(), flux.std(), beat]
    return np.array([*measures(samples), *own], float)


def judged(known: Floats, music: NDArray[np.bool_], asked: Floats) -> Floats:
    """How probably each of `asked` is music, by a logistic regression (ridge 1) over what is known."""
    middle, spread = known.mean(0), known.std(0) + 1e-9
    rows, others = (np.c_[(each - middle) / spread, np.ones(len(each))] for each in (known, asked))
    counts = np.where(music, 0.5 / music.mean(), 0.5 / (1 - music.mean()))
    weights = np.zeros(rows.shape[1])
    for _ in range(50):
        said = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (counts * (said - music)) + weights
        bend = (rows * (counts * said * (1 - said))[:, None]).T @ rows + np.eye(len(weights))
        weights -= np.linalg.solve(bend, slope)
    probable: Floats = 1 / (1 + np.exp(-np.clip(others @ weights, -30, 30)))
    return probable


def print_unknown_kinds(clips: int) -> None:
    """The table of what is said of each kind by what was learned from the others."""
    chance = np.random.default_rng(29)
    music = {**MUSIC, "organ": organ, "melody": melody}
    kinds = {**music, **NOISE, **HUM, "bells": bells, "siren": siren, "engine": engine}
    rows = {
        name: np.array([all_measures(make(chance)) for _ in range(clips)]) for name, make in kinds.items()
    }
    totals = {True: np.zeros(3), False: np.zeros(3)}
    for name in kinds:
        others = [each for each in kinds if each != name]
        known = np.concatenate([rows[each] for each in others])
        probable = judged(known, np.repeat([each in music for each in others], clips), rows[name])
        said = np.array([(probable >= 0.9).mean(), (probable <= 0.1).mean(), 0.0])
        said[2] = 1 - said[:2].sum()
        totals[name in music] += said
        print(f"{name}: music {said[0]:.0%}, noise {said[1]:.0%}, unclear {said[2]:.0%}")
    for is_music, total in totals.items():
        a, b, c = total / (len(music) if is_music else len(kinds) - len(music))
        print(f"all {'music' if is_music else 'else'}: music {a:.0%}, noise {b:.0%}, unclear {c:.0%}")


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
    print_unknown_kinds(clips)


if __name__ == "__main__":
    main()
