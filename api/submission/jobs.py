"""From a request to a job: checks its source and options, stores its recording, commits its row.

A submission commits the job and its outbox line; the caller then wakes the sweeper, which sends it, so the
broker may be down meanwhile. `sources` checks sources, `uploads` receives forms, `bodies` reads JSON.
"""

import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from api.auth.principal import Principal, get_visible_job, get_visible_upload
from api.middleware.log_context import set_subject
from api.presenters.jobs import present_job_detail
from api.problems import validation_problem
from api.services import Services
from api.submission.bodies import WITH_TEXT, parse_json
from api.submission.connections import s3_access_of
from api.submission.direct import drop_upload, refuse_other_project
from api.submission.glossaries import GlossaryLookup, LanguageModelLookup
from api.submission.outputs import check_output, output_of, place_of
from api.submission.sources import check_source, source_name
from api.submission.uploads import Upload
from spool import clock
from spool.catalogue import diarization_places
from spool.domain.archive.alignment import WITH_ALIGN, Align
from spool.domain.archive.stretch import OF_WHOLE, Stretch, refuse_of_whole, stretch_of
from spool.domain.fleet.routing import ANY_MACHINE, Requirement, Route
from spool.domain.jobs import Job, JobState, Source
from spool.domain.ledger import NOTHING
from spool.domain.options import AskedOptions, drop_inapplicable
from spool.domain.priority import HIGH, PRIORITIES
from spool.domain.quotas import Hold
from spool.errors import Conflict, InvalidRequest, NotFound, ObjectDamaged, StorageError
from spool.failpoints import failpoint
from spool.ids import new_id
from spool.objects.integrity import hash_file
from spool.schemas.batches import BatchUploadRequest
from spool.schemas.jobs import JobDetail, JobRequest, UploadRequest
from spool.schemas.versions import RerunRequest
from spool.settings import Settings
from spool.store import jobs as store
from spool.store.archive.closed import closed_parts_of
from spool.store.archive.exports import exports_of
from spool.store.archive.typescripts import typescript_of
from spool.store.archive.uploads import create_job_of_upload
from spool.store.archive.versions import rerun_job
from spool.store.deletions import refuse_deleted
from spool.store.jobs import phrases_of
from spool.store.ledger.charges import job_cost
from spool.store.queue.quotas import find_holds
from spool.tables.uploads import SCHEME
from spool.tracing import current

CONTENT = "sha256:"
SHA256 = re.compile(r"[0-9a-f]{64}")


def create_from_source(
    services: Services, caller: Principal, body: JobRequest, idempotency_key: str | None
) -> tuple[JobDetail, bool]:
    """The job for the source that `body` names, and whether it is new."""
    if body.source.startswith(SCHEME) and body.connection is None:
        return _create_from_direct(services, caller, body, idempotency_key)
    if body.source.startswith(CONTENT):
        return _find_uploaded(services, caller, body), False
    access = s3_access_of(services, caller.project_for(body.project), body.connection, body.source)
    source = access.apply(check_source(body.source, services.settings, caller))
    options = _options(services, caller, body)
    name = body.name or source_name(source)
    new = _build_job(services, caller, body, options, source, name, idempotency_key)
    return _commit(services, new)


def _find_uploaded(services: Services, caller: Principal, body: JobRequest) -> JobDetail:
    """The job of an earlier upload with the content, name and options that `body` has. Raises NotFound."""
    content = body.source.removeprefix(CONTENT)
    if not SHA256.fullmatch(content) or body.name is None:
        raise InvalidRequest("A source sha256:… is 64 hexadecimal digits, beside a name.")
    new = _build_job(
        services, caller, body, _options(services, caller, body), Source("upload", ""), body.name
    )
    new = replace(new, received_sha256=content)
    with services.database.read() as tx:
        found = store.find_submitted(tx, [new]).get(new.submission_sha256)
        if found is None:
            raise NotFound("This recording was not uploaded before under this name and with these options.")
        return load_detail(services, tx, store.get_job(tx, found))


