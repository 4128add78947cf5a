"""`spool-worker transcribe` with a Granite, from files to JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from ops.testbed.invoking import invoke
from worker.cli.main import main

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[3] / "golden"


def transcribe(tmp_path: Path, *search: str) -> list[dict[str, Any]]:
    files = []
    with np.load(GOLDEN / "audio.npz") as stored:
        for row in (1, 4):
            files.append(str(tmp_path / f"{row}.wav"))
            soundfile.write(files[-1], stored["audio"][row, : stored["lengths"][row]], 16_000)
    asked = [
        "transcribe",
        *files,
        "--model",
        str(GOLDEN / "granite" / "first"),
        "--no-chunk",
        "--format",
        "json",
    ]
    result = invoke(main, [*asked, *search])
    assert result.exit_code == 0, result.stderr
    documents: list[dict[str, Any]] = json.loads(result.stdout)
    return documents


def test_lists_are_printed_best_first(tmp_path: Path) -> None:
    greedy = transcribe(tmp_path, "--decoder", "greedy")
    beam = transcribe(tmp_path, "--decoder", "beam", "--beam", "6", "--nbest", "4")
    with np.load(GOLDEN / "granite" / "first.npz") as kept:
        for number, one, listed in zip((1, 4), greedy, beam, strict=True):
            (best,) = one["nbest"]
            labels = kept[f"labels.{number}"]
            starts = np.flatnonzero((labels != 0) & (labels != np.concatenate([[0], labels[:-1]])))
            assert best["tokens"] == labels[starts].tolist()
            assert best["times"] == starts.tolist()
            assert one["text"] == str(kept[f"text.{number}"]).strip()
            assert len(listed["nbest"]) == 4
            scores = [each["score"] for each in listed["nbest"]]
            assert scores == sorted(scores, reverse=True)
            assert all(len(each["tokens"]) == len(each["times"]) for each in listed["nbest"])
