"""How well the score of forced alignment tells a recording's own transcript from a wrong one.

`python -m ops.accuracy.typescripts SPEECH --model models/demo [--joined N]` aligns the recordings of the
folder's manifest (`path`, `text`, `duration`, `split`, `speaker`) with their own text and with those of the
three next longer recordings; with `--joined`, N recordings one after another with a second between. The
threshold with the fewest errors is chosen on the recordings of half of the speakers and judged on the others.
If there is a SPEECH/long, the errors of word starts against its references are printed too.
"""

import argparse
import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from spool.domain.archive.alignment import Typescript
from spool.domain.archive.typescripts import SpokenWord
from worker.audio import SAMPLE_RATE
from worker.jobs.align.assembly import MATCH_SCORE, align_text
from worker.local.align import align_file, hear_file
from worker.models.base import SpeechModel
from worker.models.load import load_model

Floats = NDArray[np.float64]
WRONG_TEXTS = 3
LEAST_WORDS = 4
"""A word or two are found in many recordings."""


@dataclass(frozen=True, slots=True)
class Tape:
    """A recording, who speaks in it, and what."""

    samples: Floats
    speakers: frozenset[str]
    text: str


def scores_of(model: SpeechModel, tape: Tape, texts: Sequence[str]) -> list[float]:
    """The score of each of `texts` for the recording, which is heard once."""
    scores = []
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        soundfile.write(file.name, tape.samples, SAMPLE_RATE, subtype="PCM_16")
        heard = hear_file(model, Path(file.name), _typescript(" ".join(texts).split()))
    for text in texts:
        aligned = align_text(heard.transcript, heard.chunks, _typescript(text.split()), heard.info)
        assert aligned.alignment is not None
        scores.append(aligned.alignment.score)
    return scores


def _typescript(words: Sequence[str]) -> Typescript:
    return Typescript(tuple(map(SpokenWord, words)))


@dataclass(frozen=True, slots=True)
class Scores:
    """Of right and of wrong texts for the recordings of some speakers."""

    speakers: int
    right: Floats
    wrong: Floats

    def errors(self, limit: float) -> tuple[float, float]:
        """The share of right texts that are doubted and of wrong ones that are taken, at this threshold."""
        return float((self.right < limit).mean()), float((self.wrong >= limit).mean())

    def best_limit(self) -> float:
        """The threshold with the smallest sum of both errors; the middle where several are as good."""
        limits = np.arange(0.0, 0.6, 0.005)
        sums = np.array([sum(self.errors(limit)) for limit in limits])
        return float(np.median(limits[sums <= sums.min() + 1e-9]))


def measure(model: SpeechModel, speech: Path, splits: Sequence[str], joined: int, shortest: float) -> None:
    """Print how right and wrong transcripts score, for each half of the speakers."""
    rows = [json.loads(line) for line in (speech / "manifest.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["split"] in splits and row["duration"] >= shortest]
    rows = [row for row in rows if len(row["text"].split()) >= LEAST_WORDS]
    halves = [[row for row in rows if _half(row["speaker"]) == half] for half in (0, 1)]
    chosen_on, judged_on = (_scores(model, _tapes(speech, half, joined)) for half in halves)
    for name, scores in (("chosen on", chosen_on), ("judged on", judged_on)):
        counts = f"{len(scores.right)} of {scores.speakers} speakers, {len(scores.wrong)} wrong texts"
        print(f"{name} {counts}; scores at 0, 5, 50, 95, 100 %")
        for kind, values in (("right", scores.right), ("wrong", scores.wrong)):
            print(f"{kind:>6}", *(f"{value:.3f}" for value in np.percentile(values, [0, 5, 50, 95, 100])))
    best = chosen_on.best_limit()
    for limit in (best, MATCH_SCORE):
        for name, scores in (("chosen on", chosen_on), ("judged on", judged_on)):
            doubted, taken = scores.errors(limit)
            print(f"  at {limit:.3f}, {name}: {doubted:.1%} of right doubted, {taken:.1%} of wrong taken")


def _half(speaker: str) -> int:
    return hashlib.sha256(speaker.encode()).digest()[0] % 2


def _tapes(speech: Path, rows: Sequence[dict[str, Any]], joined: int) -> list[Tape]:
    """The recordings by length, `joined` of them as one."""
    rows = sorted(rows, key=lambda row: (row["duration"], row["path"]))
    pause = np.zeros(SAMPLE_RATE)
    tapes = []
    for first in range(0, len(rows) - joined + 1, joined):
        group = rows[first : first + joined]
        parts = [part for row in group for part in (soundfile.read(speech / row["path"])[0], pause)]
        speakers = frozenset(row["speaker"] for row in group)
        tapes.append(Tape(np.concatenate(parts[:-1]), speakers, " ".join(row["text"] for row in group)))
    return tapes


def _scores(model: SpeechModel, tapes: Sequence[Tape]) -> Scores:
    right, wrong = [], []
    for at, tape in enumerate(tapes):
        others = [tapes[(at + step) % len(tapes)].text for step in range(1, WRONG_TEXTS + 1)]
        own, *rest = scores_of(model, tape, [tape.text, *(text for text in others if text != tape.text)])
        right.append(own)
        wrong += rest
    speakers = frozenset[str]().union(*(tape.speakers for tape in tapes))
    return Scores(len(speakers), np.array(right), np.array(wrong))


def measure_long(model: SpeechModel, folder: Path) -> None:
    """Print how far word starts are from those of each long recording's reference."""
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        words = _typescript([word["w"] for word in record["words"]])
        aligned = align_file(model, path.with_name(record["audio"]), words)
        pairs = zip(aligned.words, record["words"], strict=True)
        errors = np.array([abs(word.start - reference["start"]) for word, reference in pairs])
        near = (errors <= 0.3).mean()
        print(f"{path.stem}: median {np.median(errors):.3f} s, {near:.1%} within 0.3 s, {aligned.alignment}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("speech", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--splits", nargs="+", default=["dev", "test"])
    parser.add_argument("--joined", type=int, default=1)
    parser.add_argument("--shortest", type=float, default=4.0)
    arguments = parser.parse_args()
    loaded = load_model(arguments.model)
    measure(loaded, arguments.speech, arguments.splits, arguments.joined, arguments.shortest)
    measure_long(loaded, arguments.speech / "long")