def _create_from_direct(
    services: Services, caller: Principal, body: JobRequest, idempotency_key: str | None
) -> tuple[JobDetail, bool]:
    """The job for a complete upload; it belongs to the upload's project."""
    with services.database.read() as tx:
        upload = get_visible_upload(tx, caller, body.source.removeprefix(SCHEME))
    refuse_other_project(upload, body.project)
    # Hashed as an upload through the API: with the same bytes it is the same request.
    fields = {name: getattr(body, name) for name in UploadRequest.model_fields}
    request = UploadRequest.model_construct(**fields | {"project": upload.project})
    options = _options(services, caller, request)
    source = Source("upload", upload.key, upload.bytes, upload.etag)
    name, content = body.name or upload.name, upload.sha256 or upload.id
    new = _build_job(services, caller, request, options, source, name, idempotency_key, content)
    job, created = _commit(services, new, upload=upload.id)
    if not created and job.id != upload.job_id:  # the key's first request sent the same bytes
        with contextlib.suppress(NotFound):
            drop_upload(services, caller, upload.id)
    return job, created


def create_rerun(
    services: Services, caller: Principal, job_id: str, body: RerunRequest, idempotency_key: str | None
) -> tuple[JobDetail, bool]:
    """The job that runs another job's recording again, and whether it is new."""
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job)  # its options name phrases that go with its transcript
        kept = _options_of(tx, job, body.options)
    stretch = _stretch_of(job, body)
    if stretch is not None:
        kept = {name: value for name, value in kept.items() if name not in OF_WHOLE}
    if body.options.get("align") is not None:
        kept["model"] = services.fleet.default("ctc", job.options.model)
    if job.source.kind not in ("upload", "live"):
        check_source(job.source.uri, services.settings, caller)
        s3_access_of(services, job.project, job.source.connection).apply(job.source)
    asked = UploadRequest(
        name=job.name,
        project=job.project,
        options=kept | body.options,
        pool=body.pool,
        tags=(job.tags or {}) | body.tags,
        priority=body.priority,
    )
    options = _options(services, caller, asked)
    if job.options.boost is not None and options.boost is not None and "boost" not in body.options:
        # Resolving the name again could yield other phrases, or none.
        options = options.model_copy(
            update={"boost": options.boost.with_glossary(job.options.boost.glossary)}
        )
    new = _build_job(
        services, caller, asked, options, job.source, job.name, idempotency_key, _identify(job, stretch)
    )
    return _commit(services, replace(new, stretch=stretch), rerun=job)


def _stretch_of(job: Job, body: RerunRequest) -> Stretch | None:
    """What a rerun replaces, if not everything. Raises InvalidRequest, and Conflict for a job without a
    transcript."""
    if body.start is None and body.end is None:
        return None
    if job.state is not JobState.DONE:
        raise Conflict(f"Job {job.id} is {job.state.value}; a stretch of it can be replaced once it is done.")
    if job.options.align is not None:
        raise InvalidRequest(
            f"Job {job.id} aligned an existing transcript, so no stretch of it is recognised again."
        )
    refuse_of_whole(body.options, job.options.channels)
    return stretch_of(job.id, job.audio_seconds, body.start, body.end)


def _identify(job: Job, stretch: Stretch | None) -> str:
    """What a rerun is, for its idempotency key."""
    return f"rerun {job.id}" + ("" if stretch is None else f" {stretch.start} {stretch.end}")


