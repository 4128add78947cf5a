"""A clip: a stretch of a recording to cite, in a version of its words that does not change. Pure."""

import json
import re
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeVar

from spool.domain.archive.edits import rebuild_words
from spool.domain.transcript import Segment, Speaker, Transcript, Turn, Word
from spool.errors import NotFound

_DIGITS = 16
_NAME_DIGITS = 8
_OF_WHOLE = (
    "nbest",
    "lattice",
    "speech",
    "dropped",
    "languages",
    "speech_without_words",
    "corrections",
    "closed",
)
_Timed = TypeVar("_Timed", Word, Segment, Turn)
_VERSION = re.compile(rf"([0-9a-f]{{{_DIGITS}}})(?:-r([1-9][0-9]{{0,8}}))?(?:-n[0-9a-f]{{{_NAME_DIGITS}}})?")


def version_of(transcript_sha256: str, revision: int, speakers: Iterable[Speaker] = ()) -> str:
    """What a citation calls a transcript: the first digits of its record's SHA-256, how many corrections it
    includes, and the first digits of the names that people gave its speakers."""
    names = {each.label: each.name for each in speakers if each.name}
    digest = sha256(json.dumps(names, sort_keys=True).encode()).hexdigest()[:_NAME_DIGITS]
    return (
        transcript_sha256[:_DIGITS] + (f"-r{revision}" if revision else "") + (f"-n{digest}" if names else "")
    )


def revision_of(version: str, transcript_sha256: str, newest: int) -> int:
    """How many corrections a cited version includes. Raises NotFound if the transcript has none such."""
    match = _VERSION.fullmatch(version)
    revision = int(match[2] or 0) if match else 0
    if match is None or match[1] != transcript_sha256[:_DIGITS] or revision > newest:
        raise NotFound(
            f"version: the transcript has no version {version}; the newest is "
            f"{version_of(transcript_sha256, newest)}."
        )
    return revision


def cut_transcript(transcript: Transcript, start: float, end: float) -> Transcript:
    """The words whose middle lies between two times, as a transcript of the clip: its times are seconds from
    `start`. Statements about whole chunks, such as n-best lists, are left out."""

    def move(time: float) -> float:
        return round(min(max(time, start), end) - start, 3)

    def place(each: _Timed) -> _Timed:
        return each.model_copy(update={"start": move(each.start), "end": move(each.end)})

    homes = [at for at, word in enumerate(transcript.words) if start <= (word.start + word.end) / 2 < end]
    words = [place(transcript.words[at]) for at in homes]
    cut = rebuild_words(transcript, words, homes)
    turns = [place(turn) for turn in transcript.turns if turn.start < end and start < turn.end]
    heard = {turn.speaker for turn in turns} | {word.speaker for word in words}
    return cut.model_copy(
        update={
            "audio": cut.audio.model_copy(update={"duration": round(end - start, 3)}),
            "segments": tuple(map(place, cut.segments)),
            "turns": tuple(turns),
            "speakers": tuple(
                each.model_copy(update={"talk_seconds": _talk_seconds(turns, each.label)})
                for each in cut.speakers
                if each.label in heard
            ),
            **dict.fromkeys(_OF_WHOLE, ()),
        }
    )


def _talk_seconds(turns: Iterable[Turn], speaker: str) -> float:
    return round(sum(turn.end - turn.start for turn in turns if turn.speaker == speaker), 3)
