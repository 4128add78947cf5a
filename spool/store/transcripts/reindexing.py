"""The words of a corrected transcript in the search: only the passages that differ are written.

A passage that stays keeps its row. The ids of a job's passages fall from its first to its last, with a gap
below each, from which new ones between them take theirs.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, delete, select

from spool.domain.archive.edits import Edit, apply_edits
from spool.domain.archive.passages import Passage, passages_of, sounds_of
from spool.domain.archive.record import Record
from spool.domain.archive.recutting import Cut, Recut, recut_passages
from spool.domain.archive.tokens import tokens_of
from spool.domain.manifest import in_blocks
from spool.domain.transcript import Transcript
from spool.store.database import READING_SECONDS, allow_idle
from spool.store.sql import ManyRows
from spool.store.transcripts.passages import (
    GAP,
    PIECE,
    JobPassages,
    content_of,
    drop_passages,
    passage_of,
    readings_in,
    row_of,
    write_passages,
)
from spool.tables import passage_words, passages

_BLOCK = 1000
"""Rows of a statement."""
_WITH_IDS = ManyRows(passages, [column.name for column in passages.c], skip=True, returning=[passages.c.id])
_WORDS = ManyRows(passage_words, [column.name for column in passage_words.c], skip=True)
_CONTENT = ("channel", "speaker", "own_words", "start_seconds", "text", "times", "alternatives")
"""The columns that make a passage; what is searched is made of them."""
_READ = [passages.c.id, *(passages.c[name] for name in _CONTENT)]


class _Stored(NamedTuple):
    id: int
    cut: Cut


class _Placed(NamedTuple):
    """A passage where it belongs: a stored one by its id, or a new one."""

    channel: int
    start: float
    id: int | None
    passage: Passage | None = None


class _NoRoom(Exception):
    """There are not enough ids between two passages that stay."""


def index_edits(
    tx: Connection, job_id: str, project: str, record: Record, before: Sequence[Edit], new: Sequence[Edit]
) -> None:
    """Update the job's words in the search after events that follow those `before`."""
    stored = _read_stored(tx, job_id)
    recuts = recut_passages(record, before, new, [each.cut for each in stored])
    if recuts is None:
        allow_idle(tx, READING_SECONDS)
        index_words(tx, job_id, project, apply_edits(record.read(), [*before, *new]))
    elif not _update(tx, job_id, project, stored, recuts):
        allow_idle(tx, READING_SECONDS)
        _write_again(tx, job_id, project, passages_of(apply_edits(record.read(), [*before, *new])))


def index_words(tx: Connection, job_id: str, project: str, transcript: Transcript) -> None:
    """Make the job's words in the search those of this transcript."""
    stored = _read_stored(tx, job_id)
    spoken = passages_of(transcript)
    rows = defaultdict[int, list[Passage]](list)
    for passage in spoken:
        rows[passage.channel].append(passage)
    counts = defaultdict[int, int](int)
    for each in stored:
        counts[each.cut.channel] += 1
    recuts = [Recut(channel, 0, counts[channel], rows[channel]) for channel in sorted({*rows, *counts})]
    if not _update(tx, job_id, project, stored, recuts):
        _write_again(tx, job_id, project, spoken)


def _write_again(tx: Connection, job_id: str, project: str, spoken: Sequence[Passage]) -> None:
    drop_passages(tx, [job_id])
    write_passages(tx, JobPassages(job_id, project, spoken))


def _read_stored(tx: Connection, job_id: str) -> list[_Stored]:
    """The job's passages in order."""
    c = passages.c
    rows = tx.execute(
        select(c.id, c.channel, c.own_words, c.start_seconds).where(c.job_id == job_id).order_by(c.id.desc())
    )
    return [_Stored(number, Cut(channel, own, start)) for number, channel, own, start in rows]


def _update(
    tx: Connection, job_id: str, project: str, stored: Sequence[_Stored], recuts: Sequence[Recut]
) -> bool:
    """Replace the stored passages that differ. False if that takes ids which there are not; the job's
    passages are then to be written again."""
    of_channels = defaultdict[int, list[_Stored]](list)
    for each in stored:
        of_channels[each.cut.channel].append(each)
    replaced = [each.id for one in recuts for each in of_channels[one.channel][one.first : one.after]]
    found = {row.id: row for block in in_blocks(replaced, _BLOCK) for row in tx.execute(_by_id(block))}
    placed = _place(of_channels, recuts, found)
    kept = {each.id for each in placed}
    gone = {number: row for number, row in found.items() if number not in kept}
    try:
        new = sorted(_give_ids(tx, placed, sorted(gone)), key=itemgetter(0))
    except _NoRoom:
        return False
    for block in in_blocks(sorted(gone), _BLOCK):
        tx.execute(delete(passages).where(passages.c.id.in_(block)))
    for part in in_blocks(new, PIECE):
        rows = [{"id": number, **row_of(job_id, project, passage)} for number, passage in part]
        if len(_WITH_IDS.execute(tx, rows).all()) < len(rows):
            return False  # another job took one of the ids
    before = [Passage.of(*_parts(passage_of(row))) for row in gone.values()]
    _update_words(tx, job_id, project, before, [passage for _, passage in new])
    return True


