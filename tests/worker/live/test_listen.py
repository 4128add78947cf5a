"""`spool-worker listen`: what it prints, and that it equals `spool-worker transcribe --no-chunk`."""

import json
from pathlib import Path
from typing import Any

import pytest

from ops.testbed.invoking import invoke
from worker.cli.main import main

GOLDEN = Path(__file__).parents[2] / "golden" / "streaming"
WAV, MODEL = str(GOLDEN / "2.flac"), str(GOLDEN / "model.nemo")
CONTEXT = ("--model", MODEL, "--att-context", "70,6")


def listen(*options: str) -> list[dict[str, Any]]:
    result = invoke(main, ["listen", WAV, *CONTEXT, *options])
    assert result.exit_code == 0
    return [json.loads(line) for line in result.output.splitlines()]


def test_finals_together_are_the_transcript() -> None:
    search = ("--decoder", "beam", "--beam", "4", "--nbest", "4")
    command = ["transcribe", WAV, *CONTEXT, "--no-chunk", *search]
    [whole] = json.loads(invoke(main, command).output)
    lines = listen("--chunk-ms", "130", "--silence-ms", "200", *search)
    finals = [line for line in lines if line["type"] == "final"]
    best = whole["nbest"][0]
    assert [token for final in finals for token in final["tokens"]] == best["tokens"]
    assert [time for final in finals for time in final["times"]] == best["times"]
    assert lines[-1]["type"] == "end"
    assert lines[-1]["frames"] == whole["frames"]
    assert lines[-1]["duration"] == pytest.approx(whole["duration"])
    assert [each["tokens"] for each in lines[-1]["nbest"]] == [each["tokens"] for each in whole["nbest"]]
    assert all(word["start"] <= word["end"] for final in finals for word in final["words"])


def test_partials_and_one_final_without_endpoints() -> None:
    lines = listen("--no-endpoints", "--speech-detector")
    kinds = [line["type"] for line in lines]
    assert kinds.count("final") == 1
    assert kinds[-2:] == ["final", "end"]
    assert "partial" in kinds
    assert "speech_started" in kinds
    assert lines[kinds.index("speech_started")]["time"] < lines[-1]["duration"]
    final = lines[kinds.index("final")]
    last = lines[len(kinds) - 1 - kinds[::-1].index("partial")]
    assert [word["text"] for word in last["words"]] == last["text"].split() != []
    assert last["words"] == final["words"], "words have their times before they are final"


def test_blocks_change_nothing_that_is_final() -> None:
    short, long = (
        [line for line in listen("--speech-detector", "--chunk-ms", size) if line["type"] != "partial"]
        for size in ("80", "5000")
    )
    assert short == long


def test_a_model_that_cannot_stream_is_refused() -> None:
    result = invoke(main, ["listen", WAV, "--model", str(GOLDEN.parent / "tdt")])
    assert result.exit_code == 2
