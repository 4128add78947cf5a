"""The routes of corrections: list them, correct words or their speaker, undo, spread them to other places.

`spool.domain.archive.edits` applies edits to a transcript.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, TypeVar

from fastapi import Query
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.auth.sight import Sight, SightDep
from api.presenters.spread import present_places
from api.presenters.transcripts import read_parts
from api.problems import Problem
from api.services import Services, ServicesDep
from api.submission.bodies import json_body
from spool.domain.archive.closures import PLACEHOLDER
from spool.domain.archive.edits import Edit, find_standing_edits
from spool.domain.archive.record import Record, WholeRecord
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.errors import Conflict, Forbidden, NotFound
from spool.schemas.common import ListOf
from spool.schemas.edits import (
    EditOut,
    EditRequest,
    RefusedPlace,
    SpreadDone,
    SpreadEdit,
    SpreadOut,
    SpreadRequest,
    UndoRequest,
)
from spool.sounds.dictionary import installed_lexicon
from spool.store.archive.closed import closed_parts
from spool.store.deletions import refuse_deleted
from spool.store.jobs import get_job
from spool.store.transcripts import edits as store
from spool.store.transcripts import spread

MOST_PLACES = 100
_Result = TypeVar("_Result")
_Spreading = Callable[[Connection, str, Record], tuple[list[Edit], list[spread.Refused]]]


def list_edits(services: ServicesDep, caller: CallerDep, sight: SightDep, job_id: str) -> ListOf[EditOut]:
    """List a transcript's corrections.

    Who corrected what and when: all edits and undos, oldest first. `[closed]` stands for closed words.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        edits = store.edits_of(tx, job_id)
    view = sight.look_at(services.database, job)
    if view.hides and edits:
        record = _read_record(services, job)
        edits = [
            replace(edit, text=PLACEHOLDER, speaker=None) if view.closed.covers_words(record, edit) else edit
            for edit in edits
        ]
    stands = {edit.revision for edit in find_standing_edits(edits)}
    return ListOf(items=[EditOut.of(edit, stands=edit.revision in stands) for edit in edits])


def add(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    body: Annotated[EditRequest, json_body(EditRequest)],
) -> EditOut:
    """Correct a transcript.

    Its words or their speaker. The transcript as recognised is kept; every format and the search use the
    correction. New words share the time of those they replace.
    """
    author = body.author or caller.name
    new = store.NewEdit(body.first_word, body.last_word, body.text, body.speaker, body.seen, author)
    return _edit(services, caller, sight, job_id, lambda tx, record: store.add_edit(tx, job_id, record, new))


def undo(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    revision: int,
    body: Annotated[UndoRequest, json_body(UndoRequest)],
) -> EditOut:
    """Undo a correction.

    What it replaced is restored. The undo is itself an entry of the history.
    """
    author = body.author or caller.name
    return _edit(
        services,
        caller,
        sight,
        job_id,
        lambda tx, record: store.undo_edit(tx, job_id, record, revision, author),
    )


def list_places(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    revision: int,
    limit: Annotated[int, Query(ge=1, le=MOST_PLACES, description="The most places.")] = 20,
) -> SpreadOut:
    """Find where a corrected name was written otherwise.

    Other places of the project, in the newest transcript of each recording: with the same wrong words, with
    the name among what else was recognised, with similar letters, or with the same sound in jobs that have a
    witness. Empty for corrections that wrote no name. Recordings of which something is closed are left out.
    """
    job = _open_job(services, caller, sight, job_id)
    record = _read_record(services, job)
    with services.database.read() as tx:
        changes = spread.changes_of(record, _find_edit(tx, job_id, revision))
        found = spread.find_places(
            tx, job.project, changes, installed_lexicon(), opened=sight.opened, limit=limit
        )
        closed = closed_parts(tx, {place.job.id: place.job for place in found.places}.values())
    if sight.opened:
        sight.note(services.database, [place.job for place in found.places if closed[place.job.id]])
    return present_places(found)


