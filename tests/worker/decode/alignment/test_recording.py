"""Matching words and cutting a text at anchors, against plain programming and known places."""

import itertools
import random

import pytest

from spool.domain import Word
from spool.wer import edit_distance
from worker.decode import find_cuts, match_words
from worker.decode.alignment import matching


@pytest.mark.parametrize("cells", [1, 30, 1_000_000])
def test_matches_are_those_of_a_least_edits_alignment_however_it_is_divided(
    cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "_TABLE_CELLS", cells)
    chance = random.Random(5)
    for _ in range(60):
        left = chance.choices("abcd", k=chance.randrange(14))
        right = chance.choices("abcd", k=chance.randrange(14))
        pairs = match_words(left, right)
        assert all(left[row] == right[column] for row, column in pairs)
        # What lies between two matches costs the longer side: the sum is the distance.
        cost, bounds = 0, [(-1, -1), *pairs, (len(left), len(right))]
        for (row, column), (next_row, next_column) in itertools.pairwise(bounds):
            assert next_row > row or next_column > column
            cost += max(next_row - row, next_column - column) - 1
        assert cost == edit_distance(left, right)


def test_a_long_text_is_matched_in_little_memory() -> None:
    chance = random.Random(7)
    text = [f"w{chance.randrange(300)}" for _ in range(2500)]
    heard = [word for word in text if chance.random() > 0.1]
    pairs = match_words(text, heard)
    assert len(pairs) == len(heard)


def heard_at(tenths: int) -> Word:
    return Word(text=f"w{tenths}", start=float(tenths), end=tenths + 0.4, confidence=1.0)


def test_the_text_is_cut_within_runs_of_matches_and_not_too_often() -> None:
    words = [f"w{at}" for at in range(100)]
    heard = [heard_at(at) for at in range(100) if not 40 <= at < 60]
    cuts = find_cuts(words, heard)
    assert all(second == pytest.approx(word - 0.3) for word, second in cuts)
    assert not any(40 < word < 62 for word, _ in cuts)
    assert [word for word, _ in cuts] == [21, 62, 82]
    assert find_cuts(words, [heard_at(at) for at in range(0, 100, 2)]) == []


def test_whoever_waits_may_stop_the_matching() -> None:
    def stop() -> None:
        raise TimeoutError

    words = [f"w{at}" for at in range(3000)]
    with pytest.raises(TimeoutError):
        match_words(words, words[::-1], stop)
