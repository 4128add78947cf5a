"""`spool-worker speech` and `spool-worker diarize` on files."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.invoking import invoke
from tests.worker.models.sortformer.golden import STREAMING, archive
from tests.worker.speech.sounds import RATE, conversation, golden
from worker.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recordings")
    soundfile.write(folder / "talk.wav", conversation(), RATE, subtype="FLOAT")
    soundfile.write(folder / "phone.wav", conversation()[: 8 * RATE : 2], RATE // 2)
    bad = conversation()[:RATE].copy()
    bad[9] = np.nan
    soundfile.write(folder / "bad.wav", bad, RATE, subtype="FLOAT")
    return folder


def run(*words: str | Path | int, code: int = 0) -> str:
    result = invoke(main, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stdout


def test_speech_prints_probabilities_and_spans(folder: Path) -> None:
    talk, phone, bad = json.loads(
        run("speech", folder / "talk.wav", folder / "phone.wav", folder / "bad.wav", code=1)
    )
    assert talk["frame_seconds"] == 0.032
    # Float32 products in another order: 4e-6 was the largest difference seen.
    np.testing.assert_allclose(talk["probabilities"], golden()["probabilities"], rtol=0, atol=1e-5)
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


def test_diarize_with_a_sortformer_prints_its_probabilities(folder: Path) -> None:
    words: list[str | Path] = [
        "diarize",
        folder / "talk.wav",
        folder / "bad.wav",
        "--model",
        archive(STREAMING),
    ]
    talk, bad = json.loads(run(*words, "--format", "json", code=1))
    assert talk["frame_seconds"] == 0.08
    probabilities = np.array(talk["probabilities"])
    assert probabilities.shape == (-(-len(conversation()) // 1280), 4)
    np.testing.assert_array_equal(probabilities, np.round(probabilities, 7))
    for speaker in range(4):
        own = [each for each in talk["segments"] if each["speaker"] == speaker]
        spoken = sum(each["end"] - each["start"] for each in own)
        assert spoken == pytest.approx((probabilities[:, speaker] > 0.5).sum() * 0.08)
    assert [each["start"] for each in talk["segments"]] == sorted(each["start"] for each in talk["segments"])
    assert bad["error"]["code"] == "audio_not_finite"
    (offline,) = json.loads(run(*words[:2], *words[3:], "--setting", "offline"))
    assert np.abs(np.array(offline["probabilities"]) - probabilities).max() > 0.01


@pytest.mark.parametrize(("most", "name"), [((), "sortformer_v21"), (("--speakers", 5), "default")])
def test_words_get_the_speakers_of_a_sortformer(folder: Path, most: tuple[str | int, ...], name: str) -> None:
    model = Path(__file__).parents[3] / "models" / "demo"
    words = ("transcribe", folder / "phone.wav", "--model", model, "--diarizer", archive(STREAMING))
    limits: tuple[str | int, ...] = most or ("--max-speakers", 4)
    (talk,) = json.loads(run(*words, *limits, "--format", "json"))
    assert talk["diarization"]["name"] == name
    assert ("there are more speakers than sortformer_v21" in talk["diarization"].get("note", "")) == bool(
        most
    )
    assert talk["words"]
    assert all(word["speaker"].startswith("speaker_") for word in talk["words"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--setting", "offline"), "--setting is for a Sortformer; name one with --model"),
        (("--model", archive(STREAMING), "--speakers", 5), "tells at most 4 speakers apart, not 5"),
        (("--model", "gone.nemo"), "gone.nemo: no .nemo file is there"),
        (("--model", "nothing"), "There is no diarization model 'nothing' here"),
    ],
)
def test_a_sortformer_that_cannot_be_used_is_refused(
    folder: Path, words: tuple[str | Path | int, ...], sentence: str
) -> None:
    result = invoke(main, ["diarize", str(folder / "talk.wav"), *(str(word) for word in words)])
    assert sentence in result.stderr


def test_contradicting_numbers_of_speakers_are_refused(folder: Path) -> None:
    result = invoke(main, ["diarize", str(folder / "talk.wav"), "--speakers", "2", "--max-speakers", "3"])
    assert "--speakers is the exact number" in result.stderr


def test_a_wrong_value_is_reported_under_the_name_of_its_flag(folder: Path) -> None:
    result = invoke(main, ["transcribe", str(folder / "talk.wav"), "--model", "demo-tdt", "--format", "text"])
    assert "--format: input should be" in result.stderr
