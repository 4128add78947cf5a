"""Jobs and workers as the API shows them. Pure: one function per record, no queries.

The lease of a job that has ended, folders of machines and keys of objects are not shown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal

from api.presenters.outputs import present_exports, present_output
from spool.domain.archive.voices import VoiceMatch
from spool.domain.fleet.models import ModelFacts
from spool.domain.fleet.quality import Quality
from spool.domain.fleet.routing import ANY_MACHINE, Requirement, route_of
from spool.domain.jobs import Job, JobState, Source
from spool.domain.ledger import CostSums
from spool.domain.pricing import MICROS_PER_UNIT, NANOS_PER_SECOND, SAMPLE_RATE
from spool.domain.priority import NEVER, PRIORITY_NAMES
from spool.domain.quotas import Hold
from spool.schemas.fleet import QualityOut, WorkerModelOut, WorkerOut
from spool.schemas.jobs import (
    CostOut,
    DeletedOut,
    HeardSpeakerOut,
    HeldOut,
    JobDetail,
    JobErrorOut,
    JobOut,
    ProgressOut,
    SourceOut,
    SpeakerOut,
    SpeakersOut,
    TimesOut,
    VoiceMatchOut,
)
from spool.store.archive.exports import Export
from spool.store.workers import Worker


def present_job(job: Job, holds: Mapping[str, Hold] | None = None, waiting_for: str | None = None) -> JobOut:
    """A job without its cost; `holds` by project. `waiting_for`: what it needs that no worker has."""
    waits = job.state is JobState.QUEUED
    return JobOut(
        id=job.id,
        name=job.name,
        project=job.project,
        state=job.state,
        source=SourceOut(
            kind=job.source.kind,
            uri=_public_uri(job.source),
            size=job.source.size,
            connection=job.source.connection,
        ),
        options=job.options,
        pool=job.pool,
        worker=job.worker,
        requires=_requirement(job),
        waiting_for=waiting_for if waits else None,
        lease_owner=job.lease_owner if job.state is JobState.RUNNING else None,
        attempts=job.attempt,
        refusals=job.refusals,
        crashes=job.crashes,
        cancel_requested=job.cancel_requested,
        progress=_progress(job),
        times=TimesOut(
            created_at=job.created_at,
            queued_at=job.queued_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            updated_at=job.updated_at,
        ),
        words=job.words,
        language=job.language,
        coverage=job.coverage,
        warnings=job.warnings or [],
        decoded_seconds=job.decoded_seconds,
        skipped_seconds=_skipped_seconds(job),
        speech_coverage=job.speech_coverage,
        complete=job.complete,
        expected_seconds=job.expected_seconds,
        missing_seconds=job.missing_seconds,
        error=_error(job),
        batch=job.batch_id,
        custom_id=job.custom_id,
        tags=job.tags or {},
        reused_from=job.reused_from,
        rerun_of=job.rerun_of,
        priority=PRIORITY_NAMES[job.priority],
        deadline=job.deadline,
        late=waits and job.deadline is not None and job.deadline_rank == NEVER,
        held=present_hold((holds or {}).get(job.project)) if waits else None,
        deleted=_deletion(job),
        speakers=present_speakers(job),
        output=present_output(job),
    )


def _error(job: Job) -> JobErrorOut | None:
    """Why it failed, or why its last attempt did while it waits for the next one."""
    if job.error_code is None or job.state is JobState.RUNNING:
        return None
    return JobErrorOut(code=job.error_code, message=job.error_message or "")


def present_job_detail(
    job: Job,
    cost: CostSums,
    currency: str,
    holds: Mapping[str, Hold] | None = None,
    waiting_for: str | None = None,
    exports: Sequence[Export] = (),
) -> JobDetail:
    """A job with its cost so far and the files of its output."""
    return JobDetail(
        **dict(present_job(job, holds, waiting_for)),
        cost=present_cost(cost, currency),
        exports=present_exports(exports),
    )


def present_speakers(job: Job) -> list[SpeakerOut] | None:
    """The speakers of a job's transcript."""
    return None if job.speakers is None else [SpeakerOut(**each) for each in job.speakers]


