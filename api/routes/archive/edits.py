"""The routes of corrections: list them, correct words or their speaker, undo.

`spool.domain.archive.edits` applies edits to a transcript.
"""

from fastapi import Request
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Connection

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.openapi.jobs import answer, describe, json_body, problems
from api.problems import Problem
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL, read_json
from spool.domain.archive.edits import Edit, standing_edits
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.domain.transcript import Transcript
from spool.errors import Conflict
from spool.objects.integrity import read_verified
from spool.schemas.edits import EditOut, EditRequest, EditsOut, UndoRequest
from spool.schemas.examples import edits as examples
from spool.store.deletions import refuse_deleted
from spool.store.transcripts import edits as store

LIST = describe(
    "List a transcript's corrections",
    answer(200, "All edits and undos, oldest first.", EditsOut, examples.EDITS),
    problems("not_found", "deleted"),
)

ADD = describe(
    "Correct a transcript",
    answer(201, "The edit, which the transcript now includes.", EditOut, examples.EDIT),
    problems("malformed", "not_found", "conflict", "edited", "deleted", "too_large", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(EditRequest, examples.EDIT_REQUEST),
)

UNDO = describe(
    "Undo a correction",
    answer(201, "The undo, itself an entry of the history.", EditOut, examples.EDIT),
    problems("malformed", "not_found", "conflict", "edited", "deleted", "too_large", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(UndoRequest, examples.UNDO_REQUEST),
)


def list_edits(services: ServicesDep, caller: CallerDep, job_id: str) -> EditsOut:
    """Who corrected what and when."""
    with services.database.read() as tx:
        refuse_deleted(get_visible_job(tx, caller, job_id), Content.TRANSCRIPT)
        edits = store.edits_of(tx, job_id)
    stands = {edit.revision for edit in standing_edits(edits)}
    return EditsOut(items=[_present(edit, stands=edit.revision in stands) for edit in edits])


async def add(request: Request, services: ServicesDep, caller: CallerDep, job_id: str) -> EditOut:
    """Correct words or their speaker. The transcript as recognised is kept; every format and the search use
    the correction. New words share the time of those they replace."""
    body = await read_json(request, EditRequest, SMALL)

    def work(tx: Connection, record: Transcript) -> Edit:
        asked = store.NewEdit(
            body.first_word, body.last_word, body.text, body.speaker, body.seen, body.author or caller.name
        )
        return store.add_edit(tx, job_id, record, asked)

    return await run_in_threadpool(_edit, services, caller, job_id, work)


async def undo(
    request: Request, services: ServicesDep, caller: CallerDep, job_id: str, revision: int
) -> EditOut:
    """Undo a correction. What it replaced is restored."""
    body = await read_json(request, UndoRequest, SMALL)

    def work(tx: Connection, record: Transcript) -> Edit:
        return store.undo_edit(tx, job_id, record, revision, body.author or caller.name)

    return await run_in_threadpool(_edit, services, caller, job_id, work)


def _edit(services: Services, caller: Principal, job_id: str, work: store.Change) -> EditOut:
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    record = _record(services, job)
    try:
        with services.database.begin() as tx:
            edit = work(tx, record)
    except store.EditConflict as conflict:
        other = _present(conflict.other, stands=True).model_dump(mode="json")
        raise Problem(409, "edited", conflict.message, other=other) from None
    return _present(edit, stands=edit.undoes is None)


def _record(services: Services, job: Job) -> Transcript:
    """The transcript as it was recognised."""
    refuse_deleted(job, Content.TRANSCRIPT)
    if job.transcript_key is None:
        raise Conflict(f"Job {job.id} is {job.state}; only a transcript can be corrected.")
    record = read_verified(services.objects, job.transcript_key, job.transcript_sha256 or "")
    return Transcript.model_validate_json(record)


def _present(edit: Edit, *, stands: bool) -> EditOut:
    return EditOut(
        revision=edit.revision,
        first_word=edit.first,
        last_word=edit.last,
        text=edit.text,
        speaker=edit.speaker,
        undoes=edit.undoes,
        stands=stands,
        author=edit.author,
        created_at=edit.created_at,
    )
