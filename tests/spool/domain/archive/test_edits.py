from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.testbed.running_api import transcript_of
from spool.domain import Edit, Segment, Speaker, Transcript, apply_edits, check_edit, find_standing_edits
from spool.domain.archive.edits import text_in
from spool.errors import InvalidRequest

WORDS = ("keep", "the", "light", "burning", "all", "night")
NOW = datetime(2026, 11, 23, tzinfo=UTC)


def edit(revision: int, first: int, last: int, text: str | None, **more: object) -> Edit:
    return Edit(revision, first, last, text, more.pop("speaker", None), "Bo", NOW, **more)  # type: ignore[arg-type]


@pytest.fixture
def record() -> Transcript:
    """Six words, in two segments of three."""
    record = transcript_of("job_1", WORDS)
    segments = tuple(
        Segment(
            start=record.words[at].start,
            end=record.words[at + 2].end,
            text=" ".join(WORDS[at : at + 3]),
            channel=0,
            first_word=at,
            last_word=at + 2,
        )
        for at in (0, 3)
    )
    return record.model_copy(update={"segments": segments})


def texts(transcript: Transcript) -> list[str]:
    return [word.text for word in transcript.words]


def assert_whole(transcript: Transcript) -> None:
    """Segments and text say what the words say, and no word is outside of time."""
    assert transcript.text == " ".join(texts(transcript))
    at = 0
    for segment in transcript.segments:
        assert segment.first_word == at
        assert segment.text == " ".join(texts(transcript)[at : segment.last_word + 1])
        at = segment.last_word + 1
    assert at == len(transcript.words)
    for word in transcript.words:
        assert word.start < word.end
    starts = [word.start for word in transcript.words]
    assert starts == sorted(starts)


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("keep the night", ["night"]),
        ("Keep the light,", ["Keep", "light,"]),
        ("keep the old light", ["old"]),
        ("please keep the light", ["please"]),
        ("keep light", []),
        ("lose every lamp at sea", ["lose", "every", "lamp", "at", "sea"]),
        ("keep the light house on", ["house", "on"]),
        ("light", []),
    ],
)
def test_what_stays_keeps_its_time_and_what_is_new_shares_it(
    record: Transcript, text: str, corrected: list[str]
) -> None:
    after = apply_edits(record, [edit(1, 0, 2, text)])
    assert texts(after) == [*text.split(), "burning", "all", "night"]
    assert [word.text for word in after.words if word.corrected] == corrected
    assert_whole(after)
    assert (after.words[0].start, after.segments[0].start) == (
        record.words[WORDS.index("light") if text == "light" else 0].start,
        record.segments[0].start,
    )
    (correction,) = after.corrections
    assert (correction.original, correction.text, correction.author) == ("keep the light", text, "Bo")
    assert after.words[-3:] == record.words[-3:]


def test_a_segment_without_words_is_none(record: Transcript) -> None:
    after = apply_edits(record, [edit(1, 3, 5, "")])
    assert texts(after) == ["keep", "the", "light"]
    assert len(after.segments) == 1
    assert_whole(after)


def test_a_range_over_two_segments_leaves_each_its_words(record: Transcript) -> None:
    after = apply_edits(record, [edit(1, 1, 4, "a lamp burning on all")])
    assert [segment.text for segment in after.segments] == ["keep a lamp", "burning on all night"]
    assert_whole(after)


def test_the_last_edit_stands_and_an_undone_one_does_not(record: Transcript) -> None:
    first, second = edit(1, 0, 2, "one"), edit(2, 0, 2, "two words")
    assert texts(apply_edits(record, [first, second]))[0:2] == ["two", "words"]
    undone = [first, second, edit(3, 0, 2, None, undoes=2)]
    assert [each.revision for each in find_standing_edits(undone)] == [1]
    assert texts(apply_edits(record, undone))[0] == "one"
    everything = [*undone, edit(4, 0, 5, "all gone")]
    assert texts(apply_edits(record, everything)) == ["all", "gone"]
    assert apply_edits(record, [first, edit(2, 0, 2, None, undoes=1)]) == record


