"""A record's corrected bytes are those of reading, correcting and writing the whole transcript."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.bench.page import long_transcript
from ops.testbed.running_api import transcript_of
from spool.domain import Alternative, Edit, Segment, Transcript, Word, apply_edits, check_edit
from spool.domain.transcript import Speaker, text_of_words
from spool.errors import InvalidRequest
from spool.formats import correct_record, render_bytes

NOW = datetime(2026, 11, 28, tzinfo=UTC)
LABELS = ("speaker_0", "speaker_1")
NAMES = {"speaker_1": "Ada"}
TEXTS = ('say "no"', "a\nb", "日本", "語", "l'eau", "{", "    },", "Ærø", "one", "two", "three")
MORE: tuple[dict[str, Any], ...] = (
    {},
    {"alternatives": (Alternative(text="b", confidence=0.25),)},
    {"doubtful": True},
    {"omitted": True},
)


@st.composite
def transcripts(draw: st.DrawFn) -> Transcript:
    """Up to six segments of up to five words, of two speakers."""
    words: list[Word] = []
    segments: list[Segment] = []
    for label in draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=6)):
        first = len(words)
        for text in draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=5)):
            begins = len(words) * 0.3
            more = {"speaker": label, **draw(st.sampled_from(MORE))}
            words.append(
                Word.model_validate(
                    {"text": text, "start": begins, "end": begins + 0.2, "confidence": 0.5, **more}
                )
            )
        segments.append(
            Segment(
                start=words[first].start,
                end=words[-1].end,
                text=text_of_words(words[first:]),
                channel=0,
                first_word=first,
                last_word=len(words) - 1,
                speaker=label,
            )
        )
    speakers = tuple(
        Speaker(label=label, talk_seconds=1.0, words=sum(word.speaker == label for word in words))
        for label in LABELS
    )
    told = {"words": tuple(words), "segments": tuple(segments), "text": text_of_words(words)}
    return transcript_of("job_1", ("a",)).model_copy(update=told | {"speakers": speakers})


@st.composite
def histories(draw: st.DrawFn, transcript: Transcript) -> list[Edit]:
    """Edits that the API would take, some of them undone."""
    events: list[Edit] = []
    most = len(transcript.words) - 1
    for revision in range(1, draw(st.integers(0, 6)) + 1):
        first = draw(st.integers(0, most))
        last = draw(st.integers(first, min(first + 6, most)))
        text = draw(st.none() | st.lists(st.sampled_from(TEXTS), max_size=4).map(" ".join))
        speaker = draw(st.none() | st.sampled_from(LABELS))
        edit = Edit(len(events) + 1, first, last, text, speaker, "Bo", NOW)
        try:
            check_edit(transcript, events, edit)
        except InvalidRequest:
            continue
        events.append(edit)
        if draw(st.booleans()) and revision > 2:
            events.append(Edit(len(events) + 1, first, last, None, None, "Bo", NOW, undoes=edit.revision))
    return events


@given(st.data())
def test_corrections_are_those_of_the_whole_transcript(data: st.DataObject) -> None:
    record = render_bytes(data.draw(transcripts()), "json")
    transcript = Transcript.model_validate_json(record)
    edits = data.draw(histories(transcript))
    expected = render_bytes(apply_edits(transcript, edits).with_names(NAMES), "json")
    assert b"".join(correct_record(record, edits, NAMES)) == expected


def edit(first: int, last: int, text: str) -> Edit:
    return Edit(1, first, last, text, None, "Bo", NOW)


@pytest.mark.parametrize(
    "words", [("keep", "the", "light"), ()], ids=["all its words are removed", "without words"]
)
def test_nothing_may_be_left(words: tuple[str, ...]) -> None:
    transcript = transcript_of("job_1", words)
    edits = [edit(0, 2, "")] if words else []
    expected = render_bytes(apply_edits(transcript, edits), "json")
    assert b"".join(correct_record(render_bytes(transcript, "json"), edits, {})) == expected
    assert b'"words": []' in expected


def test_words_outside_of_segments_are_corrected_too() -> None:
    transcript = transcript_of("job_1", ("keep", "the", "light"))
    segments = (transcript.segments[0].model_copy(update={"last_word": 1, "text": "keep the"}),)
    apart = transcript.model_copy(update={"segments": segments})
    edits = [edit(2, 2, "lamp")]
    corrected = Transcript.model_validate_json(
        b"".join(correct_record(render_bytes(apart, "json"), edits, {}))
    )
    assert corrected == apply_edits(apart, edits)
    assert corrected.words[2].text == "lamp"


def test_a_record_that_is_laid_out_otherwise_is_read_whole() -> None:
    transcript = transcript_of("job_1", ("keep", "the", "light"))
    edits = [edit(2, 2, "lamp")]
    expected = render_bytes(apply_edits(transcript, edits), "json")
    assert b"".join(correct_record(transcript.model_dump_json().encode(), edits, {})) == expected


def test_words_far_into_a_long_record_are_found() -> None:
    record = render_bytes(long_transcript("job_1", 3000), "json")
    edits = [
        Edit(1, 5, 6, "Okonkwo", None, "Bo", NOW),
        Edit(2, 1400, 1600, "much less", "speaker_1", "Bo", NOW),
        Edit(3, 2999, 2999, "the last words", None, "Bo", NOW),
    ]
    expected = apply_edits(Transcript.model_validate_json(record), edits).with_names(NAMES)
    assert b"".join(correct_record(record, edits, NAMES)) == render_bytes(expected, "json")
