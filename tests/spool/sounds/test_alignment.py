"""Forced alignment of lines with phones that are known."""

import tracemalloc

import numpy as np

from spool.sounds.alignment import COST_MAX, Line, align_lines, score_lines
from spool.sounds.phones import FRAME_SECONDS
from tests.spool.sounds.sounds import LEXICON, hear

SAID = "the old teacher gave us three reasons"
FRAMES, [(START, END)] = hear([(2.0, SAID)], 8.0)


def line(text: str, first: float = 1.0, last: float = 7.0) -> Line:
    words = tuple(LEXICON.pronounce(word)[0] for word in text.split())
    return Line(FRAMES.frame(first), FRAMES.frame(last), words)


def test_words_are_placed_where_they_are_said_and_score_near_nothing() -> None:
    (found,) = align_lines(FRAMES, [line(SAID)])
    spoken = line(SAID)
    assert -spoken.phones < found.score <= 0
    assert abs(found.words[0].first * FRAME_SECONDS - START) < 0.05
    assert abs(found.words[-1].last * FRAME_SECONDS - END) < 0.15
    starts = [word.first for word in found.words]
    assert starts == sorted(starts)
    assert sum(word.score for word in found.words) >= found.score - 1e-3


def test_a_line_scores_the_same_alone_and_among_others() -> None:
    lines = [
        line(SAID),
        line("thank you for watching", 3.0, 6.5),
        line("nobody expected such a quiet answer"),
        line("why"),
    ]
    together = score_lines(FRAMES, lines)
    alone = [float(score_lines(FRAMES, [each])[0]) for each in lines]
    np.testing.assert_allclose(together, alone, atol=1e-4)
    np.testing.assert_allclose([each.score for each in align_lines(FRAMES, lines)], alone, atol=1e-4)
    assert together[0] > together[2] + 20


def test_a_word_of_unknown_sounds_takes_what_is_in_its_place() -> None:
    known = line(SAID)
    holed = known._replace(words=(*known.words[:2], (), *known.words[3:]))
    (found,) = align_lines(FRAMES, [holed])
    assert found.score >= align_lines(FRAMES, [known])[0].score - 1e-3
    assert found.words[2].first == found.words[2].last
    assert found.words[3].first > found.words[1].last


def test_a_line_that_does_not_fit_scores_as_impossible() -> None:
    short = Line(0, 3, line(SAID).words)
    assert score_lines(FRAMES, [short])[0] == -COST_MAX * short.phones
    empty = Line(5, 5, line(SAID).words)
    assert score_lines(FRAMES, [empty, line(SAID)])[0] == -COST_MAX * empty.phones


def test_lines_far_apart_score_as_alone_and_take_no_memory_between() -> None:
    frames, _ = hear([(2.0, SAID), (3600.0, SAID)], 3610.0)
    words = line(SAID).words
    near, far = Line(50, 350, words), Line(frames.frame(3599.0), frames.frame(3605.0), words)
    tracemalloc.start()
    together = score_lines(frames, [near, far])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(together, [score_lines(frames, [each])[0] for each in (near, far)], atol=1e-4)
    assert min(together) > -near.phones
    assert most < 2_000_000, "an hour of emissions is 30 MB"
