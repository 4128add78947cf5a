"""Transcripts to check, whoever made them: JSON with segments, Spool's own record, SubRip, WebVTT.

The content decides the format. A segment without words gets those of its text; a segment that is broken is
refused by its number, since the answer has as many segments as the question.
"""

import html
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from spool.errors import InvalidRequest

MAX_BYTES = 100 * 1024 * 1024
MAX_SEGMENTS = 200_000
_TIME = r"(?:(\d+):)?(\d{1,2}):(\d{2})[.,](\d{1,3})"
_CUE = re.compile(rf"^[^\S\n]*{_TIME}[^\S\n]+-->[^\S\n]+{_TIME}[^\n]*\n?", re.MULTILINE)
_TAG = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")


@dataclass(frozen=True, slots=True)
class GivenWord:
    """A word as written; its times in seconds, None if unknown."""

    text: str
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True, slots=True)
class GivenSegment:
    """A stretch of a transcript, in seconds of the recording."""

    start: float
    end: float
    text: str
    words: tuple[GivenWord, ...]
    channel: int = 0


@dataclass(frozen=True, slots=True)
class GivenTranscript:
    """Segments in the order in which they were given, and the language if the transcript says."""

    segments: tuple[GivenSegment, ...]
    language: str | None = None

    @property
    def channels(self) -> int:
        """One more than the highest channel."""
        return 1 + max((each.channel for each in self.segments), default=0)

    def in_language(self, language: str) -> "GivenTranscript":
        """The same, of this language."""
        return replace(self, language=language)


def read_transcript(data: bytes, name: str) -> GivenTranscript:
    """Reads a file. Raises InvalidRequest, naming it."""
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"{name}: the transcript is larger than {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{name}: the transcript is not UTF-8 text") from error
    if text.lstrip().startswith("{"):
        return _of_json(text, name)
    cues = tuple(_cues(text))
    if not cues and text.strip() and not text.lstrip().startswith("WEBVTT"):
        raise InvalidRequest(f"{name}: neither JSON with `segments` nor subtitles (SubRip, WebVTT)")
    return GivenTranscript(cues)


def _of_json(text: str, name: str) -> GivenTranscript:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{name}: the transcript is not readable as JSON: {error}") from error
    segments = tree.get("segments")
    if not isinstance(segments, list) or len(segments) > MAX_SEGMENTS:
        raise InvalidRequest(f"{name}: the transcript needs a list `segments` of at most {MAX_SEGMENTS:,}")
    words = tree.get("words") if isinstance(tree.get("words"), list) else []
    language = tree.get("language")
    return GivenTranscript(
        tuple(_segment(each, f"{name}: segment {at}", words) for at, each in enumerate(segments)),
        language if isinstance(language, str) else None,
    )


def _segment(value: object, name: str, words: Sequence[Any]) -> GivenSegment:
    if not isinstance(value, Mapping):
        raise InvalidRequest(f"{name}: it is not an object with start, end and text")
    start, end = _seconds(value.get("start"), f"{name}: start"), _seconds(value.get("end"), f"{name}: end")
    if end < start:
        raise InvalidRequest(f"{name}: it ends at {end:g} s, before it starts at {start:g} s")
    own = value.get("words")
    if own is None and isinstance(value.get("first_word"), int) and isinstance(value.get("last_word"), int):
        own = words[value["first_word"] : value["last_word"] + 1]  # Spool's record
    given = tuple(_word(each, f"{name}: word {at}") for at, each in enumerate(own or []))
    text = value.get("text")
    if text is None:
        text = " ".join(each.text for each in given)
    if not isinstance(text, str):
        raise InvalidRequest(f"{name}: text must be a string")
    channel = value.get("channel", 0)
    if not isinstance(channel, int) or not 0 <= channel < 64:
        raise InvalidRequest(f"{name}: channel must be a number from 0 to 63")
    return GivenSegment(start, end, text, given or tuple(map(GivenWord, text.split())), channel)


def _word(value: object, name: str) -> GivenWord:
    text = value.get("text", value.get("word")) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(text, str):
        raise InvalidRequest(f"{name}: it is not an object with a text")
    if value.get("start") is None or value.get("end") is None:
        return GivenWord(text)
    return GivenWord(text, _seconds(value["start"], f"{name}: start"), _seconds(value["end"], f"{name}: end"))


def _seconds(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise InvalidRequest(f"{name} must be a number of seconds, not {str(value)[:40]}")
    return float(value)


def _cues(text: str) -> list[GivenSegment]:
    """The cues of SubRip or WebVTT."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    matches = list(_CUE.finditer(text))
    cues = []
    for match, following in itertools.zip_longest(matches, matches[1:]):
        body = text[match.end() : following.start() if following else len(text)]
        spoken = body.split("\n\n")[0]
        lines = html.unescape(_TAG.sub("", spoken)).split()
        times = match.groups()
        start, end = _stamp(times[:4]), _stamp(times[4:])
        cues.append(GivenSegment(start, max(start, end), " ".join(lines), tuple(map(GivenWord, lines))))
    return cues


def _stamp(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = parts
    return int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0) + float(f"0.{fraction}")