def spread_edit(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    revision: int,
    body: Annotated[SpreadRequest, json_body(SpreadRequest)],
) -> SpreadDone:
    """Spread a correction to other places.

    Each becomes a correction of its transcript, which names this one. Words that somebody changed meanwhile
    stay as they are, and the answer says so.
    """
    job = _open_job(services, caller, sight, job_id)
    with services.database.read() as tx:
        refuse_deleted(job, Content.TRANSCRIPT)
        _find_edit(tx, job_id, revision)
    source, author = spread.Source(job_id, revision), body.author or caller.name
    wanted: dict[str, list[spread.Wanted]] = {}
    for place in body.places:
        own = spread.Wanted(place.first_word, place.last_word, place.written, place.text, place.seen)
        wanted.setdefault(place.job, []).append(own)
    return _change_many(
        services,
        caller,
        sight,
        wanted,
        lambda tx, other, record: spread.spread_to(tx, other, record, wanted[other], source, author),
    )


def undo_spread(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    revision: int,
    body: Annotated[UndoRequest, json_body(UndoRequest)],
) -> SpreadDone:
    """Undo what a correction was spread to.

    Every place is as it was before; the correction itself stays. Words that somebody corrected again since
    stay as they are, and the answer says so.
    """
    _open_job(services, caller, sight, job_id)
    source, author = spread.Source(job_id, revision), body.author or caller.name
    with services.database.read() as tx:
        of_jobs = spread.jobs_spread_to(tx, source)
    return _change_many(
        services,
        caller,
        sight,
        of_jobs,
        lambda tx, other, record: spread.undo_spread(tx, other, record, source, author),
    )


def _change_many(
    services: Services, caller: Principal, sight: Sight, of_jobs: Iterable[str], change: _Spreading
) -> SpreadDone:
    """Change several transcripts, each in a transaction of its own."""
    opened = [_open_job(services, caller, sight, job_id) for job_id in of_jobs]
    items: list[SpreadEdit] = []
    kept: list[RefusedPlace] = []
    for job in opened:
        edits, refused = _change_record(services, job, _bind(change, job.id))
        items += [SpreadEdit.of(edit, job=job.id, stands=edit.undoes is None) for edit in edits]
        kept += [RefusedPlace.of(each, job=job.id) for each in refused]
    return SpreadDone(items=items, refused=kept)


def _bind(
    change: _Spreading, job_id: str
) -> Callable[[Connection, Record], tuple[list[Edit], list[spread.Refused]]]:
    return lambda tx, record: change(tx, job_id, record)


def _find_edit(tx: Connection, job_id: str, revision: int) -> Edit:
    """Raises NotFound."""
    standing = find_standing_edits(store.edits_of(tx, job_id))
    for edit in standing:
        if edit.revision == revision:
            return edit
    raise NotFound(f"Job {job_id} has no correction {revision} that stands.")


def _open_job(services: Services, caller: Principal, sight: Sight, job_id: str) -> Job:
    """A job whose words may be counted. Raises NotFound, and Forbidden where something is closed."""
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    if (view := sight.look_at(services.database, job)).hides:
        # Words are counted with those that are closed, which the author has not seen.
        raise Forbidden(
            f"{view.closed.sentence} Correcting it requires opening that: `closed=true`, or --closed."
        )
    return job


def _edit(services: Services, caller: Principal, sight: Sight, job_id: str, change: store.Change) -> EditOut:
    job = _open_job(services, caller, sight, job_id)
    try:
        edit = _change_record(services, job, change)
    except store.EditConflict as conflict:
        other = EditOut.of(conflict.other, stands=True).model_dump(mode="json")
        raise Problem(409, "edited", conflict.message, other=other) from None
    return EditOut.of(edit, stands=edit.undoes is None)


def _change_record(services: Services, job: Job, change: Callable[[Connection, Record], _Result]) -> _Result:
    """Change a job's transcript in a transaction, with the record that it then has: speakers may be found
    again while this one is read."""
    while True:
        record = _read_record(services, job)
        with suppress(_Replaced), services.database.begin() as tx:
            result = change(tx, record)
            if get_job(tx, job.id).transcript_key != job.transcript_key:
                raise _Replaced
            return result
        with services.database.read() as tx:
            job = get_job(tx, job.id)


class _Replaced(Exception):
    """The job has another record by now."""


def _read_record(services: Services, job: Job) -> Record:
    """The transcript as it was recognised."""
    refuse_deleted(job, Content.TRANSCRIPT)
    if job.transcript_key is None:
        raise Conflict(f"Job {job.id} is {job.state}; only a transcript can be corrected.")
    record = read_parts(services.objects, job)
    # Which passages change cannot be told without the rest: better read here than in the transaction.
    return WholeRecord(record.read()) if record.around.nbest else record
