"""Passages in SQL: written with a job's end, deleted with its transcript.

A word's start (milliseconds after the passage's), length (milliseconds) and confidence (ten-thousandths) are
eight bytes of `passages.times`; its text is between the spaces of `passages.text`.
"""

import struct
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, insert

from spool.domain.archive.passages import Passage, Spoken
from spool.tables import passages

PIECE = 200
"""Rows of a statement: making them all would let the transaction of a day's recording look abandoned."""
_WORD = struct.Struct("<IHH")
_MOST_MS, _LONGEST_MS, _SURE = (1 << 32) - 1, (1 << 16) - 1, 10_000


def write_passages(tx: Connection, job_id: str, project: str, found: Sequence[Passage]) -> None:
    """Write a job's passages. The last one first: a search reads the newest rows first, and so finds the
    passages of one recording in the order in which they are spoken."""
    last_first = found[::-1]
    for at in range(0, len(last_first), PIECE):
        tx.execute(insert(passages), [row_of(job_id, project, each) for each in last_first[at : at + PIECE]])


def drop_passages(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the passages of these jobs."""
    tx.execute(delete(passages).where(passages.c.job_id.in_(job_ids)))


def row_of(job_id: str, project: str, passage: Passage) -> dict[str, Any]:
    """The column values of a passage, except its id."""
    start = passage.words[0].start
    return {
        "job_id": job_id,
        "project": project,
        "channel": passage.channel,
        "speaker": passage.speaker,
        "own_words": passage.own,
        "start_seconds": start,
        "text": " ".join(word.text for word in passage.words),
        "times": b"".join(_packed(word, start) for word in passage.words),
        "terms": passage.terms,
    }


def passage_of(row: Row[Any]) -> Passage:
    """The passage of a row."""
    start = row.start_seconds
    words = tuple(
        Spoken(
            text,
            round(start + after / 1000, 3),
            round(start + (after + length) / 1000, 3),
            confidence / _SURE,
        )
        for text, (after, length, confidence) in zip(
            row.text.split(" "), _WORD.iter_unpack(row.times), strict=True
        )
    )
    return Passage(row.channel, row.speaker, row.own_words, words)


def _packed(word: Spoken, start: float) -> bytes:
    after = min(max(0, round(1000 * (word.start - start))), _MOST_MS)
    length = min(max(0, round(1000 * (word.end - word.start))), _LONGEST_MS)
    return _WORD.pack(after, length, round(_SURE * word.confidence))
