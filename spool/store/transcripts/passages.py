"""Passages in SQL and the words they have: written with a job's end, deleted with its transcript.

A word's start (milliseconds after the passage's), length (milliseconds) and confidence (ten-thousandths) are
eight bytes of `passages.times`; its text is between the spaces of `passages.text`. What else was heard is in
`passages.alternatives`, a JSON array for each reading: first and last word, text, confidence.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import (
    BindParameter,
    Connection,
    Insert,
    Label,
    Row,
    Select,
    Text,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.expression import FunctionElement

from spool.domain.archive.passages import Passage, Spoken, sounds_of
from spool.domain.archive.readings import AlternativeReading
from spool.domain.archive.review import REASONS, ReviewPassage
from spool.domain.spacing import join_words
from spool.store.sql import ManyRows
from spool.tables import passage_words, passages, review_passages, review_recordings
from spool.tables.record import values_of
from spool.wer import normal_words

PIECE, WORDS = 200, 5000
"""Rows of a statement: building all of them at once would let the transaction of a day's recording look
abandoned."""
GAP = 16
"""Between the ids of a job's passages, as they are first written: so that a correction that makes more of
them leaves the others as they are."""
_WORD = struct.Struct("<IHH")
_MOST_MS, _LONGEST_MS, _SURE = (1 << 32) - 1, (1 << 16) - 1, 10_000


class JobPassages(NamedTuple):
    """The passages of one job's transcript; `review`: its passages to review."""

    job_id: str
    project: str
    passages: Sequence[Passage]
    review: Sequence[ReviewPassage] = ()


def write_passages(tx: Connection, *of_jobs: JobPassages) -> None:
    """Write the passages of these jobs. The last one of each first: a search reads the newest rows first, and
    so finds the passages of one recording in the order in which they are spoken."""
    last_first = [(job_id, project, each) for job_id, project, own, _ in of_jobs for each in own[::-1]]
    for at in range(0, len(last_first), PIECE):
        _PASSAGES.execute(tx, [row_of(*each) for each in last_first[at : at + PIECE]])
    for project, own in groupby(sorted(of_jobs, key=_project), key=_project):
        words = [(*each, job_id) for job_id, _, spoken, _ in own for each in sounds_of(spoken)]
        for at in range(0, len(words), WORDS):
            _write_words(tx, project, words[at : at + WORDS])
    review = [_review_row(one.job_id, one.project, each) for one in of_jobs for each in one.review]
    for at in range(0, len(review), PIECE):
        _REVIEW.execute(tx, review[at : at + PIECE])
    if review:
        tx.execute(_RECORDINGS, {"reviewed": [one.job_id for one in of_jobs if one.review]})


class _next_id(FunctionElement[int]):  # noqa: N801 - reads as the SQL function it is
    """An id above all others, and `GAP` above the one before."""

    inherit_cache = True


@compiles(_next_id)
def _compile(element: _next_id, compiler: SQLCompiler, **kw: Any) -> str:  # noqa: ANN401
    del element, kw
    if compiler.dialect.name == "postgresql":
        return f"nextval('passages_id_seq') * {GAP}"
    return f"(SELECT coalesce(max(id), 0) / {GAP} * {GAP} + {GAP} FROM passages)"  # noqa: S608


_PASSAGES = ManyRows(
    passages, [column.name for column in passages.c if column.name != "id"], {"id": _next_id()}
)
_REVIEW = ManyRows(
    review_passages,
    [column.name for column in review_passages.c if column.name not in {"checked_at", "checked_by"}],
)


def read_first_words(tx: Connection, job_ids: Sequence[str]) -> dict[str, str]:
    """The first passage's own words of each of these jobs that has any."""
    if not job_ids:
        return {}
    first = (
        select(func.max(passages.c.id))  # the last passage of a job was written first
        .where(passages.c.job_id.in_(job_ids))
        .group_by(passages.c.job_id)
    )
    rows = tx.execute(
        select(passages.c.job_id, passages.c.text, passages.c.own_words).where(passages.c.id.in_(first))
    )
    return {row.job_id: join_words(row.text.split(" ")[: row.own_words]) for row in rows}


