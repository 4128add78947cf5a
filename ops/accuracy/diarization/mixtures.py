"""Conversations mixed from clean clips of real people, with exact references of who speaks when.

A clip's activity is marked by its energy, gaps shorter than 0.3 s counting as speech: a pause counted as
speech would be a miss that nobody made. The speech folder is the one that `ops.accuracy` reads.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Reference = list[tuple[float, float, str]]
"""(start, end, speaker), seconds, in order; speakers may overlap."""
RATE = 16_000


@dataclass(frozen=True)
class Plan:
    """What a conversation is made of; `noise` is the level of a bed of pink noise in dBFS."""

    domain: str
    speakers: int
    overlap: float = 0.0
    noise: float = -54.0
    seconds: float = 150.0

    @property
    def name(self) -> str:
        return f"{self.domain} {self.speakers}{' overlapping' if self.overlap else ''}"


@dataclass(frozen=True)
class Mixture:
    name: str
    samples: Floats
    reference: Reference


PLANS = [
    Plan(domain, speakers, overlap, -54 + 2 * (index % 4))
    for index, (domain, speakers, overlap) in enumerate(
        [(domain, speakers, 0.0) for domain in ("so762", "libri") for speakers in (2, 3, 4, 6)]
        + [("so762", 3, 0.25), ("libri", 3, 0.25), ("so762", 2, 0.15), ("libri", 4, 0.15)]
    )
]


def read_manifest(speech: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (speech / "manifest.jsonl").read_text().splitlines()]


def tuning_mixtures(speech: Path, manifest: list[dict[str, Any]]) -> Iterator[Mixture]:
    """Of the training part's speakers."""
    for index, plan in enumerate(PLANS):
        yield mix(speech, manifest, plan, 1000 + index, ("train",))


def unseen_mixtures(
    speech: Path, manifest: list[dict[str, Any]], noise: float | None = None
) -> Iterator[Mixture]:
    """Of speakers that no tuning mixture has; `noise` replaces the plans' levels."""
    tuned = {name for mixture in tuning_mixtures(speech, manifest) for *_, name in mixture.reference}
    for index, plan in enumerate(PLANS):
        level = plan.noise if noise is None else noise
        splits = ("test", "dev") if plan.domain == "so762" else ("train", "test")
        plan = Plan(plan.domain, plan.speakers, plan.overlap, level, plan.seconds)
        yield mix(speech, manifest, plan, 2000 + index, splits, avoid=tuned)


def mix(
    speech: Path,
    manifest: list[dict[str, Any]],
    plan: Plan,
    seed: int,
    splits: tuple[str, ...],
    avoid: set[str] = frozenset(),  # type: ignore[assignment]
) -> Mixture:
    """One conversation; the same arguments give the same samples."""
    chance, noise = random.Random(seed), np.random.default_rng(seed)
    clips = _clips(manifest, plan, splits, avoid)
    names = chance.sample(sorted(clips), plan.speakers)
    order = {name: chance.sample(clips[name], len(clips[name])) for name in names}
    samples = np.zeros(int((plan.seconds + 40) * RATE), np.float32)
    reference: Reference = []
    at, last = chance.uniform(0.3, 1.5), None
    gains, used = {name: 10 ** (chance.uniform(-28, -22) / 20) for name in names}, dict.fromkeys(names, 0)
    while at < plan.seconds:
        name = chance.choice([other for other in names if other != last] or names)
        for _ in range(chance.choice([1, 1, 2])):
            record = order[name][used[name] % len(order[name])]
            used[name] += 1
            clip = _cut(speech / record["path"], plan.domain, chance)
            clip *= min(gains[name] / _loudness(clip), 0.95 / np.abs(clip).max())
            first = int(at * RATE)
            samples[first : first + len(clip)] += clip
            reference += [(first / RATE + start, first / RATE + end, name) for start, end in activity(clip)]
            at = (first + len(clip)) / RATE + chance.uniform(0.1, 0.5)
        last = name
        at += chance.uniform(0.1, 1.2) if chance.random() > plan.overlap else -chance.uniform(0.6, 1.8)
    length = int(max(end for _, end, _ in reference) * RATE) + RATE // 2
    bed = _pink(length, noise) * 10 ** (plan.noise / 20)
    return Mixture(plan.name, np.clip(samples[:length] + bed, -1, 1).astype(np.float32), sorted(reference))


def _clips(
    manifest: list[dict[str, Any]], plan: Plan, splits: tuple[str, ...], avoid: set[str]
) -> dict[str, list[dict[str, Any]]]:
    """The clips of each speaker who has enough of them."""
    clips: dict[str, list[dict[str, Any]]] = {}
    for record in manifest:
        fits = record["domain"] == plan.domain and record["split"] in splits and record["duration"] > 1.2
        if fits and record["speaker"] not in avoid:
            clips.setdefault(record["speaker"], []).append(record)
    fewest = 1 if plan.domain == "libri" else 4
    return {
        name: records
        for name, records in clips.items()
        if len(records) >= fewest and sum(record["duration"] for record in records) > 8
    }


def _cut(path: Path, domain: str, chance: random.Random) -> Floats:
    """The clip without the silence around it, faded in and out; of a long one a part."""
    samples, rate = soundfile.read(path, dtype="float32")
    assert rate == RATE
    levels = _levels(samples, 3)
    loud = np.flatnonzero(levels > max(np.percentile(levels, 98) - 32, np.percentile(levels, 5) + 5))
    start, end = loud[0] * 0.01, (loud[-1] + 1) * 0.01
    if domain == "libri" and end - start > 6:
        length = chance.uniform(3, 6.5)
        start = chance.uniform(start, end - length)
        end = start + length
    clip = samples[int(start * RATE) : int(end * RATE)].copy()
    fade = min(160, len(clip) // 4)
    clip[:fade] *= np.linspace(0, 1, fade)
    clip[-fade:] *= np.linspace(1, 0, fade)
    return clip


def _loudness(clip: Floats) -> float:
    return float(np.sqrt((clip[np.abs(clip) > np.abs(clip).max() * 0.05] ** 2).mean()))


def activity(clip: Floats, gap: float = 0.3) -> list[tuple[float, float]]:
    """Where somebody speaks in a clean clip, seconds."""
    levels = _levels(clip, 5)
    spans: list[list[float]] = []
    for frame in np.flatnonzero(levels > max(np.percentile(levels, 98) - 30, np.percentile(levels, 5) + 6)):
        if spans and frame * 0.01 - spans[-1][1] <= gap:
            spans[-1][1] = (frame + 1) * 0.01
        else:
            spans.append([frame * 0.01, (frame + 1) * 0.01])
    return [(start, end) for start, end in spans if end - start >= 0.06]


def _levels(samples: Floats, width: int) -> NDArray[np.float64]:
    frames = samples[: len(samples) // 160 * 160].reshape(-1, 160)
    return np.convolve(10 * np.log10((frames**2).mean(1) + 1e-10), np.ones(width) / width, "same")


def _pink(count: int, noise: np.random.Generator) -> Floats:
    spectrum = np.fft.rfft(noise.standard_normal(count).astype(np.float32))
    spectrum /= np.sqrt(np.maximum(1, np.arange(len(spectrum))))
    samples = np.fft.irfft(spectrum, count)
    return (samples / samples.std()).astype(np.float32)
