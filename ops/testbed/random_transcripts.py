"""Transcripts and corrections drawn from a seed: of several channels and speakers, with pauses, alternatives
and scripts without spaces."""

from datetime import UTC, datetime
from random import Random

from ops.testbed.running_api import transcript_of
from spool.domain.archive.edits import Edit
from spool.domain.transcript import (
    Alternative,
    ChunkNbest,
    NbestText,
    Segment,
    Speaker,
    Transcript,
    Turn,
    Word,
    recount_speakers,
    text_of_words,
)

NOW = datetime(2026, 11, 28, tzinfo=UTC)
LABELS = ("speaker_0", "speaker_1", "speaker_2")
_SAID = (
    "and",
    "the",
    "Kowalski",
    "light",
    "l'eau",
    "日本",
    "語",
    "Ærø",
    "two words",
    "—",
    "burning",
    "until",
)


def draw_text(draw: Random, most: int = 4) -> str:
    """Up to so many words, some of which are said rarely."""
    rare = [f"w{chr(97 + draw.randrange(26))}{chr(97 + draw.randrange(26))}lt" for _ in range(3)]
    return " ".join(draw.choices((*_SAID, *rare), k=draw.randint(0, most)))


def draw_transcript(
    job_id: str, draw: Random, *, most: int = 200, channels: int = 2, nbest: bool = False
) -> Transcript:
    """Up to so many words in each of so many channels, a segment for each turn of a speaker."""
    words: list[Word] = []
    segments: list[Segment] = []
    turns: list[Turn] = []
    chunks: list[ChunkNbest] = []
    labels = LABELS[: draw.randint(1, 3)]
    longest = draw.choice((4, 30, 120))
    for channel in range(draw.randint(1, channels)):
        at, count = draw.choice((0.0, 0.125)), len(words) + draw.randint(0, most)
        while len(words) < count:
            first, label = len(words), draw.choice(labels)
            for _ in range(min(draw.randint(1, longest), count - first)):
                words.append(_draw_word(draw, at, channel, label))
                at = words[-1].end + (2.5 if draw.random() < 0.04 else draw.choice((0.0, 0.0, 0.125)))
            segments.append(_segment(words, first, channel, label))
            turns.append(Turn(start=words[first].start, end=words[-1].end, speaker=label, channel=channel))
            if nbest and draw.random() < 0.5:
                heard = [" ".join([draw_text(draw), segments[-1].text]), segments[-1].text]
                options = tuple(NbestText(text=text, score=-1.0) for text in heard)
                span = {"start": words[first].start, "end": words[-1].end, "channel": channel}
                chunks.append(ChunkNbest.model_validate({**span, "hypotheses": options}))
    speakers = tuple(Speaker(label=label, talk_seconds=1.0, words=0) for label in LABELS)
    return transcript_of(job_id, ("a",)).model_copy(
        update={
            "words": tuple(words),
            "segments": tuple(segments),
            "text": text_of_words(words),
            "speakers": recount_speakers(speakers, words),
            "turns": tuple(sorted(turns, key=lambda turn: turn.start)),
            "nbest": tuple(chunks),
        }
    )


def _draw_word(draw: Random, at: float, channel: int, label: str) -> Word:
    alternatives = (Alternative(text=draw.choice(_SAID), confidence=0.25),) if draw.random() < 0.05 else ()
    return Word(
        text=draw.choice(_SAID) if draw.random() < 0.9 else draw_text(draw) or "oh",
        start=round(at, 3),
        end=round(at + draw.choice((0.125, 0.25, 0.5)), 3),
        confidence=draw.choice((0.25, 0.5, 1.0)),
        channel=channel,
        speaker=label,
        alternatives=alternatives,
        omitted=draw.random() < 0.02,
    )


def _segment(words: list[Word], first: int, channel: int, label: str) -> Segment:
    return Segment(
        start=words[first].start,
        end=words[-1].end,
        text=text_of_words(words[first:]),
        channel=channel,
        first_word=first,
        last_word=len(words) - 1,
        speaker=label,
    )


def draw_edit(draw: Random, words: int, revision: int) -> Edit:
    """An edit of up to 60 of so many words, which may not fit those before it."""
    first = draw.randrange(words)
    last = min(first + draw.choice((0, 0, 0, 1, 3, 60)), words - 1)
    kind = draw.random()
    text = None if kind < 0.2 else "" if kind < 0.35 else draw_text(draw, draw.choice((1, 2, 4, 60)))
    speaker = draw.choice(LABELS) if text is None or draw.random() < 0.2 else None
    return Edit(revision, first, last, text, speaker, "Bo", NOW)