def _by_id(numbers: Sequence[int]) -> Any:  # noqa: ANN401 (SQL)
    return select(*_READ).where(passages.c.id.in_(numbers))


def _place(
    of_channels: Mapping[int, Sequence[_Stored]], recuts: Sequence[Recut], found: Mapping[int, Row[Any]]
) -> list[_Placed]:
    """All passages in order; those that are stored already by their ids."""
    known = defaultdict[tuple[Any, ...], list[int]](list)
    for number, row in found.items():
        known[_content(row._asdict())].append(number)
    placed: list[_Placed] = []
    own = defaultdict[int, list[Recut]](list)
    for recut in recuts:
        own[recut.channel].append(recut)
    for channel in sorted({*of_channels, *own}):
        done, rows = 0, of_channels.get(channel, ())
        for recut in own[channel]:
            placed += map(_keep, rows[done : recut.first])
            for passage in recut.passages:
                start, same = passage.words[0].start, known.get(_content(content_of(passage)))
                placed.append(_Placed(channel, start, same.pop() if same else None, passage))
            done = recut.after
        placed += map(_keep, rows[done:])
    return sorted(placed, key=lambda each: (each.start, each.channel))


def _keep(stored: _Stored) -> _Placed:
    return _Placed(stored.cut.channel, stored.cut.start, stored.id)


def _content(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(bytes(row[name]) if name == "times" else row[name] for name in _CONTENT)


def _parts(passage: Passage) -> tuple[Any, ...]:
    return passage.channel, passage.speaker, passage.own, passage.words, passage.readings


def _give_ids(
    tx: Connection, placed: Sequence[_Placed], gone: Sequence[int]
) -> Iterator[tuple[int, Passage]]:
    """The passages to write, each with an id between those of the passages beside it. Raises _NoRoom."""
    above: int | None = None
    waiting: list[Passage] = []
    for each in chain(placed, [None]):
        if each is not None and each.id is None and each.passage is not None:
            waiting.append(each.passage)
            continue
        below = None if each is None else each.id
        if above is not None and below is not None and below >= above:
            raise _NoRoom
        if waiting:
            numbers = _choose_ids(tx, len(waiting), above, below, gone)
            yield from zip(numbers, waiting, strict=True)
            waiting = []
        above = below


def _choose_ids(
    tx: Connection, count: int, above: int | None, below: int | None, gone: Sequence[int]
) -> list[int]:
    """So many ids between two passages' (None: the job has no other there), in falling order: those of
    passages that are gone, then some of the gaps."""
    begin = 0 if below is None else bisect_right(gone, below)
    end = len(gone) if above is None else bisect_left(gone, above)
    numbers = [*gone[begin:end]][-count:]
    if missing := count - len(numbers):
        lowest, highest = below or 0, above
        beside = {number - less for number in [*numbers, above] if number for less in range(1, GAP)}
        if highest is None and below is not None:
            beside |= {below + more for more in range(1, GAP)}
        free = sorted(number for number in beside - {*numbers} if lowest < number < (highest or number + 1))
        for block in in_blocks([*free], _BLOCK):
            taken = set(tx.scalars(select(passages.c.id).where(passages.c.id.in_(block))))
            free = [number for number in free if number not in taken]
        if len(free) < missing:
            raise _NoRoom
        numbers += [free[len(free) * (2 * at + 1) // (2 * missing)] for at in range(missing)]
    return sorted(numbers, reverse=True)


def _update_words(
    tx: Connection, job_id: str, project: str, gone: Iterable[Passage], new: Iterable[Passage]
) -> None:
    """Update which words with a sound the job has."""
    before, now = set(sounds_of(gone)), set(sounds_of(new))
    if left := before - now:
        c = passages.c
        rows = tx.execute(select(c.text, c.alternatives).where(c.job_id == job_id)).all()
        texts = set(" ".join(text for text, _ in rows).split(" "))
        texts |= {reading.text for _, heard in rows if heard for reading in readings_in(heard)}
        still = {token for text in texts for token in tokens_of(text)}
        words = passage_words.c
        for sound, token in sorted(left):
            if token not in still:
                tx.execute(
                    delete(passage_words).where(
                        words.project == project,
                        words.sound == sound,
                        words.token == token,
                        words.job_id == job_id,
                    )
                )
    own = {"project": project, "job_id": job_id}
    for block in in_blocks(sorted(now - before), _BLOCK):
        _WORDS.execute(tx, [{"sound": sound, "token": token, **own} for sound, token in block])
