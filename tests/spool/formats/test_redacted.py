"""A record's bytes without what is closed are those of reading, redacting and writing the whole."""

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ops.testbed.closures import make_closure
from ops.testbed.random_transcripts import LABELS, draw_edit, draw_transcript
from spool.domain import Edit, Transcript, apply_edits, check_edit
from spool.domain.archive.closures import ClosedParts, Closure, NewClosure, spans_of
from spool.errors import InvalidRequest
from spool.formats import mark_record, redact_record, render_bytes

NAMES = {"speaker_1": "Ada"}


def draw_closed(draw: Random, transcript: Transcript) -> ClosedParts:
    """Ranges, speakers and, seldom, the whole."""
    own: list[Closure] = []
    labels: set[str] = set()
    seconds = transcript.words[-1].end if transcript.words else 1.0
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        kind = draw.random()
        if kind < 0.05:
            own.append(make_closure("whole", []))
        elif kind < 0.25:
            label = draw.choice(LABELS)
            asked = NewClosure("speaker", None, None, label, None, "", "Bo")
            own.append(
                make_closure(
                    "speaker", spans_of(asked, transcript) if draw.random() < 0.7 else [], speaker=label
                )
            )
            labels.add(label)
        else:
            begin = draw.choice((draw.uniform(0, seconds), 0.0, 0.125 * draw.randrange(1 + int(8 * seconds))))
            span = (begin, begin + draw.choice((0.125, 1.0, 10.0)))
            asked = NewClosure("range", *span, None, None, "", "Bo")
            own.append(
                make_closure("range", spans_of(asked, transcript) if draw.random() < 0.7 else [[*span]])
            )
    return ClosedParts("job_1", tuple(own), frozenset(labels))


def draw_history(draw: Random, transcript: Transcript) -> list[Edit]:
    events: list[Edit] = []
    for _ in range(draw.choice((0, 0, 3, 8)) if transcript.words else 0):
        edit = draw_edit(draw, len(transcript.words), len(events) + 1)
        try:
            check_edit(transcript, events, edit)
        except InvalidRequest:
            continue
        events.append(edit)
    return events


def mix_speakers(draw: Random, transcript: Transcript) -> Transcript:
    """Some words without a speaker, or with one that their segment does not have."""
    words = [
        word.model_copy(update={"speaker": draw.choice((None, *LABELS))}) if draw.random() < 0.02 else word
        for word in transcript.words
    ]
    return transcript.model_copy(update={"words": tuple(words)})


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32))
@example(2727)  # a segment whose first word has no speaker, and the next one has
def test_what_readers_see_is_what_the_whole_transcript_shows(seed: int) -> None:
    draw = Random(seed)
    transcript = draw_transcript("job_1", draw, most=60, nbest=draw.random() < 0.3)
    mixed = draw.random() < 0.3
    if mixed:
        transcript = mix_speakers(draw, transcript)
    record = render_bytes(transcript, "json")
    edits, parts = draw_history(draw, transcript), draw_closed(draw, transcript)
    whole = apply_edits(Transcript.model_validate_json(record), edits).with_names(NAMES)
    if parts or not mixed:
        shown = b"".join(redact_record(record, edits, NAMES, parts))
        assert shown == render_bytes(parts.redact(whole), "json")
    if not mixed:  # corrections alone leave who is said to speak in other segments
        marked = b"".join(mark_record(record, edits, NAMES, parts))
        assert marked == render_bytes(parts.mark(whole), "json")


@pytest.mark.parametrize("layout", ["as it is written", "otherwise"])
def test_closed_words_are_nowhere_in_the_bytes(layout: str) -> None:
    transcript = draw_transcript("job_1", Random(5), most=120, nbest=True)
    secret = transcript.words[40].model_copy(update={"text": "Geheimnis", "alternatives": ()})
    words = (*transcript.words[:40], secret, *transcript.words[41:])
    first = next(each for each in transcript.segments if each.first_word <= 40 <= each.last_word)
    told = first.model_copy(update={"text": f"{first.text} Geheimnis"})
    segments = tuple(told if each is first else each for each in transcript.segments)
    changed = transcript.model_copy(update={"words": words, "segments": segments, "text": "Geheimnis"})
    record = render_bytes(changed, "json")
    if layout == "otherwise":
        record = changed.model_dump_json().encode()
    parts = ClosedParts("job_1", (make_closure("range", [[secret.start, secret.end]]),))
    shown = b"".join(redact_record(record, [], {}, parts))
    assert b"Geheimnis" in record
    assert b"Geheimnis" not in shown
    assert b"[closed]" in shown
