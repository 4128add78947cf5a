"""How well the score of forced alignment tells the right transcript of a recording from a wrong one.

`python -m ops.accuracy.typescripts SPEECH --model models/demo [--most N]` aligns recordings of the folder's
manifest (`path`, `text`, `duration`, `split`) with their own text and with the text of the recording next
longer, and prints both distributions and the errors at `MATCH_SCORE`. SPEECH/long, where it is there, gives
the errors of word starts against its references.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spool.domain.archive.alignment import Typescript
from spool.domain.archive.typescripts import SpokenWord
from worker.jobs.align.assembly import MATCH_SCORE
from worker.local.align import align_file
from worker.models.base import SpeechModel
from worker.models.load import load_model


def score(model: SpeechModel, recording: Path, text: str) -> float:
    """The score of `text` for the recording."""
    alignment = align_file(model, recording, _typescript(text.split())).alignment
    assert alignment is not None
    return alignment.score


def _typescript(words: Sequence[str]) -> Typescript:
    return Typescript(tuple(map(SpokenWord, words)))


def measure(model: SpeechModel, speech: Path, split: str, most: int, shortest: float) -> None:
    """Print how right and wrong transcripts score."""
    rows = [json.loads(line) for line in (speech / "manifest.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["split"] == split and row["duration"] >= shortest]
    rows = sorted(rows, key=lambda row: (row["duration"], row["path"]))
    rows = [rows[at] for at in np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int).tolist()]
    right = np.array([score(model, speech / row["path"], row["text"]) for row in rows])
    others = [*rows[1:], rows[0]]
    pairs = [(row, other) for row, other in zip(rows, others, strict=True) if row["text"] != other["text"]]
    wrong = np.array([score(model, speech / row["path"], other["text"]) for row, other in pairs])
    print(f"{len(right)} recordings of {split}, {shortest:g} s and longer; scores at 0, 5, 50, 95, 100 %")
    for name, values in (("right", right), ("wrong", wrong)):
        print(f"{name:>6}", *(f"{value:.3f}" for value in np.percentile(values, [0, 5, 50, 95, 100])))
    for limit in sorted({0.05, 0.1, 0.2, 0.3, MATCH_SCORE}):
        refused, taken = (right < limit).mean(), (wrong >= limit).mean()
        print(f"  at {limit:.2f}: {refused:.1%} of the right refused, {taken:.1%} of the wrong taken")


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
    parser.add_argument("--split", default="test")
    parser.add_argument("--most", type=int, default=200)
    parser.add_argument("--shortest", type=float, default=4.0)
    arguments = parser.parse_args()
    loaded = load_model(arguments.model)
    measure(loaded, arguments.speech, arguments.split, arguments.most, arguments.shortest)
    measure_long(loaded, arguments.speech / "long")
