"""Spreads a correction: finds the other places where a name was written otherwise, corrects them, and takes
that back.

Places are found by the same wrong words, by what else was recognised, by the spelling, and by the sound. What
somebody corrected already is none.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from spool.domain.archive.edits import Edit, Recognised, find_standing_edits, recognised_number
from spool.domain.archive.passages import Passage
from spool.domain.archive.query import Query, Term
from spool.domain.archive.record import Record
from spool.domain.archive.spreading import FoundBy, is_name_at, put_name
from spool.domain.archive.tokens import sound_of, tokens_of
from spool.domain.jobs import Job
from spool.domain.search.names import NameChange, find_name_changes
from spool.domain.spacing import join_words
from spool.errors import Conflict, InvalidRequest
from spool.sounds.lexicon import Lexicon
from spool.sounds.queries import SoundQuery, query_of_words
from spool.sounds.written import TimedWord, find_written
from spool.store.archive.closed import closed_parts
from spool.store.jobs import JobFilter
from spool.store.sql import read_clock
from spool.store.transcripts.edits import (
    EditConflict,
    edits_of_all,
    lock_edits,
    make_undo,
    refuse_changed,
    write_edits,
)
from spool.store.transcripts.search import Hit, TranscriptSearch, search_transcripts
from spool.store.transcripts.sound_search import FoundSounds, SoundHit, search_sounds
from spool.tables import edits, passages

LEAST_SCORE = -1.0
"""A phone: a place that fits less is not offered for its sound alone. Measured by
`python -m ops.accuracy.spread`, see docs/accuracy.md."""
AROUND = 8
"""Words that are shown before and after a place."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a name was written otherwise: words as they were recognised, which nobody corrected. revision:
    the latest of the job. text: the name, with the punctuation of what is written."""

    job: Job
    revision: int
    first_word: int
    last_word: int
    start: float
    end: float
    written: str
    text: str
    before: str
    after: str
    found_by: tuple[FoundBy, ...]
    sound: SoundHit | None
    phones: int
    """Of the name, if it was searched by its sound."""


@dataclass(frozen=True, slots=True)
class FoundPlaces:
    """The places, the surest first; the names; what was searched by sound, None if nothing was."""

    names: tuple[str, ...]
    places: tuple[Place, ...]
    sounds: FoundSounds | None


class Source(NamedTuple):
    """The correction that is spread."""

    job_id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """A place that is to be corrected. seen: the latest revision of its transcript that its author saw."""

    first_word: int
    last_word: int
    written: str
    text: str
    seen: int


@dataclass(frozen=True, slots=True)
class Refused:
    """A place, or a correction, that stays as it is, and why."""

    first_word: int
    last_word: int
    reason: str


class _Found(NamedTuple):
    """Words of a passage where a name may have been meant."""

    job: Job
    passage: Passage
    first: int
    last: int
    name: str
    by: FoundBy
    sound: SoundHit | None = None
    phones: int = 0


def changes_of(record: Recognised, edit: Edit) -> list[NameChange]:
    """The names that a correction wrote in place of other words."""
    heard = [word.text for word in record.words[edit.first_word : edit.last_word + 1]]
    before = record.words[edit.first_word - 1].text if edit.first_word else None
    return list(find_name_changes(heard, edit.text, before))


def find_places(
    tx: Connection,
    project: str,
    changes: Sequence[NameChange],
    lexicon: Lexicon | None,
    *,
    opened: bool,
    limit: int,
    least: float = LEAST_SCORE,
) -> FoundPlaces:
    """Up to `limit` other places of these names in the project, in the newest transcript of each recording.
    opened: also in recordings of which something is closed. least: the score of those that are offered for
    their sound alone."""
    found: list[_Found] = []
    sounds: FoundSounds | None = None
    for change in dict.fromkeys(changes):
        found += _find_written(tx, project, change, opened=opened, limit=limit)
        try:
            query = query_of_words(change.name, lexicon)
        except InvalidRequest:  # too short to be searched by its sound
            continue
        sounds = search_sounds(tx, query, JobFilter(project=project), newest=True, opened=opened, limit=limit)
        found += _find_sounding(sounds, query, change.name, lexicon, least)
    closed = closed_parts(tx, {each.job.id: each.job for each in found}.values())
    if not opened:  # words are counted with those that are closed
        found = [each for each in found if not closed[each.job.id]]
    right = [each for each in found if not is_name_at(_texts(each), each.first, each.last, each.name)]
    places = sorted(_merge(_Numbers(tx, right), right), key=_rank)
    names = tuple(dict.fromkeys(change.name for change in changes))
    return FoundPlaces(names, tuple(places[:limit]), sounds)


def _find_written(
    tx: Connection, project: str, change: NameChange, *, opened: bool, limit: int
) -> Iterator[_Found]:
    name = tokens_of(change.name)
    sound = sound_of(name[0]) if len(name) == 1 else None
    asked: list[tuple[FoundBy, Term]] = [("alternative", Term(name))] if name else []
    if heard := tokens_of(" ".join(change.heard)):
        asked.append(("words", Term(heard)))
    if sound is not None:
        asked.append(("spelling", Term(name, sound=sound)))
    for by, term in asked:
        wanted = TranscriptSearch(
            Query((term,)),
            JobFilter(project=project),
            alternatives=by == "alternative",
            newest=True,
            opened=opened,
        )
        for hit in search_transcripts(tx, wanted, limit=limit).items:
            yield from _found_in(hit, change.name, by)


def _found_in(hit: Hit, name: str, by: FoundBy) -> Iterator[_Found]:
    for place in hit.places:
        if (place.reading is not None) == (by == "alternative"):
            yield _Found(hit.job, hit.passage, place.first, place.last, name, by)


def _find_sounding(
    sounds: FoundSounds, query: SoundQuery, name: str, lexicon: Lexicon | None, least: float
) -> Iterator[_Found]:
    for hit in sounds.hits:
        if hit.passage is not None and hit.score >= least:
            words = [TimedWord(word.text, word.start, word.end) for word in hit.passage.words]
            run = find_written(words, hit.start, hit.end, query.ways[0], lexicon)
            if run is not None:
                yield _Found(hit.job, hit.passage, *run, name, "sound", hit, len(query.ways[0]))


def _texts(found: _Found) -> list[str]:
    return [word.text for word in found.passage.words]


class _Numbers:
    """Which words of their recognised transcripts the words of passages are."""

    def __init__(self, tx: Connection, found: Sequence[_Found]) -> None:
        ids = sorted({each.job.id for each in found})
        events = edits_of_all(tx, ids)
        self._stands = {job_id: find_standing_edits(own) for job_id, own in events.items()}
        self._revisions = {job_id: own[-1].revision for job_id, own in events.items()}
        self._firsts: dict[tuple[str, int, float], int] = {}
        c = passages.c
        rows = tx.execute(
            select(c.job_id, c.channel, c.start_seconds, c.own_words)
            .where(c.job_id.in_(ids))
            # A job's last passage was written first.
            .order_by(c.job_id, c.channel, c.id.desc())
        )
        job_id, count = "", 0
        for row in rows:
            if row.job_id != job_id:
                job_id, count = row.job_id, 0
            self._firsts[row.job_id, row.channel, round(row.start_seconds, 3)] = count
            count += row.own_words

    def number(self, found: _Found, at: int) -> int | None:
        """None for what somebody corrected."""
        own = found.passage
        first = self._firsts.get((found.job.id, own.channel, own.words[0].start))
        return None if first is None else recognised_number(self._stands.get(found.job.id, ()), first + at)

    def revision(self, found: _Found) -> int:
        """The latest of its job."""
        return self._revisions.get(found.job.id, 0)


def _merge(numbers: _Numbers, found: Iterable[_Found]) -> Iterator[Place]:
    """The places; those that were found several times once. Of overlapping ones the words decide, then the
    alternatives, the spelling and the sound, whose borders are the least exact."""
    kept: dict[str, list[Place]] = {}
    order: Sequence[FoundBy] = ("words", "alternative", "spelling", "sound")
    for each in sorted(found, key=lambda one: order.index(one.by)):
        first, last = numbers.number(each, each.first), numbers.number(each, each.last)
        if first is None or last is None or last - first != each.last - each.first:
            continue
        own = kept.setdefault(each.job.id, [])
        same = next(
            (at for at, one in enumerate(own) if one.first_word <= last and first <= one.last_word), None
        )
        if same is None:
            own.append(_place(each, first, last, numbers.revision(each)))
        else:
            place = own[same]
            own[same] = replace(
                place,
                found_by=tuple(dict.fromkeys((*place.found_by, each.by))),
                sound=place.sound or each.sound,
                phones=place.phones or each.phones,
            )
    for own in kept.values():
        yield from own


def _place(found: _Found, first: int, last: int, revision: int) -> Place:
    words = found.passage.words
    written = join_words(word.text for word in words[found.first : found.last + 1])
    return Place(
        found.job,
        revision,
        first,
        last,
        words[found.first].start,
        max(word.end for word in words[found.first : found.last + 1]),
        written,
        put_name(written, found.name),
        join_words(word.text for word in words[max(0, found.first - AROUND) : found.first]),
        join_words(word.text for word in words[found.last + 1 : found.last + 1 + AROUND]),
        (found.by,),
        found.sound,
        found.phones,
    )


def _rank(place: Place) -> tuple[Any, ...]:
    score = place.sound.score if place.sound is not None else LEAST_SCORE
    written = any(by != "sound" for by in place.found_by)
    return (-len(place.found_by), not written, -score, place.job.id, place.first_word)


def spread_to(
    tx: Connection, job_id: str, record: Record, wanted: Sequence[Wanted], source: Source, author: str
) -> tuple[list[Edit], list[Refused]]:
    """Correct places of a job's transcript, `record`, like the correction `source`; and those that stay as
    they are. Raises NotFound and Deleted."""
    before = lock_edits(tx, job_id)
    stands = find_standing_edits(before)
    ranges: dict[tuple[int, int], list[Wanted]] = defaultdict(list)
    refused: list[Refused] = []
    taken: list[Wanted] = []
    for place in wanted:
        try:
            own = _range_of(record, before, stands, taken, place)
        except Conflict as conflict:
            refused.append(Refused(place.first_word, place.last_word, conflict.message))
        else:
            ranges[own].append(place)
            taken.append(place)
    at = read_clock(tx)
    new = []
    for revision, ((first, last), places) in enumerate(sorted(ranges.items()), len(before) + 1):
        text = _rewrite(record, first, last, places)
        speaker = next((each.speaker for each in stands if each.touches(first, last)), None)
        new.append(Edit(revision, first, last, text, speaker, author, at, None, *source))
    if new:
        write_edits(tx, job_id, record, before, new)
    return new, refused


def jobs_spread_to(tx: Connection, source: Source) -> list[str]:
    """The jobs that a correction was spread to."""
    c = edits.c
    own = select(c.job_id).where(c.from_job == source.job_id, c.from_revision == source.revision)
    return list(tx.scalars(own.distinct().order_by(c.job_id)))


def undo_spread(
    tx: Connection, job_id: str, record: Record, source: Source, author: str
) -> tuple[list[Edit], list[Refused]]:
    """Undo what stands of a spread correction in a job; and what cannot be undone, since its words were
    corrected again. Raises NotFound and Deleted."""
    before = lock_edits(tx, job_id)
    gone = {each.undoes for each in before}
    at = read_clock(tx)
    new: list[Edit] = []
    refused: list[Refused] = []
    for each in before:
        if (each.from_job, each.from_revision) == source and each.revision not in gone:
            try:
                new.append(make_undo(job_id, [*before, *new], each.revision, author, at))
            except EditConflict as conflict:
                refused.append(Refused(each.first_word, each.last_word, conflict.message))
    if new:
        write_edits(tx, job_id, record, before, new)
    return new, refused


def _range_of(
    record: Recognised,
    before: Sequence[Edit],
    stands: Sequence[Edit],
    taken: Sequence[Wanted],
    place: Wanted,
) -> tuple[int, int]:
    """The words that an edit of the place covers: those of an edit of who speaks there, which is not to be
    lost, else its own. Raises Conflict where the words are not the ones that were shown."""
    first, last = place.first_word, place.last_word
    refuse_changed(before, first, last, place.seen)
    touching = [each for each in stands if each.touches(first, last)]
    for each in touching:
        if each.text is not None:
            raise EditConflict(each)
    written = join_words(word.text for word in record.words[first : last + 1])
    if last >= len(record.words) or written != place.written:
        raise Conflict(
            f"Words {first} to {last} are not \u201c{place.written}\u201d; search for places again."
        )
    if any(each.first_word <= last and first <= each.last_word for each in taken):
        raise Conflict(f"Words {first} to {last} are in another of these places, too.")
    if len(touching) > 1 or not all(each.first_word <= first and last <= each.last_word for each in touching):
        raise Conflict(f"Words {first} to {last} were given different speakers; correct them by themselves.")
    return (touching[0].first_word, touching[0].last_word) if touching else (first, last)


def _rewrite(record: Recognised, first: int, last: int, places: Sequence[Wanted]) -> str:
    texts: list[str] = []
    at = first
    for place in sorted(places, key=lambda each: each.first_word):
        texts += [word.text for word in record.words[at : place.first_word]]
        texts.append(place.text)
        at = place.last_word + 1
    return " ".join([*texts, *(word.text for word in record.words[at : last + 1])])
