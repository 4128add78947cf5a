"""Words from tokens: grouping, times, confidence."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spool.domain import Hypothesis
from worker.decode import words_of
from worker.models import Tokenizer

GOLDEN = Path(__file__).parents[2] / "golden" / "tdt" / "tokenizer.model"
PIECES = Tokenizer(["▁the", "▁ca", "t", "s", "▁", "<0xC3>", "<0xA9>", "'", "▁a"])


def hypothesis(
    tokens: list[int], times: list[int], durations: list[int], confidences: list[float] | None = None
) -> Hypothesis:
    return Hypothesis(
        tuple(tokens), -1.0, tuple(times), tuple(durations), tuple(confidences or [0.5] * len(tokens))
    )


def test_pieces_join_into_words_with_their_times() -> None:
    found = words_of(hypothesis([0, 1, 2, 3], [3, 6, 8, 9], [2, 2, 0, 4], [0.9, 0.8, 0.3, 0.7]), PIECES, 0.08)

    assert [word.text for word in found] == ["the", "cats"]
    assert [(word.start, word.end) for word in found] == [(0.24, 0.4), (0.48, 1.04)]
    assert [word.confidence for word in found] == [0.9, 0.3]


def test_a_token_without_duration_lasts_one_frame() -> None:
    assert words_of(hypothesis([0], [5], [0]), PIECES, 0.08)[0].end == pytest.approx(0.48)


def test_a_word_ends_before_the_next_one_starts() -> None:
    found = words_of(hypothesis([0, 8], [5, 6], [4, 1]), PIECES, 0.08)
    assert [(word.start, word.end) for word in found] == [(0.4, 0.48), (0.48, 0.56)]


def test_the_offset_moves_every_time() -> None:
    found = words_of(hypothesis([0], [5], [1]), PIECES, 0.08, offset_seconds=3600.5)
    assert (found[0].start, found[0].end) == (3600.9, 3600.98)


def test_bytes_lone_marks_and_a_first_piece_without_mark() -> None:
    found = words_of(hypothesis([2, 4, 1, 5, 6, 4, 4, 0], list(range(8)), [1] * 8), PIECES, 0.08)
    assert [word.text for word in found] == ["t", "caé", "the"]
    assert found[1].start == pytest.approx(0.08 * 2)


def test_unknown_pieces_are_words_of_their_own() -> None:
    tokenizer = Tokenizer.from_file(GOLDEN)
    unknown = tokenizer.pieces.index("<unk>")
    letter = next(i for i, piece in enumerate(tokenizer.pieces) if len(piece) == 1 and piece.isalpha())

    found = words_of(hypothesis([letter, unknown, letter], [0, 1, 2], [1, 1, 1]), tokenizer, 0.08)

    assert [word.text for word in found] == tokenizer.decode([letter, unknown, letter]).split()
    assert len(found) == 3


def test_no_tokens_no_words_and_no_confidence_is_zero() -> None:
    assert words_of(hypothesis([], [], []), PIECES, 0.08) == []
    bare = Hypothesis((0,), 0.0, (1,), (1,))
    assert words_of(bare, PIECES, 0.08)[0].confidence == 0.0


@settings(deadline=None, max_examples=120)
@given(data=st.data())
def test_words_are_the_tokenizers_text_in_time_order(data: st.DataObject) -> None:
    tokenizer = Tokenizer.from_file(GOLDEN)
    count = data.draw(st.integers(0, 30))
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    tokens = draw.integers(0, tokenizer.vocabulary_size, count).tolist()
    durations = draw.integers(0, 5, count).tolist()
    times = np.cumsum([0, *durations])[:count].tolist()

    words = words_of(hypothesis(tokens, times, durations), tokenizer, 0.08)

    assert " ".join(word.text for word in words).split() == tokenizer.decode(tokens).split()
    edges = [time for word in words for time in (word.start, word.end)]
    assert edges == sorted(edges)
