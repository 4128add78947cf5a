"""Words that were probably invented, and how much of the speech has words."""

from typing import NamedTuple

import numpy as np
import pytest

from worker.speech import doubtful_words, find_invented, measure_coverage


class Timed(NamedTuple):
    start: float
    end: float


def test_a_word_over_which_the_detector_stays_low_is_doubtful() -> None:
    probabilities = np.full(1000, 0.05, np.float32)
    probabilities[500] = 0.1  # 16.000 to 16.032 s
    words = [Timed(1.0, 1.4), Timed(15.9, 16.3), Timed(16.1, 16.2), Timed(16.14, 16.3), Timed(15.5, 15.88)]
    assert doubtful_words(words, probabilities) == [True, False, False, True, True]


def test_words_beyond_the_last_probability_go_by_it() -> None:
    assert doubtful_words([Timed(50.0, 50.2)], np.array([0.0, 0.9], np.float32)) == [False]
    assert doubtful_words([Timed(50.0, 50.2)], np.array([0.9, 0.0], np.float32)) == [True]
    assert doubtful_words([Timed(0.0, 0.2)], np.zeros(0, np.float32)) == [False]


def test_only_a_segment_of_doubtful_words_alone_is_invented() -> None:
    doubtful = [True, True, False, True]
    assert find_invented(doubtful, [range(2), range(2, 4), range(4, 4)]) == [True, False, False]


def test_coverage_counts_speech_near_words() -> None:
    speech = [(0, 32_000), (80_000, 112_000)]  # 0 to 2 s, 5 to 7 s
    assert measure_coverage([Timed(0.4, 1.6)], speech) == pytest.approx(2.0)
    assert measure_coverage([Timed(1.0, 1.1), Timed(1.2, 1.3), Timed(6.5, 6.9)], speech) == pytest.approx(2.3)
    assert measure_coverage([], speech) == 0.0
    assert measure_coverage([Timed(1, 2)], []) == 0.0
