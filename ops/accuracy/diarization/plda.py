"""Whether two covariances (PLDA) tell speakers apart better than cosines: what ops/bench/LOG.md has of it.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.diarization.plda SPEECH

SPEECH is the folder with `manifest.jsonl`. Learns the covariances between and within speakers from clips of
the training part whose speakers are in no unseen mixture (the tuning mixtures are of these speakers), chooses
the threshold on the tuning mixtures, and prints DER ± 0.25 s with the number of speakers unknown and known of
the clustering that ships and of this one. Some ten minutes of one core.

Two groups of prints, of one speaker or of two: the exact ratio of likelihoods of the model of Brümmer and de
Villiers (2010, "The speaker partitioning problem"), groups merged by the highest. Windows overlap, so each
counts for less than one observation.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before anything that loads one

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.accuracy.diarization.der import diarization_error
from ops.accuracy.diarization.mixtures import (
    RATE,
    Mixture,
    Reference,
    read_manifest,
    tuning_mixtures,
    unseen_mixtures,
)
from worker.diarization.base import RunSteps, run_here
from worker.diarization.clustering import ClusterOptions, cluster_prints
from worker.diarization.diarizer import DiarizeOptions, VoiceNetwork
from worker.diarization.timeline import build_timeline
from worker.diarization.windows import EncodeVoices, Span, plan_windows, voice_prints
from worker.speech.detector import SpeechDetector
from worker.speech.spans import Stretch, speech_stretches

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Labels = NDArray[np.int64]
Run = RunSteps[EncodeVoices, Floats]
FINE = ClusterOptions(cut=0.12, merge=0.99, smallest=1)
"""Windows this alike are one group before any ratio is taken."""
SMALLEST = 4
SHRINK = 0.5
DIMENSIONS = 128
STOPS = (-60.0, -40.0, -25.0, -15.0, -8.0)
WEIGHTS = (0.06, 0.1, 0.2, 0.4)


@dataclass(frozen=True, eq=False)
class Conversation:
    """One mixture as the clustering sees it."""

    reference: Reference
    stretches: list[Stretch]
    spans: list[Span]
    prints: Floats

    @property
    def speakers(self) -> int:
        return len({name for *_, name in self.reference})


@dataclass(frozen=True, eq=False)
class Covariances:
    """A projection `[256, D]` behind `mean`, in which within-speaker covariance is one and that between
    speakers is the diagonal `between`."""

    mean: Doubles
    projection: Doubles
    between: Doubles

    def project(self, prints: Floats) -> Doubles:
        projected: Doubles = (prints - self.mean) @ self.projection
        return projected

    def log_likelihoods(self, counts: Doubles, sums: Doubles) -> Doubles:
        """Of groups `[G]` of so many prints with these sums `[G, D]`, each of one speaker, but for a term
        that any partition has."""
        spread = 1 / (1 / self.between + counts[:, None])
        logs: Doubles = 0.5 * ((spread * sums**2).sum(1) - np.log1p(counts[:, None] * self.between).sum(1))
        return logs


def blocks_of(samples: Floats) -> Iterator[Floats]:
    for at in range(0, len(samples), RATE):
        yield samples[at : at + RATE]


def hear(mixture: Mixture, detector: SpeechDetector, run: Run) -> Conversation:
    options = DiarizeOptions()
    probabilities, count = detector.follow(blocks_of(mixture.samples))
    stretches = speech_stretches(probabilities, count, options.speech)
    spans = plan_windows(stretches, options.windows)
    return Conversation(
        mixture.reference, stretches, spans, voice_prints(blocks_of(mixture.samples), spans, run)
    )


def training_prints(
    speech: Path, manifest: list[dict[str, Any]], avoid: set[str], run: Run
) -> tuple[Floats, Labels]:
    """Prints of the first five seconds of eight clips each of the training speakers, and whose they are."""
    clips: dict[str, list[Path]] = {}
    for record in manifest:
        fits = record["split"] == "train" and record["domain"] in ("so762", "libri")
        if fits and record["duration"] > 1.7 and record["speaker"] not in avoid:
            clips.setdefault(record["speaker"], []).append(speech / record["path"])
    prints, owners = [], []
    for owner, name in enumerate(sorted(clips)):
        for path in clips[name][:8]:
            samples = soundfile.read(path, dtype="float32")[0][: 5 * RATE]
            starts = np.arange(0, len(samples) / RATE - 1.6, 1.2).tolist()
            heard = voice_prints(blocks_of(samples), [(at, at + 1.6) for at in starts], run)
            prints.append(heard)
            owners += [owner] * len(heard)
    return np.concatenate(prints), np.array(owners)


def learn(prints: Floats, owners: Labels) -> Covariances:
    """By moments: the covariance within speakers, drawn to a sphere by `SHRINK`, and that of their means less
    what the former adds to it."""
    rows, counts = prints.astype(np.float64), np.bincount(owners)
    mean = rows.mean(0)
    means = np.stack([rows[owners == owner].mean(0) for owner in range(len(counts))])
    apart = rows - means[owners]
    within = apart.T @ apart / (len(rows) - len(counts))
    between = ((means - mean).T * (counts / counts.sum())) @ (means - mean) - within / counts.mean()
    size = len(within)
    within = (1 - SHRINK) * within + SHRINK * np.trace(within) / size * np.eye(size)
    whitening = np.linalg.cholesky(np.linalg.inv(within))
    values, vectors = np.linalg.eigh(whitening.T @ between @ whitening)
    kept = slice(None, -DIMENSIONS - 1, -1)
    return Covariances(mean, whitening @ vectors[:, kept], np.maximum(values[kept], 1e-6))


def merge_groups(
    prints: Floats, model: Covariances, weight: float, stop: float, speakers: int | None
) -> Labels:
    """A speaker for each print: finely clustered by cosine, then merged while the ratio is above `stop`, or
    until there are so many speakers."""
    labels = cluster_prints(prints, FINE)
    projected = model.project(prints) * weight
    counts: Doubles = (np.bincount(labels) * weight).astype(np.float64)
    sums = np.zeros((len(counts), projected.shape[1]))
    np.add.at(sums, labels, projected)
    alone = model.log_likelihoods(counts, sums)
    ratios = np.stack([model.log_likelihoods(counts[i] + counts, sums[i] + sums) for i in range(len(counts))])
    ratios -= alone + alone[:, None]
    np.fill_diagonal(ratios, -np.inf)
    for left in range(len(counts), 1, -1):
        kept, gone = (int(each) for each in np.unravel_index(ratios.argmax(), ratios.shape))
        if (speakers is None and ratios[kept, gone] < stop) or left == speakers:
            break
        counts[kept] += counts[gone]
        sums[kept] += sums[gone]
        alone[kept] = model.log_likelihoods(counts[kept : kept + 1], sums[kept : kept + 1])[0]
        ratios[gone] = ratios[:, gone] = -np.inf
        row = model.log_likelihoods(counts[kept] + counts, sums[kept] + sums) - alone - alone[kept]
        row[np.isneginf(ratios[kept])] = -np.inf
        ratios[kept] = ratios[:, kept] = row
        labels = np.where(labels == gone, kept, labels)
    return _likeliest(model, labels, projected, weight, SMALLEST if speakers is None else 1)


def _likeliest(
    model: Covariances, labels: Labels, projected: Doubles, weight: float, smallest: int
) -> Labels:
    """Each print to the speaker under whose posterior it is likeliest, three times; groups of fewer than
    `smallest` are given up."""
    names, sizes = np.unique(labels, return_counts=True)
    names = names[sizes >= min(smallest, sizes.max())]
    for _ in range(3):
        sums = np.stack([projected[labels == name].sum(0) for name in names])
        counts = np.array([(labels == name).sum() * weight for name in names])
        spread = 1 / (1 / model.between + counts[:, None])
        apart = projected[:, None] / weight - spread * sums
        scores = -0.5 * ((apart**2 / (1 + spread)).sum(2) + np.log1p(spread).sum(1))
        labels = names[scores.argmax(1)]
        names = np.unique(labels)
    return np.unique(labels, return_inverse=True)[1]


Cluster = Callable[[Floats, int | None], Labels]


def error_of(conversations: list[Conversation], cluster: Cluster, known: bool) -> tuple[float, int]:
    """The mean DER ± 0.25 s in percent, and of how many the speakers were counted right."""
    rates, right = [], 0
    for each in conversations:
        labels = cluster(each.prints, each.speakers if known else None)
        segments = build_timeline(each.stretches, each.spans, each.prints, labels)
        guess = [(segment.start, segment.end, segment.speaker) for segment in segments]
        rates.append(diarization_error(each.reference, guess, 0.25).total)
        right += len({segment.speaker for segment in segments}) == each.speakers
    return 100 * float(np.mean(rates)), right


def by_cosine(prints: Floats, speakers: int | None) -> Labels:
    """What ships."""
    fixed = {} if speakers is None else {"min_speakers": speakers, "max_speakers": speakers}
    return cluster_prints(prints, ClusterOptions(**fixed))


def show(name: str, sets: dict[str, list[Conversation]], cluster: Cluster) -> None:
    print(name)
    for title, conversations in sets.items():
        (unknown, right), (known, _) = (error_of(conversations, cluster, each) for each in (False, True))
        print(
            f"  {title}: {unknown:.1f} %, {right} of {len(conversations)} counted right; "
            f"number known {known:.1f} %",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("speech", type=Path)
    speech = parser.parse_args().speech
    manifest, detector, run = read_manifest(speech), SpeechDetector.load(), run_here(VoiceNetwork())
    sets = {
        title: [hear(mixture, detector, run) for mixture in mixtures]
        for title, mixtures in (
            ("tuning", tuning_mixtures(speech, manifest)),
            ("unseen", unseen_mixtures(speech, manifest)),
            ("unseen, noise at -46 dBFS", unseen_mixtures(speech, manifest, -46)),
        )
    }
    unseen = {name for each in sets["unseen"] for *_, name in each.reference}
    model = learn(*training_prints(speech, manifest, unseen, run))

    def merged(weight: float, stop: float) -> Cluster:
        return lambda prints, speakers: merge_groups(prints, model, weight, stop, speakers)

    choices = list(product(WEIGHTS, STOPS))
    errors = [error_of(sets["tuning"], merged(*choice), known=False)[0] for choice in choices]
    weight, stop = choices[int(np.argmin(errors))]
    show("by cosine, as it ships", sets, by_cosine)
    show(f"by two covariances, a window counts {weight}, merged above {stop:g}", sets, merged(weight, stop))
    near = [
        f"{stop:g}: {error:.1f} %"
        for (one, stop), error in zip(choices, errors, strict=True)
        if one == weight
    ]
    print(f"tuning by threshold: {', '.join(near)}")


if __name__ == "__main__":
    main()
