"""The search by sound: where in what was heard phones fit best, however it was written.

Three steps, each on what the one before has left: the index of pairs (`spool.sounds.pairs`) gives cells, the
blocks of these cells are aligned with the phones (`spool.sounds.spotting`), and places that overlap become
one hit. What is closed to readers is left out before anything is counted.
"""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Row, Select, exists, func, select, text

from spool.domain.archive.closures import ClosedParts
from spool.domain.archive.passages import Passage
from spool.domain.jobs import Job, JobState
from spool.sounds.blocks import FRAMES, KeptFrames, open_blocks
from spool.sounds.lexicon import Pronunciation
from spool.sounds.pairs import CELL, MOST_PAIRS, Bits, best_cells, pairs_of_phones
from spool.sounds.phones import FRAME_SECONDS, SILENCE
from spool.sounds.queries import SoundQuery
from spool.sounds.spotting import Costs, score_phones, spot_phones
from spool.store.archive.closed import closed_parts
from spool.store.archive.versions import has_later_transcript
from spool.store.database import BINARY
from spool.store.jobs import JobFilter, filter_conditions
from spool.store.rows import find_jobs
from spool.store.transcripts.passages import passage_of
from spool.store.transcripts.sounds import read_pairs
from spool.store.two_threads import TwoThreads, two_threads
from spool.tables import jobs, sound_pairs, sound_recordings, sound_segments

CANDIDATES = 1000
"""Cells that are aligned, for all ways to say the query together."""
LEAST_SCORE = -3.0
"""A phone: what fits less is no hit."""
BEFORE, AFTER = 25, 75
"""Frames around a cell that are aligned with it."""
SAME_FRAMES = 10
_ROWS = 500
"""Fetched at once."""
_WINDOW = BEFORE + CELL + AFTER


@dataclass(frozen=True, slots=True)
class SoundHit:
    """A place that sounds like the query. score: the log-likelihood ratio a phone, at most 0. passage: the
    words that are written around it, None if there are none."""

    job: Job
    channel: int
    start: float
    end: float
    score: float
    passage: Passage | None
    closed: bool = False


@dataclass(frozen=True, slots=True)
class FoundSounds:
    """The hits, best first; the hours that were searched; how many transcripts cannot be searched, since
    nothing that was heard is kept; and the jobs of which a block is damaged."""

    hits: tuple[SoundHit, ...]
    hours: float
    without: int
    damaged: tuple[str, ...] = ()


class _Cells(NamedTuple):
    """Candidates: job, channel and cell of each."""

    owners: list[tuple[str, int]]
    cells: NDArray[np.int64]


class _Place(NamedTuple):
    job_id: str
    channel: int
    first: int
    last: int
    score: float


def search_sounds(
    tx: Connection,
    query: SoundQuery,
    wanted: JobFilter,
    *,
    newest: bool = False,
    opened: bool = False,
    limit: int = 50,
) -> FoundSounds:
    """The `limit` places that sound most like the query, in these jobs. newest: only in each recording's
    newest transcript. opened: also what is closed to readers."""
    index = _Index(tx, wanted, newest=newest)
    share = MOST_PAIRS // len(query.ways)
    ways = [pairs_of_phones(way, share) for way in query.ways]
    with two_threads(tx) as threads:
        rows = index.read(threads, {pair for pairs in ways for pair in pairs})
        cells, (hours, without) = threads.both(
            lambda: index.find(rows, ways, CANDIDATES), lambda: index.measure(threads.second)
        )
        phones = {phone for way in query.ways for phone in way}
        candidates, costs, damaged = _load_candidates(threads, index, cells, phones)
    found = _rank_places(candidates, costs, query.ways, limit)
    hits = _open_hits(tx, _drop_overlaps(found), opened=opened, limit=limit)
    return FoundSounds(tuple(hits), hours, without, tuple(sorted(damaged)))


