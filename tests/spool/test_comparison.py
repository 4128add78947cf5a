"""Two transcripts of one recording, compared."""

from ops.testbed.running_api import transcript_of
from spool.comparison import compare
from spool.domain import Transcript


def spoken(text: str, channel: int = 0) -> Transcript:
    record = transcript_of("job", tuple(text.split()))
    words = tuple(word.model_copy(update={"channel": channel}) for word in record.words)
    return record.model_copy(update={"words": words})


def texts(base: Transcript, other: Transcript) -> list[tuple[str, str]]:
    return [
        (" ".join(w.text for w in each.base), " ".join(w.text for w in each.other))
        for each in compare(base, other).differences
    ]


def test_case_and_punctuation_are_no_difference() -> None:
    compared = compare(spoken("Keep the light, Ada!"), spoken("keep the light ada"))
    assert (compared.errors.edits, compared.errors.words, compared.differences) == (0, 4, ())


def test_each_stretch_is_one_difference() -> None:
    base, other = spoken("he kept the old light at the sea"), spoken("he kept a cold light the sea again")
    assert texts(base, other) == [("the old", "a cold"), ("at", ""), ("", "again")]
    assert compare(base, other).errors.edits == 4


def test_a_word_of_several_is_one_word_of_its_transcript() -> None:
    assert texts(spoken("a twenty-one gun"), spoken("a twenty two gun")) == [("twenty-one", "two")]


def test_channels_are_compared_together_where_one_side_mixed_them() -> None:
    assert texts(spoken("keep the light", channel=1), spoken("keep the light")) == []


def test_nothing_against_something() -> None:
    empty = spoken("x").model_copy(update={"words": ()})
    assert texts(empty, spoken("keep")) == [("", "keep")]
    assert texts(spoken("keep"), empty) == [("keep", "")]
    assert compare(empty, empty).errors.rate == 0
