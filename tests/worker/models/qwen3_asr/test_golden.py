"""Qwen3-ASR's answers against those of transformers 5.24.0 on a small model (`tests/golden/make_qwen.py`)."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from worker.decode import read_utterances
from worker.models import DecodeRequest, QwenModel, SearchOptions, load_model

GOLDEN = Path(__file__).parents[3] / "golden" / "qwen3_asr.npz"
# Of the embedded sound: float32 products in another order.
TOLERANCE = 2e-5
# Of a sum over an answer's log-probabilities.
SUM_TOLERANCE = 5e-4
RECORDINGS = range(4)


@cache
def golden() -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> QwenModel:
    folder = tmp_path_factory.mktemp("qwen")
    for name, raw in golden().items():
        if name.startswith("file/"):
            (folder / name.removeprefix("file/")).write_bytes(raw.tobytes())
    loaded = load_model(folder)
    assert isinstance(loaded, QwenModel)
    return loaded


def sounds() -> list[np.ndarray]:
    return [golden()[f"wav.{at}"].astype(np.float32) / 32768 for at in RECORDINGS]


def request(name: str) -> DecodeRequest:
    asked = json.loads(str(golden()["requests"]))[name]
    return DecodeRequest(language=asked.get("language"), prompt=asked.get("prompt", ""), single=True)


def test_the_embedded_sound_is_transformers(model: QwenModel) -> None:
    for at, encoded in enumerate(model.encode(sounds())):
        expected = golden()[f"sound.{at}.auto"]
        assert encoded.shape == expected.shape
        assert np.abs(np.array(encoded) - expected).max() < TOLERANCE


@pytest.mark.parametrize("name", ["auto", "es", "context"])
def test_answers_are_transformers(model: QwenModel, name: str) -> None:
    encoded, asked = model.encode(sounds()), model.prepare(request(name))
    questions = model.ask(encoded, [asked] * len(encoded), [None] * len(encoded))
    answers = read_utterances(model, sounds(), SearchOptions(), [request(name)] * len(RECORDINGS))
    for at, (question, answer) in enumerate(zip(questions, answers, strict=True)):
        assert list(question.prompts[0].tokens) == golden()[f"prompt.{at}.{name}"].tolist()
        assert list(answer.hypotheses[0].tokens) == golden()[f"greedy.{at}.{name}"].tolist()
        said = json.loads(str(golden()[f"said.{at}.{name}"]))
        assert answer.text == said["transcription"]


@pytest.mark.parametrize("name", ["auto", "es", "context"])
def test_lists_are_transformers(model: QwenModel, name: str) -> None:
    options = SearchOptions(decoder="beam", beam=4, nbest=4)
    for at, answer in enumerate(read_utterances(model, sounds(), options, [request(name)] * len(RECORDINGS))):
        expected = json.loads(str(golden()[f"beam.{at}.{name}"]))
        assert [list(each.tokens) for each in answer.hypotheses] == expected
        sums = np.array([each.score for each in answer.hypotheses])
        assert np.abs(sums - golden()[f"sums.{at}.{name}"]).max() < SUM_TOLERANCE


def test_confidences_are_those_of_forcing_the_answer(model: QwenModel) -> None:
    sound = sounds()[2]
    answer = read_utterances(model, [sound], SearchOptions(), [request("auto")])[0]
    encoded = model.encode([sound])
    prompt = model.ask(encoded, [model.prepare(request("auto"))], [None])[0].prompts[0].tokens
    tokens = answer.hypotheses[0].tokens
    forced = np.exp(model.head.log_probabilities(encoded[0], prompt, [tokens])[0])
    first = model.opening(tokens).length
    assert first > 0
    assert answer.spoken is not None
    assert all(word.text == word.text.strip() for word in answer.spoken)
    assert np.abs(forced[first:] - np.array(answer.hypotheses[0].confidences)[first:]).max() < 1e-4
