"""Word error rate: what counts as a word, as an edit, and over many utterances."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool import word_alignment
from spool.wer import WordErrors, edit_distance, normal_words, total_errors, word_errors

WORDS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  \n ", []),
        ("Keep the LIGHT.", ["keep", "the", "light"]),
        ("don't, won\u2019t", ["don't", "won't"]),
        ("'tis 'quoted'", ["tis", "quoted"]),
        ("well-known; twenty\u2014one", ["well", "known", "twenty", "one"]),
        ("na\u00efve caf\u00e9 42", ["na\u00efve", "caf\u00e9", "42"]),
        ("cafe\u0301", ["caf\u00e9"]),
        ("' ...", []),
    ],
)
def test_what_counts_as_a_word(text: str, words: list[str]) -> None:
    assert normal_words(text) == words


@pytest.mark.parametrize(
    ("reference", "hypothesis", "edits", "words"),
    [
        ("the cat sat", "the cat sat", 0, 3),
        ("the cat sat", "The cat, sat!", 0, 3),
        ("the cat sat", "the bat sat", 1, 3),
        ("the cat sat", "the sat", 1, 3),
        ("the cat sat", "the big cat sat", 1, 3),
        ("the cat sat", "", 3, 3),
        ("", "hello", 1, 0),
        ("a b c d", "b c d e", 2, 4),
    ],
)
def test_edits_of_one_utterance(reference: str, hypothesis: str, edits: int, words: int) -> None:
    assert word_errors(reference, hypothesis) == WordErrors(edits, words)


def test_many_utterances_are_summed_before_the_division() -> None:
    # Given one short utterance all wrong and one long one all right
    short = word_errors("no", "yes")
    long = word_errors("a b c d e f g h i", "a b c d e f g h i")

    # Then the rate is 1 of 10 words, not the mean of 1 and 0
    assert total_errors([short, long]).rate == pytest.approx(0.1)


def test_rate_without_reference_words() -> None:
    assert total_errors([]).rate == 0.0
    assert math.isinf(word_errors("", "hello").rate)


@given(WORDS, WORDS, WORDS)
def test_edit_distance_is_a_metric(one: list[str], two: list[str], three: list[str]) -> None:
    assert (edit_distance(one, two) == 0) == (one == two)
    assert edit_distance(one, two) == edit_distance(two, one)
    assert edit_distance(one, three) <= edit_distance(one, two) + edit_distance(two, three)
    assert abs(len(one) - len(two)) <= edit_distance(one, two) <= max(len(one), len(two))


@given(st.lists(st.sampled_from("abc"), max_size=16), st.lists(st.sampled_from("abc"), max_size=16))
def test_an_alignment_has_the_fewest_edits(one: list[str], other: list[str]) -> None:
    for small in (word_alignment._SMALL, 4):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(word_alignment, "_SMALL", small)
            pairs = word_alignment.align_words(one, other)
        assert pairs == sorted(set(pairs))
        assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)
        substituted = sum(one[a] != other[b] for a, b in pairs)
        assert len(one) + len(other) - 2 * len(pairs) + substituted == edit_distance(one, other)