def present_voice_matches(job: Job, matches: Mapping[str, Sequence[VoiceMatch]]) -> SpeakersOut:
    """The speakers of a job's transcript with the voices they may be, by label; only those in `matches` have
    a voice print."""
    return SpeakersOut(
        items=[
            HeardSpeakerOut(
                **each,
                has_voice_print=each["label"] in matches,
                matches=[
                    VoiceMatchOut(
                        voice=match.voice.id,
                        name=match.voice.name,
                        similarity=match.similarity,
                        recordings=match.voice.recordings,
                    )
                    for match in matches.get(each["label"], ())
                ],
            )
            for each in job.speakers or []
        ]
    )


def present_hold(hold: Hold | None) -> HeldOut | None:
    """Why a project's jobs wait."""
    return None if hold is None else HeldOut(by=hold.by, reason=hold.reason, until=hold.until)


def present_cost(cost: CostSums, currency: str) -> CostOut:
    """What one job cost so far."""
    return CostOut(
        audio_seconds=cost.audio_seconds,
        engine_seconds=cost.engine_seconds,
        rtfx=cost.rtfx,
        billable=cost.billable_cost,
        wasted=cost.wasted_cost,
        currency=currency,
    )


def present_worker(worker: Worker) -> WorkerOut:
    """A worker as it last reported."""
    info = worker.info
    return WorkerOut(
        id=info.id,
        name=info.name,
        pool=info.pool,
        host=info.host,
        chip=info.chip,
        version=info.version,
        state=worker.status,
        reason=_reason(worker),
        alive=worker.alive,
        models=list(info.models),
        model_facts=_present_models(worker),
        backend=info.backend,
        rtfx=_rtfx(worker),
        loaded_models=_to_list(worker.loaded),
        pinned_models=_to_list(info.pinned),
        quality={name: _present_quality(each) for name, each in worker.quality.items()},
        gpu_cores=info.gpu_cores,
        memory_bytes=info.memory_bytes,
        concurrency=info.concurrency,
        price_per_hour=Decimal(info.price_per_hour_micros) / MICROS_PER_UNIT,
        busy_seconds=worker.busy_ns / NANOS_PER_SECOND,
        refused_jobs=worker.counts.refused,
        junk_messages=worker.counts.junk_messages,
        started_at=worker.started_at,
        seen_at=worker.seen_at,
    )


def _present_quality(quality: Quality) -> QualityOut:
    document = {key: value for key, value in quality.document().items() if key != "no_worse"}
    return QualityOut(qoi=round(quality.qoi, 4), **document)


def _requirement(job: Job) -> Requirement | None:
    requires = route_of(job.queue).requires
    return None if requires == ANY_MACHINE else requires


def _present_models(worker: Worker) -> list[WorkerModelOut]:
    facts = worker.info.facts
    return [WorkerModelOut(name=name, **asdict(facts.get(name, ModelFacts()))) for name in worker.info.models]


def _rtfx(worker: Worker) -> float | None:
    seconds = worker.engine_busy_ns / NANOS_PER_SECOND
    samples = worker.counts.audio_samples
    return samples / SAMPLE_RATE / seconds if seconds and samples else None


def _reason(worker: Worker) -> str | None:
    if worker.status != "lost":
        return worker.reason
    before = f"; its last state was {worker.state}{f': {worker.reason}' if worker.reason else ''}"
    return f"no heartbeat since {worker.seen_at:%Y-%m-%d %H:%M:%S} UTC{before}"


def _to_list(names: tuple[str, ...] | None) -> list[str] | None:
    return None if names is None else list(names)


def _deletion(job: Job) -> DeletedOut | None:
    if job.source_deleted_at is None and job.transcript_deleted_at is None:
        return None
    return DeletedOut(source=job.source_deleted_at, transcript=job.transcript_deleted_at)


def _skipped_seconds(job: Job) -> float | None:
    if job.decoded_seconds is None or job.audio_seconds is None:
        return None
    return round(max(0.0, job.audio_seconds - job.decoded_seconds), 3)


def _public_uri(source: Source) -> str:
    """The address without its query, where signed web addresses carry their credentials."""
    return source.uri.partition("?")[0] if source.kind == "https" else source.uri


def _progress(job: Job) -> ProgressOut:
    fraction = None
    if job.state is JobState.DONE:
        fraction = 1.0
    elif job.audio_seconds:
        fraction = min(1.0, job.done_seconds / job.audio_seconds)
    return ProgressOut(audio_seconds=job.audio_seconds, done_seconds=job.done_seconds, fraction=fraction)
