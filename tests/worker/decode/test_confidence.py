"""Confidences and alternatives on lattices small enough to work them out by hand."""

import math

import pytest

from spool.domain import Hypothesis, Word
from worker.decode import (
    MOST_ARCS,
    Answer,
    Final,
    LatticeWord,
    WordArc,
    WordGraph,
    arc_posteriors,
    confusion_bins,
    lattice_of,
    with_confidence,
)
from worker.models import Tokenizer

FRAME = 0.1


def lattice() -> WordGraph:
    """ "the cat" or "a cat" with 6 and 2 of 10, and "the hat" with 1; the beam dropped the rest."""
    return WordGraph(
        (
            WordArc(0, 1, "the", 0, 2, math.log(0.7)),
            WordArc(0, 2, "a", 0, 2, math.log(0.2)),
            WordArc(1, 3, "cat", 3, 6, math.log(6 / 7)),
            WordArc(1, 3, "hat", 3, 6, math.log(1 / 7)),
            WordArc(2, 3, "cat", 3, 6, 0.0),
        ),
        {3: Final(0.0)},
    )


def word(text: str, start: float, end: float) -> Word:
    return Word(text=text, start=start, end=end, confidence=0.9)


def test_a_word_is_as_probable_as_its_paths_and_what_was_dropped_counts_against_it() -> None:
    words = [word("the", 5.0, 5.2), word("cat", 5.3, 5.6)]

    the, cat = with_confidence(words, arc_posteriors(lattice()), FRAME, 5.0, alternatives=2)

    # At the start 0.9 of all was kept, and 7 of 9 parts of that go through "the".
    assert (the.text, the.start, the.end, the.confidence) == ("the", 5.0, 5.2, 0.7)
    assert [(other.text, other.confidence) for other in the.alternatives] == [("a", 0.2)]
    assert cat.confidence == pytest.approx(8 / 9, abs=1e-3)
    assert [(other.text, other.confidence) for other in cat.alternatives] == [("hat", 0.111)]


@pytest.mark.parametrize(("most", "found"), [(0, []), (1, ["a"]), (9, ["a", "an"])])
def test_alternatives_are_the_most_probable_and_no_more_than_asked(most: int, found: list[str]) -> None:
    arcs = (
        WordArc(0, 1, "the", 0, 2, math.log(0.6)),
        WordArc(0, 1, "an", 0, 2, math.log(0.1)),
        WordArc(0, 1, "a", 0, 2, math.log(0.2)),
        WordArc(0, 1, "thee", 0, 2, math.log(1e-5)),  # 0.000 as it would be printed
    )
    told = with_confidence(
        [word("the", 0.0, 0.2)],
        arc_posteriors(WordGraph(arcs, {1: Final(0.0)})),
        FRAME,
        0.0,
        alternatives=most,
    )
    assert [other.text for other in told[0].alternatives] == found


def test_what_was_heard_counts_for_the_word_it_shares_the_most_time_with() -> None:
    words = [LatticeWord("keep", 0, 4), LatticeWord("the", 4, 5), LatticeWord("the", 6, 8)]
    heard = [
        LatticeWord("keep", 1, 4, 0.75),
        LatticeWord("keep", 5, 6, 0.125),  # a frame later, but near enough to be the same word
        LatticeWord("heap", 0, 4.5, 0.25),
        LatticeWord("the", 5.5, 7, 0.5),
        LatticeWord("", 4, 5, 0.5),
        LatticeWord("light", 9, 10, 0.5),
    ]
    assert confusion_bins(words, heard) == [{"keep": 0.875, "heap": 0.25}, {}, {"the": 0.5}]
    assert confusion_bins([], heard) == []


def test_shares_of_one_text_never_exceed_the_whole() -> None:
    twice = [LatticeWord("no", 0, 2, 0.75), LatticeWord("no", 2, 4, 0.75)]
    assert confusion_bins([LatticeWord("no", 0, 4)], twice) == [{"no": 1.0}]


def test_greedy_keeps_its_own_measure() -> None:
    tokenizer = Tokenizer(["▁the", "▁cat"])
    answer = Answer((Hypothesis((0, 1), -1.0, (0, 4), (2, 2), (0.5, 0.25)),), None)
    words = answer.words(tokenizer, FRAME, 1.0, alternatives=3)
    assert [(told.text, told.start, told.confidence) for told in words] == [
        ("the", 1.0, 0.5),
        ("cat", 1.4, 0.25),
    ]
    assert answer.lattice(5.0, FRAME, 2.0) is None


def test_a_lattice_is_rounded_cut_at_its_end_and_never_too_large() -> None:
    told = lattice_of(arc_posteriors(lattice()), 5.0, FRAME, 0.55)
    assert told.times == (0.0, 0.2, 0.2, 0.55)
    assert [(arc.word, arc.end, arc.acoustic, arc.confidence) for arc in told.arcs[:3]] == [
        ("the", 0.2, -0.357, 0.7),
        ("a", 0.2, -1.609, 0.2),
        ("cat", 0.55, -0.154, 0.667),
    ]
    wide = [WordArc(0, 1, f"w{n}", 0, 2, -n / 1000) for n in range(MOST_ARCS + 5)]
    most = Answer((), arc_posteriors(WordGraph(tuple(wide), {1: Final(0.0)}))).lattice(100.0, FRAME, 1.0)
    assert most is not None
    assert len(most.arcs) == MOST_ARCS
    assert most.prune == pytest.approx((MOST_ARCS - 1) / 1000)
