"""The routes of corrections: list them, correct words or their speaker, undo.

`spool.domain.archive.edits` applies edits to a transcript.
"""

from dataclasses import replace
from typing import Annotated

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.auth.sight import Sight, SightDep
from api.presenters.transcripts import read_record
from api.problems import Problem
from api.services import Services, ServicesDep
from api.submission.bodies import json_body
from spool.domain.archive.closures import PLACEHOLDER
from spool.domain.archive.edits import Edit, find_standing_edits
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.domain.transcript import Transcript
from spool.errors import Conflict, Forbidden
from spool.schemas.common import ListOf
from spool.schemas.edits import EditOut, EditRequest, UndoRequest
from spool.store.deletions import refuse_deleted
from spool.store.transcripts import edits as store


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


def _edit(services: Services, caller: Principal, sight: Sight, job_id: str, change: store.Change) -> EditOut:
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    if (view := sight.look_at(services.database, job)).hides:
        # Words are counted with those that are closed, which the author has not seen.
        raise Forbidden(
            f"{view.closed.sentence} Correcting it requires opening that: `closed=true`, or --closed."
        )
    record = _read_record(services, job)
    try:
        with services.database.begin() as tx:
            edit: Edit = change(tx, record)
    except store.EditConflict as conflict:
        other = EditOut.of(conflict.other, stands=True).model_dump(mode="json")
        raise Problem(409, "edited", conflict.message, other=other) from None
    return EditOut.of(edit, stands=edit.undoes is None)


def _read_record(services: Services, job: Job) -> Transcript:
    """The transcript as it was recognised."""
    refuse_deleted(job, Content.TRANSCRIPT)
    if job.transcript_key is None:
        raise Conflict(f"Job {job.id} is {job.state}; only a transcript can be corrected.")
    return read_record(services.objects, job)
