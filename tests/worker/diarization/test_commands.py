"""`spool-worker speech` and `spool-worker diarize` on files."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from tests.worker.speech.sounds import RATE, conversation, golden
from worker.cli.main import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    soundfile.write(folder / "talk.wav", conversation(), RATE, subtype="FLOAT")
    soundfile.write(folder / "phone.wav", conversation()[: 8 * RATE : 2], RATE // 2)
    bad = conversation()[:RATE].copy()
    bad[9] = np.nan
    soundfile.write(folder / "bad.wav", bad, RATE, subtype="FLOAT")
    return folder


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stdout


def test_speech_prints_probabilities_and_spans(folder: Path) -> None:
    talk, phone, bad = json.loads(
        run("speech", folder / "talk.wav", folder / "phone.wav", folder / "bad.wav", code=1)
    )
    assert talk["frame_seconds"] == 0.032
    np.testing.assert_allclose(talk["probabilities"], golden()["probabilities"], rtol=0, atol=3.1e-6)
    starts = [span["start"] for span in talk["spans"] if span["label"] == "speech"]
    np.testing.assert_allclose(starts, golden()["stretches"][:, 0] / RATE, atol=6e-4)
    assert talk["spans"][-1]["label"] == "no_speech"
    assert phone["duration"] == 8.0
    assert len(phone["probabilities"]) == 250
    assert max(phone["probabilities"]) > 0.9
    assert bad["error"]["code"] == "audio_not_finite"


def test_diarize_prints_segments_or_rttm(folder: Path) -> None:
    (talk,) = json.loads(run("diarize", folder / "talk.wav"))
    assert talk["speakers"] == 4
    rows = [(segment["start"], segment["end"], segment["speaker"]) for segment in talk["segments"]]
    np.testing.assert_allclose(rows, golden()["segments"], atol=6e-4)
    lines = run(
        "diarize", folder / "phone.wav", folder / "bad.wav", "--format", "rttm", "--speakers", 2, code=1
    )
    assert {line.split()[7] for line in lines.splitlines()} == {"speaker_0", "speaker_1"}


def test_contradicting_numbers_of_speakers_are_refused(folder: Path) -> None:
    result = CliRunner().invoke(
        app, ["diarize", str(folder / "talk.wav"), "--speakers", "2", "--max-speakers", "3"]
    )
    assert "--speakers gives the exact number" in str(result.exception)
