"""Quality of inference, measured with the small model in processes of its own."""

import json
from pathlib import Path

import pytest
import soundfile

from spool.errors import InvalidRequest
from tests.worker.models.whisper.tiny import make_dims, make_tensors, write_mlx
from worker.diagnostics import ROOT, compare_with, listen_reference, spoken_words, spread

pytestmark = pytest.mark.integration
SAMPLES = ROOT / "samples" / "demo-tdt"


def test_float32_is_no_worse_than_itself() -> None:
    # Given one of the samples with its words
    name, words = next(iter(json.loads((SAMPLES / "words.json").read_text()).items()))
    # When the demo model hears it as this device does by default
    told: list[str] = []
    demo, spoken = str(ROOT / "models" / "demo"), {str(SAMPLES / name): words}
    reference = listen_reference(demo, spoken, told.append)
    quality, outcome = compare_with(reference, demo, "default", spoken, told.append)
    # Then it is as good as the reference, and says how fast it was
    assert (quality.qoi, quality.recordings) == (1.0, 1)
    assert quality.wer == quality.reference_wer
    assert quality.rtfx > 0
    assert outcome.actual.startswith("QoI 100.0 % (1 of 1 recordings no worse)")
    # And each recording is told of as soon as it was heard, first by the reference
    heard = [text.partition(" s of audio")[0] for text in told]
    seconds = f"{seconds_of(SAMPLES / name):.1f}"
    assert heard == [f"{dtype}, 1 of 1: {Path(name).name}, {seconds}" for dtype in ("float32", "default")]


def seconds_of(path: Path) -> float:
    return float(soundfile.info(path).duration)


def test_a_model_that_cannot_be_loaded_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"cannot transcribe in float32: .*UnknownModel"):
        listen_reference(str(tmp_path), [str(SAMPLES / "none.wav")], print)


def test_the_set_of_recordings_has_words_and_files() -> None:
    spoken = spoken_words()
    assert len(spoken) >= 20
    assert all(Path(name).is_file() and words.strip() for name, words in spoken.items())


def test_some_of_the_recordings_are_spread_over_the_set() -> None:
    spoken = {name: name.upper() for name in "abcdefg"}
    assert spread(spoken, 3) == {"a": "A", "c": "C", "e": "E"}
    assert [*spread(spoken, 7)] == [*spread(spoken, 9)] == [*"abcdefg"]


@pytest.mark.long
def test_quantised_weights_are_no_reference(tmp_path: Path) -> None:
    dims = make_dims()
    folder = write_mlx(tmp_path, dims, make_tensors(dims), bits=8)
    spoken = {next(iter(spoken_words())): "words"}
    with pytest.raises(
        InvalidRequest, match="are quantised and cannot be the reference: name with --against"
    ):
        listen_reference(str(folder), spoken, print)
