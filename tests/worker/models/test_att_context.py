"""A cache-aware encoder under each of its attention contexts, against NeMo's own answers."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from spool.errors import InvalidRequest
from tests.golden.streaming.golden import GOLDEN, Samples, answers, audio, model
from worker.cli.options import context_of
from worker.engine import check_decoding, decode_utterances
from worker.models import DecodeRequest, SearchOptions, Tokenizer, load_model

UTTERANCES = (1, 2)
ASK = DecodeRequest()


def recordings() -> list[Samples]:
    return [audio(number) for number in UTTERANCES]


CONTEXTS = [tuple(pair) for pair in json.loads(str(answers()["contexts"]))]


def test_the_model_states_its_contexts() -> None:
    assert list(model().capabilities.att_contexts) == CONTEXTS == [(70, 13), (70, 6), (70, 1), (70, 0)]


@pytest.mark.parametrize("context", CONTEXTS)
def test_frames_are_nemos(context: tuple[int, int]) -> None:
    encoded = model().encode(recordings(), context)
    for row, number in enumerate(UTTERANCES):
        expected = answers()[f"enc.{context[1]}.{number}"]
        frames = np.array(encoded.frames[row, : encoded.lengths[row]])
        assert frames.shape == expected.shape
        # The sums of four layers in float32, in another order.
        np.testing.assert_allclose(frames, expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("context", CONTEXTS)
def test_hypotheses_are_nemos(context: tuple[int, int]) -> None:
    greedy = SearchOptions(head="rnnt", att_context=context)
    beam = SearchOptions(decoder="beam", beam=8, nbest=8, head="rnnt", att_context=context)
    for number, path, best in zip(UTTERANCES, decode(greedy), decode(beam), strict=True):
        key = f"greedy.{context[1]}.{number}"
        assert list(path[0].tokens) == answers()[f"{key}.tok"].tolist()
        assert list(path[0].times) == answers()[f"{key}.time"].tolist()
        key = f"beam.{context[1]}.{number}.k8"
        assert len(best) == answers()[f"{key}.n"]
        for rank, hypothesis in enumerate(best):
            count = answers()[f"{key}.len"][rank]
            assert list(hypothesis.tokens) == answers()[f"{key}.tok"][rank][:count].tolist()
            assert list(hypothesis.times) == answers()[f"{key}.time"][rank][:count].tolist()
            assert hypothesis.score == pytest.approx(answers()[f"{key}.score"][rank], abs=2e-3)


def test_the_default_is_the_first() -> None:
    assert decode(SearchOptions()) == decode(SearchOptions(att_context=CONTEXTS[0]))
    assert decode(SearchOptions()) != decode(SearchOptions(att_context=CONTEXTS[-1]))


def decode(options: SearchOptions) -> list[Sequence[Any]]:
    return [
        each.hypotheses
        for each in decode_utterances(model(), recordings(), options, [ASK] * len(recordings()))
    ]


def test_a_context_that_the_model_has_not_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"att_context 70,5: .* was trained for 70,13 70,6 70,1 70,0"):
        check_decoding(model(), SearchOptions(att_context=(70, 5)), ASK)
    plain = load_model(str(GOLDEN.parent / "tdt"))
    with pytest.raises(InvalidRequest, match="no choice of attention contexts"):
        check_decoding(plain, SearchOptions(att_context=(70, 13)), ASK)


def test_the_pair_of_the_command_line() -> None:
    assert context_of(None) is None
    assert context_of("70, 13") == (70, 13)
    for wrong in ("70", "70,13,1", "a,b", ""):
        with pytest.raises(InvalidRequest, match="LEFT,RIGHT"):
            context_of(wrong)


def test_marks_of_an_end_of_utterance_are_no_text() -> None:
    tokenizer = Tokenizer(["▁so", "▁it", "s", "<EOU>", "<EOB>"])
    tokens = [0, 1, 2, 3, 0, 4]
    assert tokenizer.decode(tokens) == "so its so"
    assert [(span.text, span.first, span.last) for span in tokenizer.words(tokens)] == [
        ("so", 0, 1),
        ("its", 1, 3),
        ("so", 4, 5),
    ]
