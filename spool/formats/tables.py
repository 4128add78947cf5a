"""Tables for other tools: TSV with one segment per line, CTM with one word, RTTM with one turn."""

from spool.domain.transcript import Transcript
from spool.errors import NotFound
from spool.formats.text import has_channels


def tsv(transcript: Transcript) -> str:
    """`start`, `end` (whole milliseconds) and `text`, as Whisper writes them; with `channel` (from 1) before
    the text if channels were kept apart, and then `speaker` (a label) if speakers were told apart."""
    many, speakers = has_channels(transcript), bool(transcript.speakers)
    columns = ["start", "end", *["channel"] * many, *["speaker"] * speakers, "text"]
    lines = ["\t".join(columns)]
    for segment in transcript.segments:
        channel = f"\t{segment.channel + 1}" if many else ""
        text = " ".join(segment.text.split())
        speaker = f"\t{segment.speaker or ''}" if speakers else ""
        lines.append(f"{round(segment.start * 1000)}\t{round(segment.end * 1000)}{channel}{speaker}\t{text}")
    return "\n".join(lines) + "\n"


def ctm(transcript: Transcript) -> str:
    """NIST's time-marked conversation form (sclite): recording, channel (from 1), start and duration in
    seconds, word, confidence; then the type `lex` and the speaker's label (NIST RT-09), if speakers were told
    apart. White space inside a name or a word becomes `_`; sorted by channel, start."""
    recording = _recording(transcript)
    lines = []
    for word in sorted(transcript.words, key=lambda word: (word.channel, word.start)):
        text = "_".join(word.text.split())
        times = f"{word.start:.3f} {max(word.end - word.start, 0):.3f}"
        speaker = f" lex {word.speaker or '<NA>'}" if transcript.speakers else ""
        lines.append(f"{recording} {word.channel + 1} {times} {text} {word.confidence:.4f}{speaker}\n")
    return "".join(lines)


def rttm(transcript: Transcript) -> str:
    """NIST's rich transcription time marks (RT-09): a SPEAKER line for each turn, by start. White space
    inside the recording's name becomes `_`. Raises NotFound if speakers were not requested."""
    if transcript.diarization is None:
        raise NotFound("There are no speakers: submit the job with the option `diarization`.")
    recording = _recording(transcript)
    return "".join(
        f"SPEAKER {recording} {turn.channel + 1} {turn.start:.3f} {turn.end - turn.start:.3f} <NA> <NA> "
        f"{turn.speaker} <NA> <NA>\n"
        for turn in transcript.turns
    )


def _recording(transcript: Transcript) -> str:
    return "_".join(transcript.audio.name.split()) or "recording"
