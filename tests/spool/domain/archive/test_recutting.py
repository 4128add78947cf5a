"""The passages that corrections change are those of cutting the whole transcript again."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.bench.page import long_transcript
from ops.testbed.random_transcripts import NOW, draw_edit, draw_transcript
from ops.testbed.running_api import transcript_of
from spool.domain import (
    Cut,
    Edit,
    Passage,
    Record,
    Transcript,
    WholeRecord,
    apply_edits,
    check_edit,
    passages_of,
    recut_passages,
)
from spool.errors import InvalidRequest
from spool.formats import open_record, render_bytes


def cuts_of(passages: Sequence[Passage]) -> list[Cut]:
    return [Cut(each.channel, each.own, each.words[0].start) for each in passages]


def recut(record: Record, before: Sequence[Edit], new: Sequence[Edit]) -> tuple[list[Passage], int] | None:
    """The passages after the change, and how many of them were cut anew."""
    stored = passages_of(apply_edits(record.read(), before))
    recuts = recut_passages(record, before, new, cuts_of(stored))
    if recuts is None:
        return None
    channels = sorted({each.channel for each in stored})
    now: list[Passage] = []
    for channel in channels:
        own = [each for each in stored if each.channel == channel]
        for one in reversed([one for one in recuts if one.channel == channel]):
            own[one.first : one.after] = one.passages
        now += own
    ordered = sorted(now, key=lambda each: (each.words[0].start, each.channel))
    return ordered, sum(len(one.passages) for one in recuts)


def draw_events(draw: Random, transcript: Transcript, before: Sequence[Edit]) -> list[Edit]:
    """What the API would take at once: corrections of several places, or an undo."""
    new: list[Edit] = []
    for _ in range(draw.choice((1, 1, 1, 4))):
        edit = draw_edit(draw, len(transcript.words), len(before) + len(new) + 1)
        try:
            check_edit(transcript, [*before, *new], edit)
        except InvalidRequest:
            continue
        new.append(edit)
    events = [*before, *new]
    last = events[-1] if events else None
    if last is not None and last.undoes is None and draw.random() < 0.3:
        undone = replace(last, revision=len(events) + 1, text=None, speaker=None, undoes=last.revision)
        new.append(undone)
    return new


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_passages_are_those_of_the_whole_transcript(seed: int) -> None:
    draw = Random(seed)
    transcript = draw_transcript("job_1", draw)
    if not transcript.words:
        return
    record = open_record(render_bytes(transcript, "json"))
    events: list[Edit] = []
    for _ in range(8):
        new = draw_events(draw, transcript, events)
        left = {word.channel for word in apply_edits(transcript, events).words}
        found = recut(record, events, new)
        events += new
        if found is None:
            assert any(transcript.words[edit.first_word].channel not in left for edit in new) or not left
        else:
            assert found[0] == passages_of(apply_edits(transcript, events))


def test_few_passages_are_cut_again() -> None:
    transcript = long_transcript("job_1", 3000)
    record = open_record(render_bytes(transcript, "json"))
    for text in ("Okonkwo", "two words", ""):
        found = recut(record, [], [Edit(1, 800, 800, text, None, "Bo", NOW)])
        assert found is not None
        assert 1 <= found[1] <= 4, text
        assert found[0] != passages_of(transcript)


@pytest.mark.parametrize("cause", ["other passages are stored", "readings of chunks", "channels mixed"])
def test_what_cannot_be_told_is_left_to_the_whole(cause: str) -> None:
    words = tuple("abcdefgh" * 20)
    transcript = transcript_of("job_1", words)
    if cause == "readings of chunks":
        transcript = draw_transcript("job_1", Random(3), nbest=True)
        assert transcript.nbest
    if cause == "channels mixed":
        mixed = [word.model_copy(update={"channel": at % 2}) for at, word in enumerate(transcript.words)]
        transcript = transcript.model_copy(update={"words": tuple(mixed)})
    stored = cuts_of(passages_of(transcript))[cause == "other passages are stored" :]
    edit = draw_edit(Random(1), 9, 1)
    for record in (WholeRecord(transcript), open_record(render_bytes(transcript, "json"))):
        assert recut_passages(record, [], [edit], stored) is None
