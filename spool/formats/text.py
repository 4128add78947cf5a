"""Plain text: one line for each segment, or whole paragraphs. Also when and how channels are labelled."""

from collections.abc import Iterator

from spool.domain.transcript import Segment, Transcript

# A pause that begins a new paragraph, and the length (characters) from which one ends with its sentence.
PAUSE_SECONDS = 2.0
PARAGRAPH_CHARACTERS = 700
_SENTENCE_ENDS = (".", "?", "!", "…")


def txt(transcript: Transcript) -> str:
    """One line for each segment."""
    many = has_channels(transcript)
    return "".join(label(segment.channel, many) + segment.text + "\n" for segment in transcript.segments)


def paragraphs(transcript: Transcript) -> str:
    """Paragraphs with an empty line between: a new one after a pause of two seconds, for another channel, and
    where one has grown long and a sentence ends."""
    many = has_channels(transcript)
    texts = [
        label(group[0].channel, many) + " ".join(segment.text for segment in group)
        for group in _grouped(transcript)
    ]
    return "\n\n".join(texts) + "\n" if texts else ""


def _grouped(transcript: Transcript) -> Iterator[list[Segment]]:
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
    if following.channel != last.channel or following.start - last.end >= PAUSE_SECONDS:
        return True
    length = sum(len(segment.text) + 1 for segment in group)
    return length >= PARAGRAPH_CHARACTERS and last.text.endswith(_SENTENCE_ENDS)


def has_channels(transcript: Transcript) -> bool:
    """Whether more than one channel was transcribed separately."""
    separate = transcript.options.get("channels") == "separate" and transcript.audio.channels > 1
    return separate or any(segment.channel for segment in transcript.segments)


def label(channel: int, many: bool) -> str:
    """The prefix of a line of this channel; empty with one channel only."""
    return f"Channel {channel + 1}: " if many else ""
