"""Subtitles: SRT, WebVTT and TTML.

A cue belongs to one segment and so to one channel and one speaker, has at most two lines of 42 characters,
and lasts from 1 s (if the next cue leaves room) to 7 s. Cues of one channel never overlap. When two channels
speak at once their cues share the time, as the speakers did. Each names its speaker, or its channel if
speakers were not told apart.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape, quoteattr

from spool.domain.spacing import join_words
from spool.domain.transcript import Segment, Transcript, Word
from spool.formats.text import group_segments, prefix, replace_non_xml, speaker_name, text_language, voices_of

LINE_CHARACTERS = 42
_MIN_MS, _MAX_MS, _FLASH_MS = 1000, 7000, 100
_CHARACTERS_PER_SECOND = 20
OHMS_SECONDS = 30.0
_STOP = re.compile(r"[.,;:?!…][^\w\s]*$")


@dataclass(frozen=True)
class Cue:
    """One subtitle: times in milliseconds, one or two lines of plain text."""

    start: int
    end: int
    lines: tuple[str, ...]
    channel: int
    voice: str = ""
    """The speaker's name; empty if there is only one voice."""
    speaker: str | None = None
    """The speaker's label."""


def srt(transcript: Transcript) -> str:
    """The transcript as SubRip subtitles."""
    blocks = []
    for number, cue in enumerate(cues_of(transcript), 1):
        text = (prefix(cue.voice) + "\n".join(cue.lines)).replace("-->", "→")
        blocks.append(f"{number}\n{_stamp(cue.start, ',')} --> {_stamp(cue.end, ',')}\n{text}\n")
    return "\n".join(blocks)


def vtt(transcript: Transcript) -> str:
    """WebVTT (W3C), a voice for each speaker, or for each channel."""
    blocks = ["WEBVTT\n"]
    for cue in cues_of(transcript):
        text = "\n".join(map(_vtt, cue.lines))
        voice = f"<v {_vtt(cue.voice)}>" if cue.voice else ""
        blocks.append(f"{_stamp(cue.start, '.')} --> {_stamp(cue.end, '.')}\n{voice}{text}\n")
    return "\n".join(blocks)


def ohms(transcript: Transcript) -> str:
    """WebVTT as OHMS (Oral History Metadata Synchronizer) imports it: not subtitles but the paragraphs of a
    transcript. Each cue is one line of one voice, since a line break begins a paragraph there, and no longer
    than `OHMS_SECONDS`, which is how far a reader has to search for what is heard."""
    voice_of = voices_of(transcript)
    blocks = ["WEBVTT\n"]
    for group in sorted(_split_paragraphs(transcript), key=lambda group: (group[0].start, group[0].channel)):
        start = _ms(group[0].start)
        end = max(start + 1, _ms(max(segment.end for segment in group)))
        text = join_words(" ".join(segment.text.split()) for segment in group)
        # OHMS stores it inside XML.
        text, voice = (_vtt(replace_non_xml(each)) for each in (text, voice_of(group[0])))
        spoken = f"<v {voice}>{text}</v>" if voice else text
        blocks.append(f"{_stamp(start, '.')} --> {_stamp(end, '.')}\n{spoken}\n")
    return "\n".join(blocks)


def _split_paragraphs(transcript: Transcript) -> Iterator[list[Segment]]:
    """The segments of each paragraph, divided if they last longer than `OHMS_SECONDS`."""
    for paragraph in group_segments(transcript):
        stretch: list[Segment] = []
        for segment in paragraph:
            if stretch and segment.end - stretch[0].start > OHMS_SECONDS:
                yield stretch
                stretch = []
            stretch.append(segment)
        yield stretch


