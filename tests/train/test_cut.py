"""Words are cut where they are."""

import numpy as np

from ops.train.data.cut import aligned, pauses, words_cut
from ops.train.data.features import MELS

BLANK = 3


def scores(path: list[int]) -> np.ndarray:
    """Log-probabilities in which that path stands out."""
    scores = np.full((len(path), BLANK + 1), np.log(0.01), np.float32)
    scores[np.arange(len(path)), path] = np.log(0.97)
    return scores


def test_tokens_are_placed_where_they_are_first_out() -> None:
    path = [BLANK, 0, 0, BLANK, 1, BLANK, 1, 2, BLANK]
    assert aligned(scores(path), [0, 1, 1, 2]) == [1, 4, 6, 7]


def test_repeated_tokens_need_a_blank_between_them() -> None:
    assert aligned(scores([0, 0, 0]), [0, 0]) == [0, 2]


def test_too_few_frames_for_the_tokens_place_nothing() -> None:
    assert aligned(scores([0, 1]), [0, 1, 2]) is None


def test_words_are_parted_at_the_quietest_frame_between_them() -> None:
    mels = np.zeros((200, MELS), np.float32)
    mels[90] = -5.0
    first, second = words_cut(mels, [8, 10, 14], [0, 2])
    assert len(first) == 90 - 34
    assert len(second) == 14 * 8 + 40 - 90


def test_a_sentence_has_a_pause_where_it_is_quiet_for_long_enough() -> None:
    mels = np.zeros((200, MELS), np.float32)
    mels[85:97] = -5.0  # between the first word and the second
    mels[91] = -5.5
    mels[130:134] = -5.0  # a stop within speech, between the second and the third
    assert pauses(mels, [8, 10, 14, 19], [0, 2, 3]) == [(1, 91)]
