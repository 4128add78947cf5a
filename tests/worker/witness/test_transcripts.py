"""Transcripts of other tools, and files that are none."""

import json

import pytest

from spool.errors import InvalidRequest
from worker.witness.transcripts import GivenWord, read_transcript

SRT = """1
00:00:01,500 --> 00:00:03,250
<i>The old</i> teacher
gave us three.

2
00:00:04,000 --> 00:00:05,000
Fish &amp; chips
"""
VTT = "WEBVTT\n\nNOTE hello\n\n00:01.500 --> 00:03.250 align:start\n<v Ann>The old teacher\n"


def read(text: str) -> list[tuple[float, float, str]]:
    return [(each.start, each.end, each.text) for each in read_transcript(text.encode(), "t").segments]


def test_subtitles_are_segments() -> None:
    assert read(SRT) == [(1.5, 3.25, "The old teacher gave us three."), (4.0, 5.0, "Fish & chips")]
    assert read(VTT) == [(1.5, 3.25, "The old teacher")]
    assert read("\ufeff" + SRT.replace("\n", "\r\n")) == read(SRT)
    assert read("WEBVTT\n") == read("") == []


def test_json_has_words_or_gets_those_of_its_text() -> None:
    rows = [
        {
            "start": 1,
            "end": 2.5,
            "text": "old ships",
            "words": [{"text": "old", "start": 1, "end": 2}, {"word": "ships"}],
        },
        {"start": 3, "end": 4, "text": "a b", "extra": 1},
        {"start": 5, "end": 6, "words": [{"text": "c"}], "channel": 1},
    ]
    given = read_transcript(json.dumps({"segments": rows, "language": "en"}).encode(), "t")
    assert given.segments[0].words == (GivenWord("old", 1.0, 2.0), GivenWord("ships"))
    assert given.segments[1].words == (GivenWord("a"), GivenWord("b"))
    assert given.segments[2].text == "c"
    assert (given.language, given.channels) == ("en", 2)


def test_spools_own_record_points_into_its_words() -> None:
    words = [
        {"text": each, "start": at, "end": at + 1, "confidence": 1} for at, each in enumerate(["a", "b", "c"])
    ]
    segments = [{"start": 1, "end": 3, "text": "b c", "channel": 0, "first_word": 1, "last_word": 2}]
    (found,) = read_transcript(json.dumps({"words": words, "segments": segments}).encode(), "t").segments
    assert [word.text for word in found.words] == ["b", "c"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not readable as JSON"),
        ("{}", "needs a list `segments`"),
        ('{"segments": 3}', "needs a list `segments`"),
        ('{"segments": [3]}', "segment 0: it is not an object"),
        ('{"segments": [{"start": "x", "end": 2}]}', "segment 0: start must be a number of seconds, not x"),
        ('{"segments": [{"start": NaN, "end": 2}]}', "start must be a number"),
        ('{"segments": [{"start": -1, "end": 2}]}', "start must be a number"),
        ('{"segments": [{"start": 3, "end": 2}]}', "ends at 2 s, before it starts at 3 s"),
        ('{"segments": [{"start": 1, "end": 2, "text": 5}]}', "text must be a string"),
        ('{"segments": [{"start": 1, "end": 2, "text": "a", "words": [5]}]}', "word 0: it is not an object"),
        (
            '{"segments": [{"start": 1, "end": 2, "text": "a", "channel": "left"}]}',
            "channel must be a number",
        ),
        ("Just some words.", "neither JSON with `segments` nor subtitles"),
    ],
)
def test_a_file_that_is_none_says_what_is_wrong(text: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=f"t: .*{says}"):
        read_transcript(text.encode(), "t")


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="not UTF-8"):
        read_transcript(b"\xff\xfe\x00", "t")
