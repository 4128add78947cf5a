"""`spool-worker transcribe` with a Canary, from a file to JSON: NeMo's lists, prompts as NeMo's slots.

All 147 lists of the four shapes are held by `python -m ops.accuracy.canary.command`.
"""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import soundfile
import yaml

from ops.testbed.invoking import invoke
from tests.worker.models.canary.fixtures import POSITIONS, SINGLE, golden, raw, tokenizer_files
from worker.cli.main import main
from worker.models.attention.nemo_decoder import TABLE

pytestmark = pytest.mark.slow

ROWS = (1, 2)
SCORES = 5e-3
"""From the audio: the rounding of features and encoder is in each of some 60 tokens."""
ENCODER, DECODER = "encoder/", "tensor/"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The random model that NeMo answered for, and two recordings."""
    path, kept = tmp_path_factory.mktemp("command"), golden()
    tensors = {
        key.removeprefix(part): mx.array(value)
        for part in (ENCODER, DECODER)
        for key, value in kept.items()
        if key.startswith(part)
    }
    tensors[TABLE] = tensors["transf_decoder._embedding.token_embedding.weight"]
    mx.save_safetensors(str(path / "model.safetensors"), tensors)
    config: dict[str, Any] = yaml.safe_load(raw(SINGLE, "config"))
    config["transf_decoder"]["config_dict"]["max_sequence_length"] = POSITIONS
    (path / "config.json").write_text(json.dumps(config))
    for name, content in tokenizer_files(SINGLE).items():
        (path / name).write_bytes(content)
    for row in ROWS:
        soundfile.write(path / f"{row}.wav", kept[f"wav.{row}"], 16_000)
    return path


def transcribe(folder: Path, prompt: str, *search: str) -> list[list[dict[str, Any]]]:
    """The n-best lists that the command prints."""
    slots = json.loads(str(golden()["prompts"]))[prompt]["slots"]
    files = [str(folder / f"{row}.wav") for row in ROWS]
    asked = ["transcribe", *files, "--model", str(folder), "--no-chunk", "--format", "json", *search]
    result = invoke(main, [*asked, "--prompt", json.dumps(slots)])
    assert result.exit_code == 0, result.stderr
    return [document["nbest"] for document in json.loads(result.stdout)]


@pytest.mark.parametrize("prompt", ["nopnc", "context"])
def test_greedy_answers_are_nemos(folder: Path, prompt: str) -> None:
    for row, (best,) in zip(ROWS, transcribe(folder, prompt), strict=True):
        assert best["tokens"] == golden()[f"greedy.{row}.{prompt}"].tolist()


@pytest.mark.parametrize(("prompt", "beam", "penalty"), [("asr", 4, 1), ("stamps", 8, 0)])
def test_lists_and_scores_are_nemos(folder: Path, prompt: str, beam: int, penalty: int) -> None:
    search = [
        "--decoder",
        "beam",
        "--beam",
        str(beam),
        "--nbest",
        str(beam),
        "--length-penalty",
        str(penalty),
    ]
    for row, nbest in zip(ROWS, transcribe(folder, prompt, *search), strict=True):
        base = f"beam.{row}.{prompt}.k{beam}.lp{penalty}"
        theirs = zip(golden()[f"{base}.tok"], golden()[f"{base}.len"], strict=True)
        assert [each["tokens"] for each in nbest] == [tokens[:length].tolist() for tokens, length in theirs]
        gaps = np.array([each["score"] for each in nbest]) - golden()[f"{base}.score"]
        assert np.abs(gaps).max() < SCORES
