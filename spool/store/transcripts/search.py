"""The search over all words of all transcripts, newest recording first.

The index finds passages; `spool.domain.archive.query` decides where the words are in a passage and how
certain the model was of them. A word searched by its sound is first looked up among the words that the
archive has, and then searched with their spellings.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, exists, func, null, or_, select

from spool.domain.archive.closures import ClosedParts
from spool.domain.archive.passages import Passage
from spool.domain.archive.query import Match, Near, Query, Term, fuzzy_terms, matches_query, with_spellings
from spool.domain.archive.tokens import sound_of, sounds_near
from spool.domain.jobs import Job
from spool.errors import InvalidRequest
from spool.store.archive.closed import closed_parts
from spool.store.archive.versions import has_later_transcript
from spool.store.jobs import JobFilter, filter_conditions
from spool.store.rows import find_jobs
from spool.store.sql import Page, cursor_of, position_of
from spool.store.transcripts.match import matching, passage_index, phrase_pairs
from spool.store.transcripts.passages import passage_of
from spool.store.transcripts.spellings import find_spellings
from spool.tables import jobs, passages
from spool.wer import edit_distance

MOST_READ = 2000
"""How many passages one page reads at most if only few have the requested confidence."""
MOST_SPELLINGS = 20
ALIKE, ALIKE_NEAR = 0.5, 0.65
"""The least similarity of two spellings: the share of letters that need no edit. The second one is for words
whose sounds differ."""

_UNREAD = {"terms", "pairs", "project", "alternatives", "alternative_terms"}
_COLUMNS = [column for column in passages.c if column.name not in _UNREAD]


@dataclass(frozen=True, slots=True)
class TranscriptSearch:
    """What to search for, and in which jobs. `speaker` is a label or the name that a person gave;
    `confidence`: the least confidence of each matching word. `alternatives`: also search the alternatives
    that jobs kept beside their transcripts. `newest`: only each recording's newest transcript."""

    query: Query
    jobs: JobFilter
    speaker: str | None = None
    confidence: float = 0.0
    alternatives: bool = False
    newest: bool = False
    opened: bool = False
    """Whether passages with closed words are among the hits."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage, and where the words are in it: at least one place."""

    job: Job
    passage: Passage
    places: tuple[Match, ...]
    closed: bool = False
    """Whether something in the passage is closed to readers."""


def search_transcripts(
    tx: Connection, wanted: TranscriptSearch, cursor: str | None = None, limit: int = 50
) -> Page[Hit]:
    """Up to `limit` (1 to 200) hits after `cursor`; fewer, with a cursor for the rest, if many passages had
    to be passed over.

    Raises InvalidRequest for a limit out of range or a cursor that belongs to another search.
    """
    if not 1 <= limit <= 200:
        raise InvalidRequest(f"A page holds 1 to 200 hits, not {limit}.")
    before = None if cursor is None else int(position_of(cursor, wanted, 1)[0])
    query = with_spellings(
        wanted.query,
        {term: _spellings_of(tx, term, wanted.jobs.project) for term in fuzzy_terms(wanted.query)},
    )
    closed = _Closed(tx)
    hits: list[tuple[str, Passage, tuple[Match, ...], bool]] = []
    # Closed passages leave no trace: neither in what is counted nor in where the next page begins.
    read, last, seen, size = 0, before, before, limit + 1
    while read < MOST_READ:
        rows = _candidates(tx, wanted, query, last, size)
        closed.look({row.job_id for row in rows})
        for row in rows:
            last = row.id
            passage = passage_of(row)
            is_closed = closed.covers(row.job_id, passage)
            if is_closed and not wanted.opened:
                continue
            read += 1
            places = _sure(matches_query(query, passage, wanted.alternatives), passage, wanted.confidence)
            if places:
                if len(hits) == limit:
                    return Page(_hits(tx, hits), cursor_of(wanted, str(seen)))
                hits.append((row.job_id, passage, places, is_closed))
            seen = row.id
        if len(rows) < size:
            return Page(_hits(tx, hits), None)
        size = max(1, min(2 * size, MOST_READ - read))  # so that few matches do not take many statements
    return Page(_hits(tx, hits), cursor_of(wanted, str(seen)))


class _Closed:
    """What is closed of the jobs that were met."""

    def __init__(self, tx: Connection) -> None:
        self._tx = tx
        self._parts: dict[str, ClosedParts] = {}

    def look(self, job_ids: set[str]) -> None:
        """Find out about these jobs."""
        new = find_jobs(self._tx, job_ids - self._parts.keys())
        self._parts |= closed_parts(self._tx, new.values())

    def covers(self, job_id: str, passage: Passage) -> bool:
        """Whether something in the passage is closed."""
        words = passage.words
        end = max(word.end for word in words)
        return self._parts[job_id].covers(words[0].start, end, passage.speaker)


