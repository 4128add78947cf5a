"""Subtitles: SRT, WebVTT and TTML.

A cue belongs to one channel and one speaker. Cues of one channel never overlap. When two channels
speak at once their cues share the time, as the speakers did. Each names its speaker, or its channel if
speakers were not told apart.
"""

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from spool.domain.spacing import join_words
from spool.domain.transcript import Segment, Transcript
from spool.formats.cueing import DEFAULT_PRESET, Preset, cues_of
from spool.formats.text import group_segments, prefix, replace_non_xml, speaker_name, text_language, voices_of

OHMS_SECONDS = 30.0


def srt(transcript: Transcript, preset: Preset = DEFAULT_PRESET) -> str:
    """The transcript as SubRip subtitles."""
    blocks = []
    for number, cue in enumerate(cues_of(transcript, preset), 1):
        text = (prefix(cue.voice) + "\n".join(cue.lines)).replace("-->", "→")
        blocks.append(f"{number}\n{_stamp(cue.start, ',')} --> {_stamp(cue.end, ',')}\n{text}\n")
    return "\n".join(blocks)


def vtt(transcript: Transcript, preset: Preset = DEFAULT_PRESET) -> str:
    """WebVTT (W3C), a voice for each speaker, or for each channel."""
    blocks = ["WEBVTT\n"]
    for cue in cues_of(transcript, preset):
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


def ttml(transcript: Transcript, preset: Preset = DEFAULT_PRESET) -> str:
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
    for cue in cues_of(transcript, preset):
        times = f"begin={quoteattr(_stamp(cue.start, '.'))} end={quoteattr(_stamp(cue.end, '.'))}"
        agent = f" ttm:agent={quoteattr(cue.speaker)}" if cue.speaker else ""
        text = _xml(prefix(cue.voice)) + "<br/>".join(map(_xml, cue.lines))
        lines.append(f"    <p {times}{agent}>{text}</p>")
    return "\n".join([*lines, "  </div></body>", "</tt>", ""])


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