def test_a_speaker_is_corrected_without_a_word(record: Transcript) -> None:
    speakers = tuple(Speaker(label=f"speaker_{n}", talk_seconds=1, words=3) for n in range(2))
    told_apart = record.model_copy(update={"speakers": speakers})
    after = apply_edits(told_apart, [edit(1, 3, 5, None, speaker="speaker_1")])
    assert [segment.speaker for segment in after.segments] == [None, "speaker_1"]
    assert [speaker.words for speaker in after.speakers] == [0, 3]
    assert texts(after) == list(WORDS)
    check_edit(told_apart, [], edit(1, 0, 0, None, speaker="speaker_1"))
    with pytest.raises(InvalidRequest, match="speaker_7"):
        check_edit(told_apart, [], edit(1, 0, 0, None, speaker="speaker_7"))


def test_words_keep_a_corrected_speaker_when_their_text_is_corrected_later(record: Transcript) -> None:
    speakers = tuple(Speaker(label=f"speaker_{n}", talk_seconds=1, words=3) for n in range(2))
    told_apart = record.model_copy(update={"speakers": speakers})
    moved = edit(1, 3, 5, "burning all night", speaker="speaker_1")
    later = [moved, edit(2, 3, 5, "burning all nights")]
    after = apply_edits(told_apart, later)
    assert texts(after)[3:] == ["burning", "all", "nights"]
    assert [segment.speaker for segment in after.segments] == [None, "speaker_1"]
    wider = apply_edits(told_apart, [*later, edit(3, 2, 5, "lights burnt")])
    assert [word.speaker for word in wider.words] == [None, None, None, "speaker_1"]
    back = apply_edits(told_apart, [*later, edit(3, 3, 5, None, undoes=2), edit(4, 3, 5, None, undoes=1)])
    assert back == told_apart


def test_the_text_of_a_range_has_the_corrections_in_it(record: Transcript) -> None:
    assert text_in(record, [edit(1, 1, 1, None, speaker="speaker_1")], 0, 2) is None
    both = [edit(1, 1, 2, "a lamp"), edit(2, 4, 4, "")]
    assert text_in(record, both, 0, 5) == "keep a lamp burning night"


@pytest.mark.parametrize(
    ("first", "last", "text", "reason"),
    [
        (4, 6, "a", "the transcript has 6"),
        (3, 2, "a", "There are no words 3 to 2"),
        (0, 0, None, "needs a text, a speaker"),
        (0, 0, "a " * 2001, "2000 words"),
        (2, 3, "a", "Revision 1 edited words 0 to 2"),
    ],
)
def test_what_does_not_fit_is_refused(
    record: Transcript, first: int, last: int, text: str | None, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_edit(record, [edit(1, 0, 2, "one")], edit(2, first, last, text))


def test_a_wider_range_takes_in_what_was_edited_before(record: Transcript) -> None:
    check_edit(record, [edit(1, 0, 2, "one")], edit(2, 0, 3, "a"))
    after = apply_edits(record, [edit(1, 0, 2, "one"), edit(2, 0, 3, "a")])
    assert texts(after) == ["a", "all", "night"]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.integers(1, 60)), max_size=14))
def test_an_edit_stands_unless_a_later_one_covers_it(ranges: list[tuple[int, int, int]]) -> None:
    at = datetime(2026, 11, 29, tzinfo=UTC)
    events = [
        Edit(revision, first, first + more, "a", None, "Bo", at, undoes if undoes < revision else None)
        for revision, (first, more, undoes) in enumerate(ranges, 1)
    ]
    undone = {each.undoes for each in events}
    live = [each for each in events if each.undoes is None and each.revision not in undone]
    stands = [
        each
        for number, each in enumerate(live)
        if not any(other.covers(each) for other in live[number + 1 :])
    ]
    assert find_standing_edits(events) == sorted(stands, key=lambda each: each.first_word)
