"""Forced alignment against every path there is, and through a real CTC head."""

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

from worker.decode import align_texts, align_tokens, align_words
from worker.models import NemoModel, load_model

DEMO = Path(__file__).parents[4] / "models" / "demo"


def brute_force(log_probs: np.ndarray, tokens: list[int]) -> float:
    """The best score of all paths that spell the tokens; -inf where there is none."""
    frames, count = log_probs.shape[0], len(tokens)
    best = -np.inf
    for path in product(range(count + 1), repeat=frames):  # `count` is blank
        spelled = [each for each, before in zip(path, (None, *path), strict=False) if each != before]
        if [each for each in spelled if each != count] != list(range(count)):
            continue
        held = [each for each in path if each != count]
        touching = any(tokens[a] == tokens[b] for a, b in pairwise(path) if a != b and count not in (a, b))
        if not touching and held:
            best = max(best, float(sum(log_probs[at, each] for at, each in enumerate(path))))
    return best


@pytest.mark.parametrize("tokens", [[1], [1, 2], [1, 1], [1, 2, 2], [3, 3, 3]])
@pytest.mark.parametrize("frames", [1, 3, 5])
def test_the_path_is_the_best_of_all(tokens: list[int], frames: int) -> None:
    log_probs = np.random.default_rng(frames).normal(size=(frames, len(tokens) + 1)).astype(np.float32)
    expected, ranges = brute_force(log_probs, tokens), align_tokens(log_probs, np.array(tokens))
    if expected == -np.inf:
        assert ranges is None
        return
    assert ranges is not None
    path = np.full(frames, len(tokens))
    for token, (first, last) in enumerate(ranges):
        assert first < last
        path[first:last] = token
    assert sum(log_probs[at, each] for at, each in enumerate(path)) == pytest.approx(expected, abs=1e-4)


def test_numbers_that_are_none_and_no_text() -> None:
    assert align_tokens(np.full((4, 2), np.nan, np.float32), np.array([1])) is None
    assert align_tokens(np.zeros((4, 1), np.float32), np.zeros(0, np.int64)) == []


def test_words_that_cannot_be_spelled_lie_between_their_neighbours() -> None:
    log_probs = np.full((10, 3), -9.0, np.float32)
    log_probs[:, 2] = -0.1
    log_probs[2, 0] = log_probs[7, 1] = 0.0
    spelled = [("☃", ()), ("ab", (5,)), ("☃☃", ()), ("c.", (6,)), ("☃", ())]
    words = align_words(log_probs, spelled, (), 0.5)
    assert words is not None
    assert [(word.text, word.start, word.end) for word in words] == [
        ("☃", 0.0, 1.0),
        ("ab", 1.0, 1.5),
        ("☃☃", 1.5, 3.5),
        ("c.", 3.5, 4.0),
        ("☃", 4.0, 5.0),
    ]


def test_a_text_of_which_nothing_is_spelled_takes_no_longer_than_another() -> None:
    words = align_words(np.zeros((4, 2), np.float32), [("☃", ())] * 30_000 + [("a", (1,))], (), 1.0)
    assert words is not None
    assert (len(words), words[0].end, words[-1].start) == (30_001, 0.0, 0.0)


def test_a_mark_has_no_length() -> None:
    log_probs = np.full((6, 3), -9.0, np.float32)
    log_probs[:, 2] = -0.1
    log_probs[1, 0] = log_probs[4, 1] = 0.0
    words = align_words(log_probs, [("a.", (0, 1))], {1}, 1.0)
    assert words is not None
    assert (words[0].start, words[0].end) == (1.0, 2.0)
    assert [(each.first, each.last) for each in words[0].tokens] == [(1, 2), (2, 2)]


def test_a_texts_words_are_found_where_the_models_own_search_hears_them() -> None:
    from worker.engine import decode_utterances
    from worker.models import DecodeRequest, SearchOptions

    model = load_model(DEMO)
    assert isinstance(model, NemoModel)
    golden = np.load(Path(__file__).parents[3] / "golden" / "audio.npz")
    rows = [golden["audio"][row][: golden["lengths"][row]].astype(np.float32) / 32768 for row in range(3)]
    answers = decode_utterances(model, rows, SearchOptions(head="ctc"), [DecodeRequest()] * 3)
    texts = [model.tokenizer.decode(answer.hypotheses[0].tokens) for answer in answers]
    together = align_texts(model, rows, texts)
    compared = 0
    for row, answer, text, words in zip(rows, answers, texts, together, strict=True):
        assert words is not None
        assert align_texts(model, [row], [text]) == [words]
        heard = answer.words(model.tokenizer, model.info.frame_seconds)
        assert [word.text for word in words] == [word.text for word in heard]
        for aligned, own in zip(words, heard, strict=True):
            assert aligned.start == pytest.approx(own.start, abs=0.25)
            compared += 1
    assert compared > 0
    assert align_texts(model, [rows[0][:2000]], ["seven eight nine one two three four five"]) == [None]
