"""A batch's results as lines of JSON, produced while they are sent: a page of rows, then their transcripts.

No transaction is open while transcripts are fetched or the client reads slowly, and few are in memory at
once. A missing transcript is an error on its own line. If a store stops answering, the download ends early,
which the client sees as a broken transfer and never as a complete file.
"""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from api.auth.sight import Sight, View
from api.presenters.jobs import present_job
from spool.domain.jobs import Job, JobState
from spool.domain.manifest import in_blocks
from spool.domain.transcript import Transcript
from spool.errors import NotFound, ObjectDamaged
from spool.objects import ObjectStore
from spool.objects.integrity import read_verified
from spool.schemas.batches import BatchResult, ResultError
from spool.store import Database
from spool.store.batches import batch_jobs

NDJSON = "application/x-ndjson"

_ROWS = 500
PARALLEL = 8
"""Transcripts fetched at once, since an object store may be far away."""


def result_lines(
    db: Database, objects: ObjectStore, batch_id: str, sight: Sight, *, words: bool, state: JobState | None
) -> Iterator[bytes]:
    """One line a job, in the order of the manifest."""
    with ThreadPoolExecutor(PARALLEL, thread_name_prefix="results") as pool:
        for page in batch_pages(db, batch_id, state):
            for few in in_blocks(page, PARALLEL):
                write = partial(_line, objects, sight.look(db, *few), words=words)
                yield b"".join(pool.map(write, few))


def batch_pages(db: Database, batch_id: str, state: JobState | None = None) -> Iterator[list[Job]]:
    """The jobs of a batch in the order of the manifest, a page at a time."""
    after: tuple[int, str] | None = None
    while True:
        with db.read() as tx:
            page = batch_jobs(tx, batch_id, after, _ROWS, state)
        yield page
        if len(page) < _ROWS:
            return
        after = (page[-1].batch_line or 0, page[-1].id)


def _line(objects: ObjectStore, views: Mapping[str, View], job: Job, *, words: bool) -> bytes:
    view = views[job.id]
    shown = present_job(job, view.closed)
    result = BatchResult(
        custom_id=job.custom_id,
        line=job.batch_line,
        job=job.id,
        name=job.name,
        source=shown.source.uri,
        tags=job.tags or {},
        state=job.state,
        audio_seconds=job.audio_seconds,
        complete=job.complete,
        expected_seconds=job.expected_seconds,
        missing_seconds=job.missing_seconds,
        reused_from=job.reused_from,
        error=ResultError(code=shown.error.code, message=shown.error.message) if shown.error else None,
    )
    if job.transcript_deleted_at is not None:
        deleted = ResultError(code="deleted", message="The transcript was deleted.")
        result = result.model_copy(update={"error": result.error or deleted})
    elif job.state is JobState.DONE and job.transcript_key is not None:
        result = result.model_copy(update=_read_words(objects, job, view, words=words))
    return result.model_dump_json(exclude=None if words else {"words"}).encode() + b"\n"


def _read_words(objects: ObjectStore, job: Job, view: View, *, words: bool) -> dict[str, Any]:
    try:
        record = json.loads(read_verified(objects, job.transcript_key or "", job.transcript_sha256 or ""))
    except ObjectDamaged as error:
        return {"error": ResultError(code=error.code, message=error.message)}
    except NotFound:
        return {
            "error": ResultError(code="not_found", message="The transcript is no longer in the object store.")
        }
    if view.hides:
        record = view.show(Transcript.model_validate(record).with_names(job.speaker_names)).model_dump(
            mode="json"
        )
    return {"text": record["text"]} | ({"words": record["words"]} if words else {})
