"""The routes of closures: close a part of a recording to readers, list, lift, and see who opened what.

`api.auth.sight` decides what every other route gives away.
"""

from datetime import UTC
from typing import Annotated

from fastapi import Path

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_job
from api.auth.sight import Sight, SightDep
from api.presenters.transcripts import read_record, read_transcript
from api.services import Services, ServicesDep
from api.submission.bodies import json_body
from spool.domain.api_keys import Scope
from spool.domain.archive.closures import Closure, NewClosure, check_closure, spans_of
from spool.domain.archive.edits import apply_edits
from spool.domain.archive.private import Private, digest_of, find_private
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.errors import NotFound
from spool.schemas.closures import ClosureOut, ClosureRequest, OpeningOut, PrivateDecision, PrivateOut
from spool.schemas.common import ListOf
from spool.store.archive import closures as store
from spool.store.deletions import refuse_deleted
from spool.store.sql import read_clock
from spool.store.transcripts.edits import edits_of


def close(
    services: ServicesDep,
    caller: CallerDep,
    job_id: str,
    body: Annotated[ClosureRequest, json_body(ClosureRequest)],
) -> ClosureOut:
    """Close a part of a recording.

    Its words and its sound are withheld from readers, in every version of the recording. The original is
    kept. Files of outputs are written again without it.
    """
    until = body.until
    if until is not None:
        until = until.replace(tzinfo=UTC) if until.tzinfo is None else until.astimezone(UTC)
    new = NewClosure(body.kind, body.start, body.end, body.speaker, until, body.reason, caller.name)
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        edits, now = edits_of(tx, job.id), read_clock(tx)
    if new.kind == "speaker":
        refuse_deleted(job, Content.TRANSCRIPT)
    check_closure(new, now, job.audio_seconds)
    transcript = None
    if job.transcript_key is not None and new.kind != "whole":
        transcript = apply_edits(read_record(services.objects, job), edits)
    spans = spans_of(new, transcript)
    with services.database.begin() as tx:
        closure = store.add_closure(tx, job, new, spans)
    services.exporter.wake()
    return _shown(closure, caller.may(Scope.CLOSED))


def list_closures(services: ServicesDep, caller: CallerDep, job_id: str) -> ListOf[ClosureOut]:
    """List what is closed of a recording.

    In every version of it, oldest first; what was opened again too.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        found = store.closures_of_recording(tx, job)
    right = caller.may(Scope.CLOSED)
    return ListOf(items=[_shown(each, right) for each in found])


def lift(
    services: ServicesDep, caller: CallerDep, job_id: str, closure_id: Annotated[str, Path()]
) -> ClosureOut:
    """Open a closed part again.

    For all readers. Files of outputs are written again with it.
    """
    with services.database.begin() as tx:
        job = get_visible_job(tx, caller, job_id)
        if closure_id not in {each.id for each in store.closures_of_recording(tx, job)}:
            raise NotFound(f"Job {job_id} has no closure {closure_id}.")
        closure = store.lift_closure(tx, closure_id, caller.name)
    services.exporter.wake()
    return _shown(closure, True)


def list_openings(services: ServicesDep, caller: CallerDep, job_id: str) -> ListOf[OpeningOut]:
    """List who opened what is closed of a job.

    The last 1000 answers that included something closed, newest first.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        found = store.openings_of(tx, job.id)
    return ListOf(items=list(map(OpeningOut.of, found)))


def suggest(services: ServicesDep, caller: CallerDep, sight: SightDep, job_id: str) -> ListOf[PrivateOut]:
    """Suggest what to close.

    Words that look like names, phone numbers or addresses, by simple rules that miss some and mark others
    wrongly. A person decides; nothing is closed by itself. Without what somebody decided about.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        decided = store.decided_not_private(tx, job)
    found = _find_private(services, sight, job)
    return ListOf(items=[PrivateOut.of(each) for each in found if each.digest not in decided])


def decide(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    body: Annotated[PrivateDecision, json_body(PrivateDecision)],
) -> ListOf[PrivateOut]:
    """Decide about a suggestion.

    That these words are not private: they are suggested no more, in no version of the recording. What is left
    of the suggestions is the answer.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    found = _find_private(services, sight, job)
    digest = digest_of(body.kind, body.text)
    if digest not in {each.digest for each in found}:
        raise NotFound(f"Job {job_id} has no such suggestion.")
    with services.database.begin() as tx:
        store.decide_not_private(tx, job, digest, caller.name, private=body.private)
        decided = store.decided_not_private(tx, job)
    return ListOf(items=[PrivateOut.of(each) for each in found if each.digest not in decided])


def _find_private(services: Services, sight: Sight, job: Job) -> list[Private]:
    """In the transcript as the caller sees it."""
    with services.database.read() as tx:
        edits = edits_of(tx, job.id)
    view = sight.look_at(services.database, job)
    return find_private(read_transcript(services.objects, job, edits, view))


def _shown(closure: Closure, right: bool) -> ClosureOut:
    return ClosureOut.of(closure, reason=closure.reason if right else None)