def _options_of(tx: Connection, job: Job, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `job`, in the form of a request, that still apply beside these `changes`."""
    kept = job.options.model_dump(mode="json", exclude={"live", "boost", "align"})
    if (boost := job.options.boost) is not None:
        kept["boost"] = {"phrases": list(phrases_of(tx, boost.sha256)), "weight": boost.weight}
    if (align := job.options.align) is not None and "align" not in changes:
        kept["align"] = Align.of(typescript_of(tx, job.id, align.sha256))
    if align is not None:
        del kept["speech_detector"]  # it was never chosen
    elif changes.get("align") is not None:  # nothing is searched, and the text may name its speakers
        kept = {name: kept[name] for name in WITH_ALIGN - {"diarization"} if name in kept}
    return drop_inapplicable(kept, changes)


def create_from_upload(
    services: Services,
    caller: Principal,
    upload: Upload,
    idempotency_key: str | None,
    answer_by: datetime | None = None,
) -> tuple[JobDetail, bool]:
    """Store the recording, then create its job as the form's `request` says. The bool is True for a new
    job.

    `answer_by`: until when somebody waits for the transcript; the job goes before all that can wait longer.
    """
    body = parse_json(UploadRequest, upload.request or b"{}", WITH_TEXT, "request")
    caller.project_for(body.project)  # refused before anything is stored
    if upload.transcript is not None:
        align = {"data": base64.b64encode(upload.transcript).decode()}
        body = body.model_copy(update={"options": body.options | {"align": align}})
    options = _options(services, caller, body)
    job_id = new_id("job")
    key = f"jobs/{job_id}/source"
    failpoint("upload.received")
    # The object first: otherwise a job could be claimed, and fail, before its recording is stored.
    sha256, hashes = hash_file(upload.path)
    stored = services.objects.put_file(key, upload.path, upload.content_type)
    if not sha256 == stored.sha256 == upload.sha256:
        raise ObjectDamaged("The recording was damaged while it was stored; send it again.")
    failpoint("create.stored")
    source = Source(kind="upload", uri=key, size=upload.size, etag=stored.etag)
    name = body.name or upload.name
    new = _build_job(services, caller, body, options, source, name, idempotency_key, upload.sha256, job_id)
    new = replace(new, source_hashes=hashes, received_sha256=upload.sha256)
    if answer_by is not None:
        new = replace(new, priority=HIGH, deadline=answer_by)
    try:
        job, created = _commit(services, new, refuses_past=answer_by is None)
    except Exception:
        # If the connection broke during the commit, only the database can tell whether there is a job.
        with contextlib.suppress(StorageError):
            _drop_orphan(services, job_id, key)
        raise
    if not created:
        services.objects.delete(key)
    return job, created


def _drop_orphan(services: Services, job_id: str, key: str) -> None:
    try:
        with services.database.read() as tx:
            store.get_job(tx, job_id)
    except NotFound:
        services.objects.delete(key)


def _build_job(
    services: Services,
    caller: Principal,
    body: UploadRequest,
    options: AskedOptions,
    source: Source,
    name: str,
    idempotency_key: str | None = None,
    content: str = "",
    job_id: str | None = None,
) -> store.NewJob:
    project = caller.project_for(body.project)
    output = None
    if body.output is not None:
        with services.database.read() as tx:
            output = check_output(tx, services.settings, project, body.output)
    identity = json.dumps([canonical_request(body, project), content], sort_keys=True)
    return store.NewJob(
        id=job_id,
        source=source,
        options=options.job_options(),
        phrases=options.phrases,
        typescript=options.typescript,
        name=name,
        project=project,
        pool=body.pool,
        worker=body.worker,
        requires=requirement_of(services.settings, options.model, body.requires),
        tags=body.tags,
        reuse=body.reuse,
        deduplicate=body.deduplicate,
        idempotency_key=idempotency_key,
        request_hash=hashlib.sha256(identity.encode()).hexdigest(),
        key_id=caller.key_id,
        priority=PRIORITIES[body.priority],
        deadline=body.deadline,
        traceparent=current().header,
        output=output_of(output, name, place_of(source, services.settings, name)),
    )


def requirement_of(settings: Settings, model: str, asked: Requirement | None) -> Requirement:
    """What a job of this model requires of its machine, if the request asks for `asked`."""
    usual = settings.model_requires.get(model, ANY_MACHINE)
    return usual if asked is None else asked.over(usual)


def _commit(
    services: Services,
    new: store.NewJob,
    *,
    rerun: Job | None = None,
    upload: str | None = None,
    refuses_past: bool = True,
) -> tuple[JobDetail, bool]:
    with services.database.begin() as tx:
        if rerun is not None:
            job, created = rerun_job(tx, rerun, new)
        elif upload is not None:
            job, created = create_job_of_upload(tx, upload, new)
        else:
            job, created = store.create_job(tx, new)
        set_subject(job.ids)
        if created and refuses_past:
            refuse_past(new.deadline)
        cost = NOTHING if created else job_cost(tx, job.id)
        held = find_current_holds(services, tx, job)
        closed = closed_parts_of(tx, job)
    failpoint("create.committed")
    waiting = services.fleet.waiting_for([job]).get(job.id)
    return present_job_detail(job, closed, cost, services.settings.currency, held, waiting), created


def load_detail(services: Services, tx: Connection, job: Job) -> JobDetail:
    """The job as the API shows it, with its cost so far and why it is held."""
    sums, held = job_cost(tx, job.id), find_current_holds(services, tx, job)
    waiting = services.fleet.waiting_for([job]).get(job.id)
    files = exports_of(tx, job.id) if job.output else []
    closed = closed_parts_of(tx, job)
    return present_job_detail(job, closed, sums, services.settings.currency, held, waiting, files)


def cancel_unless_ended(services: Services, job_id: str) -> None:
    """Cancel a job for which nobody waits any longer."""
    with contextlib.suppress(Conflict), services.database.begin() as tx:
        store.cancel_job(tx, job_id)


def find_current_holds(services: Services, tx: Connection, job: Job) -> dict[str, Hold]:
    """Why the job is held, by project; empty unless it is queued."""
    return find_holds(tx, services.settings.quotas, [job.project]) if job.state is JobState.QUEUED else {}


def _options(services: Services, caller: Principal, body: UploadRequest) -> AskedOptions:
    """The options of a request whose model some worker has. Raises `Problem`, UnknownModel, Conflict, and
    InvalidRequest for an unknown glossary."""
    database, settings, project = services.database, services.settings, caller.project_for(body.project)
    lookup = LanguageModelLookup(database, settings.language_models, project)
    asked = lookup.with_version(GlossaryLookup(database, project).with_phrases(body.options))
    try:
        default = services.fleet.default("ctc" if asked.get("align") is not None else None)
        options = resolve_options(settings, default, asked, language_models=lookup.versions)
    except ValidationError as error:
        raise validation_problem(error.errors(include_url=False, include_input=False), "options") from None
    requires = requirement_of(services.settings, options.model, body.requires)
    route = Route(body.pool, body.worker, requires=requires, reader=reader_of(options))
    services.fleet.check(route, options.model, head_of(options), languages_of(options))
    return options


def head_of(options: AskedOptions) -> str | None:
    """The head that the model must have for these options, if they need a certain one."""
    return None if options.align is None else "ctc"


def languages_of(options: AskedOptions) -> tuple[str, ...]:
    """The languages that are named for the recording."""
    given = options.language
    return (given,) if isinstance(given, str) else given or ()


def reader_of(options: AskedOptions) -> str | None:
    """The name of the second model, if one rescores."""
    return None if options.rescore is None else options.rescore.second_model


def canonical_request(request: UploadRequest | BatchUploadRequest, project: str) -> dict[str, Any]:
    """What identifies a request, for the hash that an idempotency key is compared with."""
    return request.model_dump(mode="json", exclude={"deduplicate"}) | {"project": project}


def refuse_past(deadline: datetime | None) -> None:
    """Raise `Problem` for a deadline in the past."""
    if deadline is not None and deadline <= clock.now():
        raise validation_problem([{"loc": ("deadline",), "msg": "is in the past"}])


def resolve_options(
    settings: Settings,
    default_model: str,
    *layers: Mapping[str, Any],
    language_models: Iterable[str] = (),
) -> AskedOptions:
    """The options of all layers, later ones overriding earlier ones, over the default model.
    `language_models`: those that may be named besides the settings'.

    Raises pydantic's ValidationError.
    """
    merged: dict[str, Any] = {
        "model": default_model,
        "speech_detector": settings.speech_detector,
    }
    for layer in layers:
        merged |= layer
    if merged.get("align") is not None and not any("speech_detector" in layer for layer in layers):
        del merged["speech_detector"]
    known = {
        "language_models": sorted({*settings.language_models, *language_models}),
        "graphs": sorted(settings.graphs),
        "diarization_models": sorted(diarization_places(settings.diarization_models)),
    }
    return AskedOptions.model_validate(merged, context=known)