def ttml(transcript: Transcript) -> str:
    """TTML2 (W3C), within what IMSC 1.1's text profile allows: media times, one region, plain paragraphs."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<tt xmlns="http://www.w3.org/ns/ttml" xmlns:tts="http://www.w3.org/ns/ttml#styling"'
        ' xmlns:ttm="http://www.w3.org/ns/ttml#metadata" xmlns:ttp="http://www.w3.org/ns/ttml#parameter"'
        f' ttp:timeBase="media" xml:lang={quoteattr(text_language(transcript))}>',
        "  <head>",
        f"    <metadata><ttm:title>{_xml(transcript.audio.name)}</ttm:title>{_agents(transcript)}</metadata>",
        "    <layout>",
        '      <region xml:id="bottom" tts:origin="10% 80%" tts:extent="80% 15%" tts:displayAlign="after"'
        ' tts:textAlign="center"/>',
        "    </layout>",
        "  </head>",
        '  <body region="bottom"><div>',
    ]
    for cue in cues_of(transcript):
        times = f"begin={quoteattr(_stamp(cue.start, '.'))} end={quoteattr(_stamp(cue.end, '.'))}"
        agent = f" ttm:agent={quoteattr(cue.speaker)}" if cue.speaker else ""
        text = _xml(prefix(cue.voice)) + "<br/>".join(map(_xml, cue.lines))
        lines.append(f"    <p {times}{agent}>{text}</p>")
    return "\n".join([*lines, "  </div></body>", "</tt>", ""])


def cues_of(transcript: Transcript) -> list[Cue]:
    """The subtitles of `transcript`, by start."""
    voice_of = voices_of(transcript)
    # The name must fit on the line too.
    longest = max((len(voice_of(segment)) for segment in transcript.segments), default=0)
    width = max(LINE_CHARACTERS - (longest + len("<v >") if longest else 0), LINE_CHARACTERS // 2)
    by_channel: dict[int, list[Cue]] = {}
    for segment in transcript.segments:
        words = transcript.words[segment.first_word : segment.last_word + 1]
        cues = (
            replace(cue, voice=voice_of(segment), speaker=segment.speaker)
            for cue in _segment_cues(segment, words, width)
        )
        by_channel.setdefault(segment.channel, []).extend(cues)
    timed = [cue for channel in sorted(by_channel) for cue in _space_cues(by_channel[channel])]
    return sorted(timed, key=lambda cue: (cue.start, cue.channel))


def _segment_cues(segment: Segment, words: Sequence[Word], width: int) -> Iterator[Cue]:
    """The segment's words in cues that fit, at the words' own times."""
    group: list[Word] = []
    for word in _cut_words(words, width):
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


def _cut_words(words: Sequence[Word], width: int) -> Iterator[Word]:
    """Words without inner spaces, cut if they are wider than a line."""
    for word in words:
        for part in word.text.split():
            for at in range(0, len(part), width):
                yield word.model_copy(update={"text": part[at : at + width]})


def _fits(words: Sequence[Word], width: int) -> bool:
    lasts = _ms(words[-1].end) - _ms(words[0].start)
    return lasts <= _MAX_MS and _lines([word.text for word in words], width) is not None


def _breath(words: Sequence[Word]) -> int:
    """How many words of a full cue to show: up to the last comma or stop of its second half, else all."""
    for count in range(len(words), len(words) // 2, -1):
        if _STOP.search(words[count - 1].text):
            return count
    return len(words)


def _lines(texts: Sequence[str], width: int) -> tuple[str, ...] | None:
    """One line, or the two of most equal length; None if `texts` do not fit on two lines."""
    text = join_words(texts)
    if len(text) <= width:
        return (text,)
    halves = [(join_words(texts[:at]), join_words(texts[at:])) for at in range(1, len(texts))]
    fitting = [half for half in halves if len(half[0]) <= width and len(half[1]) <= width]
    return min(fitting, key=lambda half: abs(len(half[0]) - len(half[1]))) if fitting else None


def _cue(words: Sequence[Word], channel: int, width: int) -> Cue:
    lines = _lines([word.text for word in words], width)
    if lines is None:
        raise AssertionError("a cue is only made of words that fit")
    return Cue(_ms(words[0].start), _ms(words[-1].end), lines, channel)


def _space_cues(cues: Sequence[Cue]) -> Iterator[Cue]:
    """One channel's cues with readable durations, none beginning before the previous one ended."""
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


def _vtt(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _agents(transcript: Transcript) -> str:
    return "".join(
        f'<ttm:agent xml:id={quoteattr(each.label)} type="person"><ttm:name type="full">'
        f"{_xml(speaker_name(each))}</ttm:name></ttm:agent>"
        for each in transcript.speakers
    )


def _xml(text: str) -> str:
    return escape(replace_non_xml(text))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _stamp(milliseconds: int, point: str) -> str:
    seconds, thousandths = divmod(milliseconds, 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{seconds:02}{point}{thousandths:03}"
