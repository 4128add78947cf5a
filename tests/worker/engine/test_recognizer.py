"""The model and its search as the engine runs them: an utterance whose output is no number fails alone."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ops.testbed.nemo_model import load_nemo
from spool.domain import Recognition
from worker.engine import Failure, ModelRecognizer
from worker.models import DecodeRequest, EncodedFrames, NemoModel, SearchOptions

GOLDEN = Path(__file__).parents[2] / "golden"
NOTHING = [DecodeRequest()] * 3


@pytest.fixture(scope="module")
def model() -> NemoModel:
    return load_nemo(GOLDEN / "hybrid", mx.float32)


def speech() -> list[np.ndarray]:
    with np.load(GOLDEN / "audio.npz") as file:
        rows = zip(file["audio"], file["lengths"], strict=True)
        return [(row[:length] / 32768).astype(np.float32) for row, length in rows][:3]


@pytest.mark.parametrize("head", ["tdt", "ctc"])
@pytest.mark.parametrize("decoder", ["greedy", "beam"])
def test_an_utterance_that_is_not_a_number_fails_alone(
    model: NemoModel, monkeypatch: pytest.MonkeyPatch, head: str, decoder: str
) -> None:
    options = SearchOptions(decoder=decoder, beam=4, nbest=1, head=head)
    recognizer = ModelRecognizer(model)
    clean = recognizer.recognize(speech(), [each.model_copy(update={"search": options}) for each in NOTHING])
    encode = model.encode

    def overflow(utterances: list[np.ndarray]) -> EncodedFrames:
        encoded = encode(utterances)
        rows = mx.arange(len(utterances))[:, None, None] == 1
        return EncodedFrames(mx.where(rows, mx.nan, encoded.frames), encoded.lengths)

    monkeypatch.setattr(model, "encode", overflow)
    first, second, third = recognizer.recognize(
        speech(), [each.model_copy(update={"search": options}) for each in NOTHING]
    )

    assert isinstance(second, Failure)
    assert "not finite" in second.error.message
    assert not second.error.retryable
    assert isinstance(clean[1], Recognition)
    assert second.frames == clean[1].frames
    for one, other in ((first, clean[0]), (third, clean[2])):
        assert isinstance(one, Recognition)
        assert isinstance(other, Recognition)
        assert [word.text for word in one.words] == [word.text for word in other.words]
        assert one.hypotheses[0].tokens == other.hypotheses[0].tokens
