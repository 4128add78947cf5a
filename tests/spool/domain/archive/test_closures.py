"""What a closure leaves of a transcript."""

from datetime import UTC, datetime

from ops.testbed.closures import make_closure
from ops.testbed.running_api import transcript_of
from spool.domain import Turn
from spool.domain.archive.closures import ClosedParts, NewClosure, spans_of

WORDS = ("we", "lit", "the", "lamp", "and", "went", "home", "again")  # each begins half a second later
AT = datetime(2026, 11, 27, tzinfo=UTC)


def test_words_that_a_range_touches_are_closed_whole() -> None:
    record = transcript_of("job_1", WORDS)
    new = NewClosure("range", 1.2, 1.6, None, None, "", "operator")
    assert spans_of(new, record) == [[1.0, 1.9]]  # "the" begins at 1.0, "lamp" ends at 1.9
    shown = ClosedParts("job_1", (make_closure("range", [[1.0, 1.9]]),)).redact(record)
    assert shown.text == "we lit [closed] and went home again"
    (segment,) = shown.segments
    assert (segment.first_word, segment.last_word, segment.text) == (0, 6, shown.text)
    assert [(one.start, one.end, one.until) for one in shown.closed] == [(1.0, 1.9, None)]


def test_a_whole_recording_is_one_placeholder_until_its_last_date() -> None:
    record = transcript_of("job_1", WORDS).model_copy(update={"language": "en"})
    parts = ClosedParts("job_1", (make_closure("whole", [], until=AT), make_closure("range", [[0.0, 1.0]])))
    shown = parts.redact(record)
    assert (shown.text, len(shown.words), shown.language) == ("[closed]", 1, None)
    assert parts.sentence == "The recording is closed."
    assert ClosedParts("job_1", (make_closure("whole", [], until=AT),)).sentence == (
        "The recording is closed until 2026-11-27."
    )


def test_turns_keep_what_lies_outside() -> None:
    turns = (Turn(start=0.0, end=4.0, speaker="speaker_0"), Turn(start=1.0, end=2.0, speaker="speaker_1"))
    record = transcript_of("job_1", WORDS).model_copy(update={"turns": turns})
    shown = ClosedParts("job_1", (make_closure("range", [[1.0, 2.0]]),)).redact(record)
    assert [(one.start, one.end, one.speaker) for one in shown.turns] == [
        (0.0, 1.0, "speaker_0"),
        (2.0, 4.0, "speaker_0"),
    ]


def test_without_closures_nothing_changes() -> None:
    record = transcript_of("job_1", WORDS)
    assert ClosedParts("job_1").redact(record) is record
    assert not ClosedParts("job_1").covers(0.0, 100.0)
