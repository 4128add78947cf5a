"""A transcript as txt, srt, vtt or json. Pure: text in, text out.

Subtitles: a cue belongs to one segment and one channel, has at most two lines of 42 characters, and lasts
from 1 s (where the next cue leaves room) to 7 s. Cues of one channel never overlap. When two channels speak
at once their cues share the time, as the speakers did; each names its channel.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from spool.errors import InvalidRequest
from spool.transcript import Segment, Transcript, Word

Format = Literal["json", "txt", "srt", "vtt"]
FORMATS: tuple[Format, ...] = get_args(Format)
CONTENT_TYPES: dict[Format, str] = {
    "json": "application/json",
    "txt": "text/plain; charset=utf-8",
    "srt": "application/x-subrip; charset=utf-8",
    "vtt": "text/vtt; charset=utf-8",
}

LINE_CHARACTERS = 42
_MIN_MS, _MAX_MS, _FLASH_MS = 1000, 7000, 100
_CHARACTERS_PER_SECOND = 20
_STOP = re.compile(r"[.,;:?!…][^\w\s]*$")


@dataclass(frozen=True)
class Cue:
    """One subtitle: times in milliseconds, one or two lines of plain text."""

    start: int
    end: int
    lines: tuple[str, ...]
    channel: int


def render(transcript: Transcript, format: str) -> str:  # noqa: A002 - the name users know it by
    """`transcript` in one of `FORMATS`; raises `InvalidRequest` for any other name."""
    renderers: dict[str, Callable[[Transcript], str]] = {
        "json": _json,
        "txt": _text,
        "srt": _srt,
        "vtt": _vtt,
    }
    if format not in renderers:
        raise InvalidRequest(f"unknown transcript format {format!r}: choose one of {', '.join(FORMATS)}")
    return renderers[format](transcript)


def _json(transcript: Transcript) -> str:
    return transcript.model_dump_json(indent=2) + "\n"


def _text(transcript: Transcript) -> str:
    many = _has_channels(transcript)
    lines = [_label(segment.channel, many) + segment.text for segment in transcript.segments]
    return "".join(line + "\n" for line in lines)


def _srt(transcript: Transcript) -> str:
    many = _has_channels(transcript)
    blocks = []
    for number, cue in enumerate(cues_of(transcript), 1):
        text = _label(cue.channel, many) + "\n".join(cue.lines).replace("-->", "→")
        blocks.append(f"{number}\n{_stamp(cue.start, ',')} --> {_stamp(cue.end, ',')}\n{text}\n")
    return "\n".join(blocks)


def _vtt(transcript: Transcript) -> str:
    many = _has_channels(transcript)
    blocks = ["WEBVTT\n"]
    for cue in cues_of(transcript):
        text = "\n".join(
            line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for line in cue.lines
        )
        voice = f"<v Channel {cue.channel + 1}>" if many else ""
        blocks.append(f"{_stamp(cue.start, '.')} --> {_stamp(cue.end, '.')}\n{voice}{text}\n")
    return "\n".join(blocks)


def cues_of(transcript: Transcript) -> list[Cue]:
    """The subtitles of `transcript`, by start."""
    many = _has_channels(transcript)
    # The label that names the channel must fit on the line as well.
    width = LINE_CHARACTERS - (len("<v Channel 10>") if many else 0)
    by_channel: dict[int, list[Cue]] = {}
    for segment in transcript.segments:
        words = transcript.words[segment.first_word : segment.last_word + 1]
        by_channel.setdefault(segment.channel, []).extend(_segment_cues(segment, words, width))
    cues = [cue for channel in sorted(by_channel) for cue in _timed(by_channel[channel])]
    return sorted(cues, key=lambda cue: (cue.start, cue.channel))


def _segment_cues(segment: Segment, words: Sequence[Word], width: int) -> Iterator[Cue]:
    """The segment's words in cues that fit, at the words' own times."""
    group: list[Word] = []
    for word in _short_words(words, width):
        if group and not _fits([*group, word], width):
            count = _breath(group)
            yield _cue(group[:count], segment.channel, width)
            group = group[count:]
            if group and not _fits([*group, word], width):
                yield _cue(group, segment.channel, width)
                group = []
        group.append(word)
    if group:
        yield _cue(group, segment.channel, width)


def _short_words(words: Sequence[Word], width: int) -> Iterator[Word]:
    """Words without inner space, cut where they are wider than a line."""
    for word in words:
        for part in word.text.split():
            for at in range(0, len(part), width):
                yield word.model_copy(update={"text": part[at : at + width]})


def _fits(words: Sequence[Word], width: int) -> bool:
    lasts = _ms(words[-1].end) - _ms(words[0].start)
    return lasts <= _MAX_MS and _lines([word.text for word in words], width) is not None


def _breath(words: Sequence[Word]) -> int:
    """How many words of a full cue to show: up to the last comma or stop of its later half, else all."""
    for count in range(len(words), len(words) // 2, -1):
        if _STOP.search(words[count - 1].text):
            return count
    return len(words)


def _lines(texts: Sequence[str], width: int) -> tuple[str, ...] | None:
    """One line, or the two of most equal length; None where two lines do not hold `texts`."""
    whole = " ".join(texts)
    if len(whole) <= width:
        return (whole,)
    halves = [(" ".join(texts[:at]), " ".join(texts[at:])) for at in range(1, len(texts))]
    fitting = [half for half in halves if len(half[0]) <= width and len(half[1]) <= width]
    return min(fitting, key=lambda half: abs(len(half[0]) - len(half[1]))) if fitting else None


def _cue(words: Sequence[Word], channel: int, width: int) -> Cue:
    lines = _lines([word.text for word in words], width)
    if lines is None:
        raise AssertionError("a cue is only made of words that fit")
    return Cue(_ms(words[0].start), _ms(words[-1].end), lines, channel)


def _timed(cues: Sequence[Cue]) -> Iterator[Cue]:
    """One channel's cues with durations a reader can follow, none beginning before the last one ended."""
    free = 0
    for index, cue in enumerate(cues):
        start = max(cue.start, free)
        wanted = max(_MIN_MS, sum(map(len, cue.lines)) * 1000 // _CHARACTERS_PER_SECOND)
        end = start + min(max(cue.end - start, wanted), _MAX_MS)
        if index + 1 < len(cues):
            # Words may share one instant; even then a cue is shown, if only as a flash.
            end = min(end, max(cues[index + 1].start, start + _FLASH_MS))
        free = end
        yield replace(cue, start=start, end=end)


def _has_channels(transcript: Transcript) -> bool:
    separate = transcript.options.get("channels") == "separate" and transcript.audio.channels > 1
    return separate or any(segment.channel for segment in transcript.segments)


def _label(channel: int, many: bool) -> str:
    return f"Channel {channel + 1}: " if many else ""


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _stamp(milliseconds: int, point: str) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{thousandths:03}"
