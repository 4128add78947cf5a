"""Tables for other tools: TSV with one segment a line, and CTM with one word a line."""

from spool.domain.transcript import Transcript
from spool.formats.text import has_channels


def tsv(transcript: Transcript) -> str:
    """`start`, `end` (whole milliseconds) and `text`, as Whisper writes them; with `channel` (from 1) before
    the text where channels were kept apart."""
    many = has_channels(transcript)
    lines = ["start\tend\tchannel\ttext" if many else "start\tend\ttext"]
    for segment in transcript.segments:
        channel = f"\t{segment.channel + 1}" if many else ""
        text = " ".join(segment.text.split())
        lines.append(f"{round(segment.start * 1000)}\t{round(segment.end * 1000)}{channel}\t{text}")
    return "\n".join(lines) + "\n"


def ctm(transcript: Transcript) -> str:
    """NIST's time-marked conversation form (sclite): recording, channel (from 1), start and duration in
    seconds, word, confidence. White space inside a name or a word becomes `_`; sorted by channel, start."""
    recording = "_".join(transcript.audio.name.split()) or "recording"
    lines = []
    for word in sorted(transcript.words, key=lambda word: (word.channel, word.start)):
        text = "_".join(word.text.split())
        times = f"{word.start:.3f} {max(word.end - word.start, 0):.3f}"
        lines.append(f"{recording} {word.channel + 1} {times} {text} {word.confidence:.4f}\n")
    return "".join(lines)
