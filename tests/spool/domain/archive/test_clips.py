"""Clips: which words belong to one, and which versions there are."""

from itertools import pairwise

import pytest

from ops.testbed.running_api import transcript_of
from spool.domain import Speaker, Turn
from spool.domain.archive.clips import cut_transcript, revision_of, version_of
from spool.errors import NotFound
from spool.formats import render

SHA256 = "0123456789abcdef" * 4
JOB = "job_01M8ES52VTQ4VBESX8TATJ8MCN"


def test_a_word_belongs_to_the_one_clip_in_which_its_middle_lies() -> None:
    record = transcript_of(JOB, ("we", "lit", "the", "lamp", "and", "slept"))
    middle = [(word.start + word.end) / 2 for word in record.words]
    cuts = [0.0, middle[1], middle[1] + 0.001, middle[3], record.audio.duration + 1]
    texts = [cut_transcript(record, a, b).text for a, b in pairwise(cuts)]
    assert texts == ["we", "lit", "the", "lamp and slept"]


def test_times_count_from_the_clips_start_and_stay_in_it() -> None:
    record = transcript_of(JOB, ("we", "lit", "the", "lamp"))
    first, last = record.words[1], record.words[2]
    start, end = first.start + 0.01, last.end - 0.01
    clip = cut_transcript(record, start, end)
    assert [word.text for word in clip.words] == ["lit", "the"]
    assert (clip.words[0].start, clip.words[-1].end) == (0.0, round(end - start, 3))
    assert clip.audio.duration == round(end - start, 3)
    assert [(each.first_word, each.last_word, each.text) for each in clip.segments] == [(0, 1, "lit the")]
    assert render(clip, "srt").startswith("1\n00:00:00,000 --> ")
    assert render(cut_transcript(record, 900, 901), "txt").strip() == ""


def test_only_who_speaks_in_a_clip_is_named_with_the_time_there() -> None:
    record = transcript_of(JOB, ("we", "lit")).model_copy(
        update={
            "speakers": (
                Speaker(label="speaker_0", name="Ada", talk_seconds=5, words=1),
                Speaker(label="speaker_1", name="Bo", talk_seconds=2, words=0),
            ),
            "turns": (Turn(start=0, end=5, speaker="speaker_0"), Turn(start=5, end=7, speaker="speaker_1")),
        }
    )
    clip = cut_transcript(record, 1, 3)
    assert [(each.name, each.talk_seconds) for each in clip.speakers] == [("Ada", 2)]
    assert [(turn.start, turn.end) for turn in clip.turns] == [(0, 2)]


def test_a_version_names_the_record_and_the_corrections() -> None:
    assert version_of(SHA256, 0) == "0123456789abcdef"
    assert version_of(SHA256, 2) == "0123456789abcdef-r2"
    assert [revision_of(version_of(SHA256, count), SHA256, 2) for count in range(3)] == [0, 1, 2]


def test_a_version_says_whether_speakers_had_the_same_names() -> None:
    ada, other = (Speaker(label="speaker_0", name=name, talk_seconds=1, words=1) for name in ("Ada", "Adah"))
    nobody = ada.model_copy(update={"name": None})
    named = version_of(SHA256, 2, [ada])
    assert named.startswith("0123456789abcdef-r2-n")
    assert named == version_of(SHA256, 2, [ada]) != version_of(SHA256, 2, [other])
    assert version_of(SHA256, 2, [nobody]) == version_of(SHA256, 2)
    assert revision_of(named, SHA256, 2) == 2


@pytest.mark.parametrize(
    "version", ["", "0123456789abcdef-r3", "0123456789abcdef-r0", "1123456789abcdef", "0123456789ABCDEF"]
)
def test_a_version_that_there_is_not_is_refused_with_the_newest(version: str) -> None:
    with pytest.raises(NotFound, match="the newest is 0123456789abcdef-r2"):
        revision_of(version, SHA256, 2)
