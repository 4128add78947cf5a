"""Which speaker said each word."""

from typing import NamedTuple

import numpy as np
import pytest

from worker.diarization import SpeakerActivity, SpeakerSegment, active_segments, label_words


class Timed(NamedTuple):
    start: float
    end: float


def speakers(words: list[Timed], segments: list[SpeakerSegment]) -> list[int | None]:
    return [None if word is None else word.speaker for word in label_words(words, segments)[0]]


def test_most_overlap_wins_and_numbers_go_by_arrival_in_the_words() -> None:
    segments = [SpeakerSegment(0, 0.2, 5), SpeakerSegment(1, 2, 3), SpeakerSegment(2, 4, 5)]
    words = [Timed(1.0, 1.5), Timed(1.7, 2.2), Timed(1.9, 2.5), Timed(3, 3.5)]
    assert speakers(words, segments) == [0, 0, 1, 1]
    assert [round(word.sureness, 2) for word in label_words(words, segments)[0] if word] == [1, 0.6, 0.83, 1]


def test_a_word_between_segments_goes_to_the_nearest() -> None:
    segments = [SpeakerSegment(0, 1, 0), SpeakerSegment(3, 4, 1), SpeakerSegment(9, 10, 0)]
    words = [Timed(0, 0.5), Timed(1.2, 1.4), Timed(2.4, 2.8), Timed(5, 5.5), Timed(20, 21)]
    assert speakers(words, segments) == [0, 0, 1, 1, 0]
    assert speakers(words, []) == [None] * 5
    assert speakers([], segments) == []


def test_a_short_unsure_word_amid_another_speaker_s_is_taken_over() -> None:
    segments = [SpeakerSegment(0, 2.1, 0), SpeakerSegment(2.1, 2.2, 1), SpeakerSegment(2.2, 5, 0)]
    words = [Timed(1, 1.5), Timed(2.06, 2.19), Timed(3, 3.5)]
    taken = label_words(words, segments)[0][1]
    assert taken is not None
    assert (taken.speaker, taken.raw) == (1, 1)  # sure enough: 0.69
    taken = label_words([words[0], Timed(2.02, 2.19), words[2]], segments)[0][1]
    assert taken is not None
    assert (taken.speaker, taken.raw) == (0, 1)
    assert taken.sureness < 0.6


def test_overlapping_segments_mark_the_word() -> None:
    segments = [SpeakerSegment(0, 5, 0), SpeakerSegment(2, 3, 1)]
    marks = [word.overlapped for word in label_words([Timed(0, 1), Timed(2.1, 2.6)], segments)[0] if word]
    assert marks == [False, True]


def test_probabilities_decide_where_the_model_tells_them() -> None:
    """Means over the word's frames, raised to 0.01, to one part in 255."""
    levels = np.zeros((50, 3), np.float32)
    levels[:25, 0], levels[20:, 2], levels[40:, 1] = 0.8, 0.6, 0.55
    activity = SpeakerActivity.of(levels, 0.08)
    segments = active_segments(levels, 0.08)
    words = [Timed(0.1, 0.5), Timed(1.5, 2.1), Timed(1.9, 2.3), Timed(2.5, 2.5), Timed(3.3, 3.9)]
    given = [word for word in label_words(words, segments, activity)[0] if word]
    assert [word.speaker for word in given] == [0, 0, 1, 1, 1]
    assert [round(word.sureness, 3) for word in given] == [0.976, 0.566, 0.684, 0.968, 0.518]
    assert [word.overlapped for word in given] == [False, False, False, False, True]
    assert SpeakerActivity.unpack(activity.pack()).mean(1.5, 2.1) == pytest.approx(
        activity.mean(1.5, 2.1), abs=0
    )


def test_a_word_where_nobody_is_heard_goes_to_the_nearest_segment() -> None:
    levels = np.zeros((100, 2), np.float32)
    levels[50:60, 1], levels[:10, 0] = 0.9, 0.9
    given = label_words(
        [Timed(0, 0.4), Timed(3.6, 3.8)], active_segments(levels, 0.08), SpeakerActivity.of(levels, 0.08)
    )[0]
    assert [word and (word.speaker, round(word.sureness, 2)) for word in given] == [(0, 0.99), (1, 0.0)]


def test_many_words_and_segments_go_as_by_looking_at_all() -> None:
    chance = np.random.default_rng(3)
    starts = np.cumsum(chance.uniform(0, 2, 200))
    segments = [SpeakerSegment(at, at + chance.uniform(0.1, 5), int(chance.integers(4))) for at in starts]
    words = [Timed(at, at + 0.4) for at in np.sort(chance.uniform(-2, 220, 300))]
    for word, given in zip(words, label_words(words, segments)[0], strict=True):
        shares = [0.0] * 4
        for segment in segments:
            overlap = min(word.end, segment.end) - max(word.start, segment.start)
            shares[segment.speaker] += max(overlap, 0.0)
        assert given is not None
        assert abs(given.sureness - (max(shares) / sum(shares) if any(shares) else 0.0)) < 1e-9
