"""Plain text: one line for each segment, or whole paragraphs. Also when and how speakers are named.

If speakers were told apart, a line begins with the speaker's name: the one that a person gave, else `Speaker
1` for `speaker_0`. Else, if channels were kept apart, it begins with the channel.
"""

import re
from collections.abc import Callable, Iterator

from spool.domain.spacing import join_words
from spool.domain.transcript import Segment, Speaker, Transcript

# A pause that begins a new paragraph, and the length (characters) from which one ends with its sentence.
PAUSE_SECONDS = 2.0
PARAGRAPH_CHARACTERS = 700
_SENTENCE_ENDS = (".", "?", "!", "…")
# Characters that XML 1.0 cannot contain, not even escaped.
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def txt(transcript: Transcript) -> str:
    """One line for each segment."""
    voice_of = voices_of(transcript)
    return "".join(prefix(voice_of(segment)) + segment.text + "\n" for segment in transcript.segments)


def paragraphs(transcript: Transcript) -> str:
    """Paragraphs separated by an empty line: a new one after a pause of two seconds, for another channel or
    speaker, and at the end of a sentence once one has grown long."""
    voice_of = voices_of(transcript)
    texts = [
        prefix(voice_of(group[0])) + join_words(segment.text for segment in group)
        for group in group_segments(transcript)
    ]
    return "\n\n".join(texts) + "\n" if texts else ""


def group_segments(transcript: Transcript) -> Iterator[list[Segment]]:
    """The segments of each paragraph."""
    group: list[Segment] = []
    for segment in transcript.segments:
        if group and _turns(group, segment):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _turns(group: list[Segment], following: Segment) -> bool:
    last = group[-1]
    another = following.channel != last.channel or following.speaker != last.speaker
    if another or following.start - last.end >= PAUSE_SECONDS:
        return True
    length = sum(len(segment.text) + 1 for segment in group)
    return length >= PARAGRAPH_CHARACTERS and last.text.endswith(_SENTENCE_ENDS)


def has_channels(transcript: Transcript) -> bool:
    """Whether more than one channel was transcribed separately."""
    separate = transcript.options.get("channels") == "separate" and transcript.audio.channels > 1
    return separate or any(segment.channel for segment in transcript.segments)


def voices_of(transcript: Transcript) -> Callable[[Segment], str]:
    """A function that names the voice of a segment; empty if there is only one voice."""
    names = {speaker.label: speaker_name(speaker) for speaker in transcript.speakers}
    many = has_channels(transcript)

    def voice_of(segment: Segment) -> str:
        if segment.speaker in names:
            return names[segment.speaker]
        return f"Channel {segment.channel + 1}" if many and not names else ""

    return voice_of


def speaker_name(speaker: Speaker) -> str:
    """The name that a person gave the speaker, else `Speaker 1` for `speaker_0`."""
    return speaker.name or f"Speaker {int(speaker.label.partition('_')[2]) + 1}"


def text_language(transcript: Transcript) -> str:
    """The language of the text; empty if unknown."""
    translated = transcript.options.get("task") == "translate"
    target = transcript.options.get("translate_to") or "en"
    return str(target) if translated else transcript.language or ""


def replace_non_xml(text: str) -> str:
    """`text` with U+FFFD for each character that XML cannot contain. Nothing is escaped."""
    return _NOT_XML.sub("\ufffd", text)


def prefix(voice: str) -> str:
    """The beginning of a line of this voice."""
    return f"{voice}: " if voice else ""
