"""Qwen3-ForcedAligner: units of a text, times that never decrease, and a small random model's folder."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from spool.domain import SpokenWord, Typescript
from spool.errors import InvalidRequest
from tests.worker.models.qwen3_asr.tiny import ADDED, CONFIG, weights, write_folder
from worker.local import align_file
from worker.models import DecodeRequest, QwenAligner, load_model, repair_times, split_units

ALIGNER = CONFIG | {"architectures": ["Qwen3ASRForTokenClassification"], "num_labels": 40}
SOUND = np.random.default_rng(6).normal(0, 0.1, 40_000).astype(np.float32)


@pytest.fixture(scope="module")
def aligner(tmp_path_factory: pytest.TempPathFactory) -> QwenAligner:
    model = load_model(write_folder(tmp_path_factory.mktemp("aligner"), ALIGNER, weights(ALIGNER)))
    assert isinstance(model, QwenAligner)
    return model


@pytest.mark.parametrize(
    ("times", "repaired"),
    [
        ([0, 80, 160], [0, 80, 160]),
        ([80, 800, 160, 240], [80, 80, 160, 240]),
        ([80, 800, 0, 160, 240], [80, 80, 160, 160, 240]),
        ([0, 900, 820, 800, 400, 480, 560], [0, 100, 200, 300, 400, 480, 560]),
        ([400, 80, 160], [80, 80, 160]),
        ([240, 80, 160, 0], [80, 80, 160, 160]),
    ],
)
def test_times_out_of_order_are_repaired(times: list[float], repaired: list[int]) -> None:
    """As transformers' `_fix_timestamps` does."""
    assert repair_times(times) == repaired


def test_units_are_words_without_marks_and_ideographs() -> None:
    assert split_units("l'heure,") == ["l'heure"]
    assert split_units("co-op2") == ["coop2"]
    assert split_units("今天x好") == ["今", "天", "x", "好"]
    assert split_units("--") == []


def test_the_prompt_has_two_places_behind_each_unit(aligner: QwenAligner) -> None:
    tokens = aligner.prompt(3, ["the", "x"])
    names = {number: name for name, number in ADDED.items()}
    written = "".join(names[each] if each in names else aligner.tokenizer.spell([each]) for each in tokens)
    places = "<timestamp><timestamp>"
    assert written == f"<|audio_start|>{'<|audio_pad|>' * 3}<|audio_end|>the{places}x{places}"


def test_a_text_is_placed_in_its_recording(aligner: QwenAligner, tmp_path: Path) -> None:
    words = ["the", "--", "他们", "x"]
    placed = aligner.place(SOUND, words)
    assert placed[1] is None
    times = [time for each in placed if each is not None for time in (each.start, each.end)]
    assert times == sorted(times)
    assert max(times) <= aligner.longest_seconds
    soundfile.write(tmp_path / "a.wav", SOUND, 16_000, subtype="FLOAT")
    text = Typescript(tuple(SpokenWord(word, None) for word in words))
    aligned = align_file(aligner, tmp_path / "a.wav", text)
    assert [word.text for word in aligned.words] == words
    assert aligned.words[0].start == pytest.approx(min(placed[0].start, 2.5) if placed[0] else -1)
    assert aligned.words[1].start == aligned.words[1].end == aligned.words[0].end


def test_it_aligns_alone_and_no_longer_than_its_classes(aligner: QwenAligner, tmp_path: Path) -> None:
    assert aligner.longest_seconds == pytest.approx(3.2)
    with pytest.raises(InvalidRequest, match=r"aligns recordings of at most 3\.2 s, this one has 4\.0 s"):
        aligner.place(np.zeros(64_000, np.float32), ["the"])
    soundfile.write(tmp_path / "long.wav", np.zeros(64_000), 16_000)
    with pytest.raises(InvalidRequest, match=r"long\.wav: .* at most 3\.2 s; cut it"):
        align_file(aligner, tmp_path / "long.wav", Typescript((SpokenWord("the", None),)))
    with pytest.raises(InvalidRequest, match="aligns given words"):
        aligner.prepare(DecodeRequest())
