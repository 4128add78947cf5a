"""The route of transcripts: the record as JSON from the object store, other formats rendered from it.

Knows formats by name and when there is a transcript at all.
"""

from collections.abc import Iterator
from typing import Annotated, BinaryIO

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from api.auth import CallerDep
from api.caller import own_job
from api.problems import Problem
from api.services import ServicesDep
from spool.formats import CONTENT_TYPES, Format, render
from spool.jobs import JobState
from spool.store.jobs import Job
from spool.transcript import Transcript

_BLOCK = 256 * 1024


def transcript(
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    form: Annotated[Format, Query(alias="format", description="How to render it.")] = "json",
) -> Response:
    """The words of a job that is done."""
    with services.database.read() as tx:
        job = own_job(tx, caller, job_id)
    if job.state is not JobState.DONE or job.transcript_key is None:
        raise _not_done(job)
    record = services.objects.open(job.transcript_key)
    headers = {"ETag": f'"{job.transcript_sha256}.{form}"'}
    if form == "json":
        return StreamingResponse(_blocks(record), headers=headers, media_type=CONTENT_TYPES["json"])
    with record:
        words = Transcript.model_validate_json(record.read())
    return Response(render(words, form), headers=headers, media_type=CONTENT_TYPES[form])


def _not_done(job: Job) -> Problem:
    reason = f": {job.error_message}" if job.error_message else "."
    return Problem(409, "not_done", f"Job {job.id} is {job.state}{reason}", state=job.state.value)


def _blocks(record: BinaryIO) -> Iterator[bytes]:
    with record:
        while block := record.read(_BLOCK):
            yield block
