"""Segments are fit to read, tile the words, and never cross channels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spool.domain import Word
from worker.segmentation import SegmentOptions, ends_sentence, segments_of


def words_of(
    text: str, step: float = 0.4, length: float = 0.3, start: float = 0.0, channel: int = 0
) -> list[Word]:
    return [
        Word(text=part, start=start + i * step, end=start + i * step + length, confidence=1, channel=channel)
        for i, part in enumerate(text.split())
    ]


def texts(words: list[Word]) -> list[str]:
    return [segment.text for segment in segments_of(words)]


def test_no_words_no_segments() -> None:
    assert segments_of([]) == []


def test_a_segment_ends_with_its_sentence() -> None:
    assert texts(words_of("It rained. Did it? Yes!")) == ["It rained.", "Did it?", "Yes!"]


@pytest.mark.parametrize(
    "text", ["Mr. Smith came.", "J. S. Bach came.", "She met Dr. No here.", "pi is 3.14 or so"]
)
def test_abbreviations_end_no_sentence(text: str) -> None:
    assert texts(words_of(text)) == [text]


@pytest.mark.parametrize(
    ("text", "ends"),
    [("done.", True), ('done."', True), ("I.", True), ("done", False), ("Mrs.", False), ("so,", False)],
)
def test_what_ends_a_sentence(text: str, ends: bool) -> None:
    assert ends_sentence(text) is ends


def test_a_segment_ends_at_a_pause() -> None:
    words = words_of("one two") + words_of("three four", start=1.7)
    assert texts(words) == ["one two", "three four"]
    assert texts(words_of("one two") + words_of("three", start=1.4)) == ["one two three"]


def test_long_speech_is_divided_at_a_comma_or_the_longest_pause() -> None:
    plain = words_of(" ".join(["word"] * 60))
    assert all(segment.end - segment.start <= 15.0 for segment in segments_of(plain))
    comma = words_of(" ".join(["word"] * 28 + ["pause,"] + ["word"] * 20))
    assert texts(comma)[0].endswith("pause,")
    late = [word.model_copy(update={"start": word.start + 0.3, "end": word.end + 0.3}) for word in plain[30:]]
    assert len(texts(plain[:30] + late)[0].split()) == 30


def test_facts_of_a_segment() -> None:
    words = words_of("a b.", channel=0) + words_of("c d.", start=0.1, channel=1)
    first, second = segments_of(words)
    assert (first.first_word, first.last_word, first.channel, first.start, first.end) == (0, 1, 0, 0.0, 0.7)
    assert (second.first_word, second.last_word, second.channel, second.text) == (2, 3, 1, "c d.")


def test_segments_of_a_conversation_come_by_time() -> None:
    words = words_of("early.") + words_of("late.", start=9) + words_of("between.", start=5, channel=1)
    assert texts(words) == ["early.", "between.", "late."]


def test_words_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="ordered by channel"):
        segments_of(words_of("b", channel=1) + words_of("a", channel=0))


@given(
    st.lists(
        st.tuples(
            st.text("ab.,? ", min_size=1, max_size=12), st.floats(0, 3), st.floats(0, 20), st.integers(0, 2)
        ),
        max_size=80,
    )
)
def test_segments_tile_the_words(parts: list[tuple[str, float, float, int]]) -> None:
    words = []
    for channel in range(3):
        at = 0.0
        for text, gap, length, where in parts:
            if where == channel:
                words.append(
                    Word(text=text, start=at + gap, end=at + gap + length, confidence=1, channel=channel)
                )
                at += gap + length
    segments = segments_of(words)
    covered = sorted((segment.first_word, segment.last_word) for segment in segments)
    assert [index for first, last in covered for index in range(first, last + 1)] == list(range(len(words)))
    options = SegmentOptions()
    for segment in segments:
        inside = words[segment.first_word : segment.last_word + 1]
        assert {word.channel for word in inside} == {segment.channel}
        assert (segment.start, segment.end) == (inside[0].start, inside[-1].end)
        if len(inside) > 1:
            assert segment.end - segment.start <= options.max_seconds
            assert len(segment.text) <= options.max_characters
    assert [segment.start for segment in segments] == sorted(segment.start for segment in segments)