def drop_passages(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the passages of these jobs, and their words."""
    for table in (passages, passage_words):
        tx.execute(delete(table).where(table.c.job_id.in_(job_ids)))


def drop_review(tx: Connection, job_ids: Sequence[str]) -> None:
    """Delete the review passages of these jobs, and who checked them."""
    for table in (review_passages, review_recordings):
        tx.execute(delete(table).where(table.c.job_id.in_(job_ids)))


def recording_doubts(job_ids: Sequence[str] | BindParameter[str]) -> Select[Any]:
    """SQL: the row of `review_recordings` that the passages of each of these jobs give."""
    c = review_passages.c
    length, unchecked = c.end_seconds - c.start_seconds, c.checked_at.is_(None)

    def mean(name: str) -> Label[Any]:
        doubtful = func.sum(case((unchecked, c[name] * length), else_=0.0))
        return func.coalesce(doubtful / func.nullif(func.sum(length), 0.0), 0.0).label(name)

    return (
        select(
            c.job_id,
            c.project,
            func.count().label("passages"),
            func.sum(case((unchecked, 1), else_=0)).label("unchecked"),
            *map(mean, ("doubt", *REASONS)),
        )
        .where(c.job_id.in_(job_ids))
        .group_by(c.job_id, c.project)
    )


_GIVEN = recording_doubts(bindparam("reviewed", expanding=True))
_RECORDINGS = insert(review_recordings).from_select(_GIVEN.selected_columns.keys(), _GIVEN)


def update_recording(tx: Connection, job_id: str) -> None:
    """Update the recording's doubt after marks on the job's passages changed. Concurrent changes of the same
    job's marks wait until the commit, so that none is missed."""
    own = review_recordings.c.job_id == job_id
    tx.execute(select(review_recordings.c.job_id).where(own).with_for_update())
    row = tx.execute(recording_doubts([job_id])).one_or_none()
    if row is not None:
        tx.execute(update(review_recordings).where(own).values(**row._mapping))


def row_of(job_id: str, project: str, passage: Passage) -> dict[str, Any]:
    """The column values of a passage, except its id."""
    return {
        "job_id": job_id,
        "project": project,
        **content_of(passage),
        "terms": passage.terms,
        "pairs": passage.pairs,
        "alternative_terms": passage.reading_terms or None,
    }


def content_of(passage: Passage) -> dict[str, Any]:
    """The column values of what a passage says; what is searched in it is made of that."""
    start = passage.words[0].start
    return {
        "channel": passage.channel,
        "speaker": passage.speaker,
        "own_words": passage.own,
        "start_seconds": start,
        "text": " ".join(word.text for word in passage.words),
        "times": _times(passage.words, start),
        "alternatives": json.dumps(passage.readings, ensure_ascii=False) if passage.readings else None,
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
    readings = tuple(readings_in(row.alternatives))
    return Passage(row.channel, row.speaker, row.own_words, words, (), readings)


def readings_in(alternatives: str | None) -> Iterator[AlternativeReading]:
    """What else was heard, by the column of a passage."""
    return (AlternativeReading(*each) for each in json.loads(alternatives or "[]"))


def _review_row(job_id: str, project: str, passage: ReviewPassage) -> dict[str, Any]:
    own = {"job_id": job_id, "project": project, "doubt": passage.doubts.total}
    words = {"errors": 0, "words": len(normal_words(passage.text))}
    return values_of(passage, ReviewPassage) | own | words


def _times(words: Sequence[Spoken], start: float) -> bytes:
    numbers: list[int] = []
    for _, begins, ends, confidence in words:
        numbers += (
            min(max(0, round(1000 * (begins - start))), _MOST_MS),
            min(max(0, round(1000 * (ends - begins))), _LONGEST_MS),
            round(_SURE * confidence),
        )
    return struct.pack("<" + "IHH" * len(words), *numbers)


def _write_words(tx: Connection, project: str, words: Sequence[tuple[str, str, str]]) -> None:
    """The rows (sound, word, job) by which a search by sound learns how the jobs' words are spelled; in one
    statement on PostgreSQL, to which a statement for each row takes several times as long."""
    if tx.dialect.name != "postgresql":
        rows = [dict(zip(_WORD_NAMES, word, strict=True), project=project) for word in words]
        tx.execute(insert(passage_words), rows)
        return
    columns = {
        name: " ".join(column) for name, column in zip(_WORD_NAMES, zip(*words, strict=True), strict=True)
    }
    tx.execute(_WORDS_WRITTEN, {"of_project": project, **columns})


def _words_written() -> Insert:
    columns = [func.string_to_array(bindparam(name, type_=Text()), " ") for name in _WORD_NAMES]
    sounding = func.unnest(*columns).table_valued(*_WORD_NAMES).render_derived()
    own = select(bindparam("of_project", type_=passage_words.c.project.type), *sounding.c)
    return insert(passage_words).from_select(["project", *_WORD_NAMES], own)


_WORD_NAMES = ("sound", "token", "job_id")
_WORDS_WRITTEN = _words_written()


def _project(of_job: JobPassages) -> str:
    return of_job.project
