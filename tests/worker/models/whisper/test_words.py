"""Words with seconds, and the cure of those that swallowed a pause."""

import numpy as np
import pytest

from worker.models import TimedWord, TokenSpan, TokenTimes, join_unspaced, time_words, without_pauses


def make(texts: list[str], starts: list[float]) -> list[TimedWord]:
    spans = [TokenSpan(text, at, at + 1) for at, text in enumerate(texts)]
    shares = np.linspace(0.5, 1.0, len(texts)).astype(np.float32)
    return time_words(spans, TokenTimes(np.array(starts, np.float32), shares))


def times(words: list[TimedWord]) -> list[tuple[str, float, float]]:
    return [(word.text, round(word.start, 3), round(word.end, 3)) for word in words]


def test_words_end_where_the_next_begins() -> None:
    words = make([" one", " two", " three"], [0.0, 0.3, 0.6, 1.0])
    assert times(words) == [(" one", 0.0, 0.3), (" two", 0.3, 0.6), (" three", 0.6, 1.0)]
    assert [word.probability for word in words] == pytest.approx([0.5, 0.75, 1.0])


def test_a_mark_does_not_last_through_the_pause_behind_it() -> None:
    words = make([" one", ".", " two", " three"], [0.0, 0.3, 4.0, 4.3, 4.6])
    assert times(words) == [(" one.", 0.0, 0.9), (" two", 4.0, 4.3), (" three", 4.3, 4.6)]


def test_a_word_behind_a_mark_does_not_begin_in_the_pause() -> None:
    words = make([" one", ".", " two", " three"], [0.0, 0.3, 0.4, 4.3, 4.6])
    assert times(words) == [(" one.", 0.0, 0.4), (" two", 3.7, 4.3), (" three", 4.3, 4.6)]


def test_the_first_word_does_not_begin_in_the_pause_before_it() -> None:
    words = make([" one", " two", " three"], [0.0, 5.0, 5.3, 5.6])
    assert times(words)[0] == (" one", 4.4, 5.0)
    words = make([" one", " two", " three", " four", " five"], [0.0, 0.1, 5.0, 5.3, 5.6, 5.9])
    assert words[0].start >= 0.0
    assert [word.start for word in words] == sorted(word.start for word in words)


def test_nothing_and_no_length() -> None:
    assert time_words([], TokenTimes(np.zeros(1, np.float32), np.zeros(0, np.float32))) == []
    assert times(make([" one", " two"], [1.0, 1.0, 1.0])) == [(" one", 1.0, 1.0), (" two", 1.0, 1.0)]


@pytest.mark.parametrize(
    ("pauses", "start", "end"),
    [
        ([], 1.0, 2.0),
        ([(0.5, 1.0), (2.0, 3.0)], 1.0, 2.0),  # beside it
        ([(0.5, 1.3)], 1.3, 2.0),  # it begins in one
        ([(1.8, 2.5)], 1.0, 1.8),  # it ends in one
        ([(0.5, 1.3), (1.8, 2.5)], 1.3, 1.8),
        ([(1.1, 1.5)], 1.5, 2.0),  # one within it: the longer side
        ([(1.6, 1.9)], 1.0, 1.6),
        ([(1.4, 1.6)], 1.6, 2.0),  # equals: the later
        ([(0.5, 1.1), (1.2, 1.5), (1.7, 2.2)], 1.5, 1.7),
        ([(0.5, 2.5)], 1.0, 2.0),  # nothing else is known of it
    ],
)
def test_no_word_reaches_into_a_pause(pauses: list[tuple[float, float]], start: float, end: float) -> None:
    (word,) = without_pauses([TimedWord(" one", 1.0, 2.0, 0.5)], pauses)
    assert (word.start, word.end) == (start, end)


def test_a_piece_without_a_space_before_it_belongs_to_the_word_before() -> None:
    words = make([" je", " m", "'appelle", " 92", "-go"], [0.0, 0.3, 0.6, 1.0, 1.3, 1.6])
    assert times(join_unspaced(words)) == [(" je", 0.0, 0.3), (" m'appelle", 0.3, 1.0), (" 92-go", 1.0, 1.6)]
    assert [word.probability for word in join_unspaced(words)] == pytest.approx([0.5, 0.625, 0.875])


def test_a_text_that_begins_without_a_space_keeps_its_first_word() -> None:
    assert [word.text for word in join_unspaced(make(["one", " two"], [0.0, 0.3, 0.6]))] == ["one", " two"]