class _Index:
    """The pairs of the channels that are searched."""

    def __init__(self, tx: Connection, wanted: JobFilter, *, newest: bool) -> None:
        self._tx = tx
        self._project = wanted.project
        self._wanted = wanted
        self._newest = newest
        self._narrowed = newest or wanted != JobFilter(project=wanted.project)
        # First, since what is packed meanwhile is rather read twice than not at all.
        loose = tx.execute(self._recordings().where(sound_recordings.c.segment.is_(None))).all()
        s = sound_segments.c
        own = select(s.id, s.width).order_by(s.id)
        segments = tx.execute(own if self._project is None else own.where(s.project == self._project)).all()
        starts = np.cumsum([0, *(row.width for row in segments), *(row.width for row in loose)]).tolist()
        self._starts = {row.id: at for row, at in zip(segments, starts, strict=False)}
        self._packed: int = starts[len(segments)]
        self._loose = list(zip(starts[len(segments) :], loose, strict=False))
        self._width: int = starts[-1]
        self._padded = -(-self._width // 8) * 8

    def measure(self, tx: Connection) -> tuple[float, int]:
        """Hours that are searched, and transcripts that cannot be."""
        c = sound_recordings.c
        widths = select(func.coalesce(func.sum(c.width), 0)).where(*self._conditions())
        kept = exists(select(c.job_id).where(c.job_id == jobs.c.id))
        own = [*filter_conditions(self._wanted), jobs.c.transcript_key.is_not(None)]
        without = (
            select(func.count()).select_from(jobs).where(*own, jobs.c.state == JobState.DONE.value, ~kept)
        )
        hours = (tx.scalar(widths) or 0) * 8 * CELL * FRAME_SECONDS / 3600
        return hours, tx.scalar(without) or 0

    def read(self, threads: TwoThreads, pairs: Collection[int]) -> dict[int, Bits]:
        """The whole row of each of these pairs."""
        own = sorted(pairs)
        rows = dict(zip(own, np.zeros((len(own), self._padded), np.uint8), strict=True))

        def read(tx: Connection, some: slice) -> None:
            self._read_packed(tx, {pair: rows[pair] for pair in own[some]})
            self._read_loose(self._loose[some], rows)

        if threads.first.dialect.name == "sqlite":  # nothing to wait for but the interpreter, one at a time
            read(threads.first, slice(None))
        else:
            threads.both(
                lambda: read(threads.first, slice(0, None, 2)),
                lambda: read(threads.second, slice(1, None, 2)),
            )
        return rows

    def _read_packed(self, tx: Connection, rows: Mapping[int, Bits]) -> None:
        """Write what segments have into the rows of these pairs."""
        if not self._starts:
            return
        c = sound_pairs.c
        own = select(sound_segments.c.id)
        if self._project is not None:
            own = own.where(sound_segments.c.project == self._project)
        asked = select(c.pair, c.segment, c.bits).where(c.pair.in_(rows), c.segment.in_(own))
        # Slices of numpy's own arrays take four times as long.
        bytes_of = {pair: row.data for pair, row in rows.items()}
        found = tx.execute(asked, execution_options={BINARY: True})
        assert found.cursor is not None  # the driver's own rows: thousands, and nothing in them to convert
        while some := found.cursor.fetchmany(_ROWS):
            for pair, segment, bits in some:
                at = self._starts.get(segment)
                if at is not None:  # else it was packed since
                    bytes_of[pair][at : at + len(bits)] = bits
        found.close()

    @staticmethod
    def _read_loose(loose: Sequence[tuple[int, Row[Any]]], rows: Mapping[int, Bits]) -> None:
        """Write what these channels have into the rows."""
        for at, channel in loose:
            matrix = read_pairs(channel.pairs, channel.width)
            for pair, row in rows.items():
                row[at : at + channel.width] = matrix[pair]

    def find(self, rows: Mapping[int, Bits], ways: Sequence[Sequence[int]], most: int) -> NDArray[np.int64]:
        """The cells with the most pairs of any of these ways to say the query, `most` for all."""
        mask = self._mask() if self._narrowed else None
        found = [best_cells([rows[pair] for pair in pairs], most // len(ways), mask) for pairs in ways]
        return np.unique(np.concatenate(found))

    def _mask(self) -> Bits:
        """The cells of the jobs that are searched."""
        open_cells = np.zeros(self._padded, np.uint8)
        c = sound_recordings.c
        packed = select(c.segment, c.first_byte, c.width).where(c.segment.is_not(None), *self._conditions())
        for segment, first, width in self._tx.execute(packed):
            if segment in self._starts:  # else it was packed since
                at = self._starts[segment] + first
                open_cells[at : at + width] = 255
        open_cells[self._packed : self._width] = (
            255  # of those that are not packed only what is searched was read
        )
        return open_cells

    def _recordings(self) -> Select[Any]:
        return select(sound_recordings).where(*self._conditions()).order_by("job_id", "channel")

    def _conditions(self) -> list[ColumnElement[bool]]:
        c = sound_recordings.c
        conditions: list[ColumnElement[bool]] = [] if self._project is None else [c.project == self._project]
        if self._narrowed:
            own = [jobs.c.id == c.job_id, *filter_conditions(self._wanted)]
            own += [~has_later_transcript()] if self._newest else []
            conditions.append(exists(select(jobs.c.id).where(*own).correlate(sound_recordings)))
        return conditions

    def name(self, tx: Connection, cells: NDArray[np.int64]) -> _Cells:
        """The channels that cells belong to; those of deleted transcripts are left out."""
        owners: list[tuple[str, int]] = []
        numbers: list[int] = []
        packed = cells[cells // 8 < self._packed]
        starts = np.array(list(self._starts.values()), np.int64)
        of = np.searchsorted(starts, packed // 8, "right") - 1
        segments = np.array(list(self._starts), np.int64)[of] if len(packed) else packed
        first_cells = 8 * starts[of] if len(packed) else packed
        asked = np.stack([packed - first_cells, segments], axis=1).tolist()
        for cell, row in _join(tx, _NAMED, asked):
            owners.append((row.job_id, row.channel))
            numbers.append(cell - 8 * row.first_byte)
        for first, row in self._loose:
            for cell in cells[(cells >= 8 * first) & (cells < 8 * (first + row.width))].tolist():
                owners.append((row.job_id, row.channel))
                numbers.append(cell - 8 * first)
        return _Cells(owners, np.array(numbers, np.int64))


# Joined with a parameter, since SQLite would scan a table for a list of tuples.
_GIVEN = {
    "sqlite": "json_each(:keys) AS k CROSS JOIN",
    "postgresql": "json_array_elements(CAST(:keys AS json)) AS k(value) JOIN",
}
_ITEM = {"sqlite": "json_extract(k.value, '$[{}]')", "postgresql": "CAST(k.value ->> {} AS {})"}
_NAMED = (
    "SELECT {0} AS key, r.job_id, r.channel, r.first_byte FROM {given} sound_recordings AS r ON "
    "r.segment = {1} AND r.first_byte = (SELECT max(o.first_byte) FROM sound_recordings AS o "
    "WHERE o.segment = {1} AND o.first_byte <= {0} / 8) WHERE {0} / 8 < r.first_byte + r.width",
    ("bigint", "bigint"),
)
_BLOCKS = (
    "SELECT {3} AS key, b.block FROM {given} sound_blocks AS b ON "
    "b.job_id = {0} AND b.channel = {1} AND b.number = {2}",
    ("text", "integer", "integer", "integer"),
)
_PASSAGES = (
    "SELECT {3} AS key, p.channel, p.speaker, p.own_words, p.start_seconds, p.text, p.times, p.alternatives "
    "FROM {given} passages AS p ON p.id = (SELECT o.id FROM passages AS o WHERE o.job_id = {0} AND "
    "o.channel = {1} AND o.start_seconds <= {2} ORDER BY o.start_seconds DESC LIMIT 1)",
    ("text", "integer", "double precision", "integer"),
)


def _join(
    tx: Connection, asked: tuple[str, tuple[str, ...]], keys: Sequence[Sequence[object]]
) -> Iterator[tuple[int, Row[Any]]]:
    """The rows of a statement for these keys, each with its number."""
    if not keys:
        return
    statement, types = asked
    dialect = tx.dialect.name
    items = [_ITEM[dialect].format(at, kind) for at, kind in enumerate(types)]
    sql = text(statement.format(*items, given=_GIVEN[dialect]))
    found = tx.execute(sql, {"keys": json.dumps(keys)}, execution_options={BINARY: True})
    for row in found.all():
        yield row.key, row


def _load_candidates(
    threads: TwoThreads, index: _Index, cells: NDArray[np.int64], phones: Collection[int]
) -> tuple[_Cells, Costs, set[str]]:
    """These cells by their channels, what was heard of the phones in and around each, [_WINDOW, cells], and
    the jobs of which a block is damaged, which counts as silence."""

    def load(tx: Connection, own: NDArray[np.int64]) -> tuple[_Cells, Costs, set[str]]:
        named = index.name(tx, own)
        return named, *_load_windows(tx, named, phones)

    if threads.first.dialect.name == "sqlite":  # as with the rows
        return load(threads.first, cells)
    middle = len(cells) // 2
    (one, costs, damaged), (other, more_costs, more_damaged) = threads.both(
        lambda: load(threads.first, cells[:middle]), lambda: load(threads.second, cells[middle:])
    )
    named = _Cells(one.owners + other.owners, np.concatenate([one.cells, other.cells]))
    joined = {phone: np.concatenate([own, more_costs[phone]], axis=1) for phone, own in costs.items()}
    return named, joined, damaged | more_damaged


def _load_windows(tx: Connection, wanted: _Cells, phones: Collection[int]) -> tuple[Costs, set[str]]:
    """What was heard of these phones in these cells, and the jobs of which a block is damaged."""
    firsts = wanted.cells * CELL - BEFORE
    lows, lasts = firsts // FRAMES, (firsts + _WINDOW - 1) // FRAMES
    keys = [
        (*owner, number)
        for owner, both in zip(wanted.owners, np.stack([lows, lasts], axis=1).tolist(), strict=True)
        for number in both
    ]
    used = {key: at for at, key in enumerate(dict.fromkeys(keys)) if key[2] >= 0}
    rows = list(_join(tx, _BLOCKS, [(*key, at) for key, at in used.items()]))
    blocks = open_blocks([row.block for _, row in rows])
    owners = {at: job_id for (job_id, *_), at in used.items()}
    damaged = {owners[at] for (at, _), block in zip(rows, blocks, strict=True) if block is None}
    good = [(at, block) for (at, _), block in zip(rows, blocks, strict=True) if block is not None]
    slots = {at: slot for slot, (at, _) in enumerate(good)}
    slot_of = np.array([slots.get(used.get(key, -1), -1) for key in keys], np.int64).reshape(-1, 2)
    frames = firsts + np.arange(_WINDOW)[:, None]
    slot = np.where(frames // FRAMES == lows, slot_of[:, 0], slot_of[:, 1])
    kept = KeptFrames([block for _, block in good])
    return kept.costs(slot, frames % FRAMES, {*phones, SILENCE}), damaged


def _rank_places(
    wanted: _Cells, costs: Costs, ways: Sequence[Pronunciation], at_once: int
) -> Iterator[_Place]:
    """The best place of each cell and way to say the query, best first. Not more of them than are asked for
    are looked for, `at_once` and those that are as good."""
    scores = np.stack([score_phones(costs, way) for way in ways])
    order = np.argsort(-scores, axis=None, kind="stable")
    ranked = scores.ravel()[order]
    begin, end = 0, int(np.searchsorted(-ranked, -np.float32(LEAST_SCORE), "right"))
    while begin < end:
        least = ranked[min(begin + at_once, end) - 1]
        stop = int(np.searchsorted(-ranked, -least, "right"))
        way_of, cell_of = np.divmod(order[begin:stop], scores.shape[1])
        places = []
        for number, way in enumerate(ways):
            cells = cell_of[way_of == number]
            places += _place(wanted, costs, way, cells, scores[number, cells])
        yield from sorted(places, key=lambda each: (-each.score, each))
        begin = stop


def _place(
    wanted: _Cells, costs: Costs, way: Pronunciation, cells: NDArray[np.intp], scores: NDArray[np.float32]
) -> list[_Place]:
    """Where in each of these cells the query fits best."""
    first, last = spot_phones({phone: of[:, cells] for phone, of in costs.items()}, way)
    begins = wanted.cells[cells] * CELL - BEFORE
    columns = (cells, begins + first, begins + last, scores)
    return [
        _Place(*wanted.owners[cell], *place)
        for cell, *place in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _drop_overlaps(places: Iterable[_Place]) -> Iterator[_Place]:
    """The best of places that overlap; they come best first."""
    kept: dict[tuple[str, int], list[_Place]] = defaultdict(list)
    for place in places:
        own = kept[place.job_id, place.channel]
        if all(
            place.first >= each.last + SAME_FRAMES or place.last + SAME_FRAMES <= each.first for each in own
        ):
            own.append(place)
            yield place


def _open_hits(tx: Connection, places: Iterator[_Place], *, opened: bool, limit: int) -> list[SoundHit]:
    """The first `limit` that the reader may hear."""
    hits: list[SoundHit] = []
    parts: dict[str, ClosedParts] = {}
    owners: dict[str, Job] = {}
    while some := list(islice(places, limit)):
        new = find_jobs(tx, {each.job_id for each in some} - owners.keys())
        owners |= new
        parts |= closed_parts(tx, new.values())
        kept = [place for place in some if place.job_id in owners]
        written = _passages_at(tx, kept)
        for at, place in enumerate(kept):
            hit = SoundHit(
                owners[place.job_id], place.channel, *_seconds(place), place.score, written.get(at)
            )
            closed = _is_closed(parts[place.job_id], hit)
            if not closed or opened:
                hits.append(replace(hit, closed=closed))
            if len(hits) == limit:
                return hits
    return hits


def _is_closed(closed: ClosedParts, hit: SoundHit) -> bool:
    """Whether the place, or something in the passage that is shown with it, is closed."""
    if closed.covers(hit.start, hit.end):
        return True
    if hit.passage is None:
        return False
    words = hit.passage.words
    return closed.covers(words[0].start, max(word.end for word in words), hit.passage.speaker)


def _seconds(place: _Place) -> tuple[float, float]:
    return round(max(place.first, 0) * FRAME_SECONDS, 2), round(place.last * FRAME_SECONDS, 2)


def _passages_at(tx: Connection, places: Sequence[_Place]) -> dict[int, Passage]:
    """What is written at each place, by its number: the last passage that begins before its middle."""
    # Of a recording of several channels that was transcribed as one the words have one channel, as here.
    keys = [(place.job_id, place.channel, sum(_seconds(place)) / 2, at) for at, place in enumerate(places)]
    return {at: passage_of(row) for at, row in _join(tx, _PASSAGES, keys)}