def _candidates(
    tx: Connection, wanted: TranscriptSearch, query: Query, before: int | None, limit: int
) -> Sequence[Row[Any]]:
    """Up to `limit` passages that may match, the newest first: fewer where there are no more."""
    own = tx.execute(_rows(tx, wanted, query, before, limit, alternatives=False)).all()
    if not wanted.alternatives:
        return own
    other = tx.execute(_rows(tx, wanted, query, before, limit, alternatives=True)).all()
    rows = {row.id: row for row in (*own, *other)}
    return [rows[number] for number in sorted(rows, reverse=True)[:limit]]


def _rows(
    tx: Connection, wanted: TranscriptSearch, query: Query, before: int | None, limit: int, alternatives: bool
) -> Select[Any]:
    source, number, _ = passage_index(tx.dialect.name, alternatives)
    kept = passages.c.alternatives if wanted.alternatives else null().label("alternatives")
    rows = select(*_COLUMNS, kept).select_from(source)
    rows = rows.where(matching(tx.dialect.name, query, alternatives), *_conditions(tx, wanted))
    if before is not None:
        rows = rows.where(number < before)
    if tx.dialect.name == "postgresql" and _is_overestimated(query, alternatives):
        # Not in the order of an index: PostgreSQL would read on until it has found enough of them.
        number = number + 0
    return rows.order_by(number.desc()).limit(limit)


def _is_overestimated(query: Query, alternatives: bool) -> bool:
    """Whether PostgreSQL overestimates how frequent the query is: for rare spellings, and for words beside or
    near each other without a pair that tells how often they are. Alternatives have no order except for their
    pairs."""
    near = any(isinstance(each, Near) for each in query.wanted)
    phrases = any(len(each.tokens) > 1 for each in query.wanted if isinstance(each, Term))
    ordered = not alternatives and (near or (phrases and not phrase_pairs(query)))
    return ordered or bool(fuzzy_terms(query))


def _conditions(tx: Connection, wanted: TranscriptSearch) -> list[ColumnElement[bool]]:
    """Conditions besides the words: the project on the passage itself, so that its index is used; the rest on
    jobs."""
    conditions = _of_project(tx, wanted)
    narrowed = wanted.speaker is not None or wanted.jobs != JobFilter(project=wanted.jobs.project)
    if narrowed or wanted.newest:
        of_jobs = [jobs.c.id == passages.c.job_id, *filter_conditions(wanted.jobs)]
        if wanted.speaker is not None:
            of_jobs.append(_speaks(tx.dialect.name, wanted.speaker))
        if wanted.newest:
            of_jobs.append(~has_later_transcript())
        conditions.append(exists(select(jobs.c.id).where(*of_jobs).correlate(passages)))
    return conditions


def _of_project(tx: Connection, wanted: TranscriptSearch) -> list[ColumnElement[bool]]:
    project = passage_index(tx.dialect.name)[2]
    return [] if wanted.jobs.project is None else [project == wanted.jobs.project]


def _speaks(dialect: str, speaker: str) -> ColumnElement[bool]:
    """SQL: the passage's speaker has this label, or this name in any case."""
    label: ColumnElement[Any]
    name: ColumnElement[Any]
    if dialect == "postgresql":
        known = func.json_array_elements(jobs.c.speakers).table_valued("value").render_derived()
        label, name = (known.c.value.op("->>")(key) for key in ("label", "name"))
    else:
        known = func.json_each(jobs.c.speakers).table_valued("value")
        label, name = (func.json_extract(known.c.value, f"$.{key}") for key in ("label", "name"))
    called = (
        select(known.c.value)
        .correlate(passages, jobs)
        .where(label == passages.c.speaker, func.lower(name) == func.lower(speaker))
    )
    return or_(passages.c.speaker == speaker, and_(jobs.c.speakers.is_not(None), exists(called)))


def _sure(places: list[Match], passage: Passage, confidence: float) -> tuple[Match, ...]:
    return tuple(place for place in places if (place.confidence_in(passage) or 0.0) >= confidence)


def _hits(tx: Connection, found: Sequence[tuple[str, Passage, tuple[Match, ...], bool]]) -> tuple[Hit, ...]:
    """The hits with their jobs, in one statement, since the hits of a page may be in as many jobs."""
    owners = find_jobs(tx, {job_id for job_id, *_ in found})
    return tuple(Hit(owners[job_id], passage, places, closed) for job_id, passage, places, closed in found)


def _spellings_of(tx: Connection, term: Term, project: str | None) -> tuple[str, ...]:
    """The spellings of a word in the project's archive, or in all, the most similar first."""
    token = term.tokens[0]
    likeness = {
        other: _likeness(token, other) for other in find_spellings(tx, sounds_near(term.sound or ""), project)
    }
    alike = [
        other
        for other, share in likeness.items()
        if share >= (ALIKE if sound_of(other) == term.sound else ALIKE_NEAR)
    ]
    return tuple(sorted(alike, key=lambda other: (-likeness[other], other))[:MOST_SPELLINGS])


def _likeness(one: str, other: str) -> float:
    return 1 - edit_distance(one, other) / max(len(one), len(other))
