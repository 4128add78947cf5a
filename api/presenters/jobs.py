"""Jobs and workers as the API shows them. Pure: one function per record, no queries.

The lease of a job that has ended, folders of machines and keys of objects are not shown.
"""

from collections.abc import Container, Mapping, Sequence
from decimal import Decimal
from typing import Any

from spool.domain.archive.closures import ClosedParts
from spool.domain.archive.voices import VoiceMatch
from spool.domain.fleet.models import AnnouncedModel
from spool.domain.fleet.routing import ANY_MACHINE, route_of
from spool.domain.jobs import Job, JobState, Source
from spool.domain.ledger import CostSums
from spool.domain.options import JobOptions
from spool.domain.pricing import MICROS_PER_UNIT, NANOS_PER_SECOND, SAMPLE_RATE
from spool.domain.priority import NEVER, PRIORITY_NAMES
from spool.domain.quotas import Hold
from spool.schemas.common import ListOf
from spool.schemas.fleet import QualityOut, WorkerModelOut, WorkerOut
from spool.schemas.jobs import (
    CostOut,
    HeardSpeakerOut,
    JobDetail,
    JobErrorOut,
    JobOut,
    ProgressOut,
    SourceOut,
    VoiceMatchOut,
)
from spool.store.workers import Worker
from spool.tables.exports import Export


def present_job(
    job: Job,
    closed: ClosedParts,
    holds: Mapping[str, Hold] | None = None,
    waiting_for: str | None = None,
    first_words: str | None = None,
) -> JobOut:
    """A job without its cost; `holds` by project. `waiting_for`: what it needs that no worker has."""
    own = _differing(job, closed, holds, waiting_for)
    return JobOut.of(job, **own, first_words=None if closed else first_words)


def present_job_detail(
    job: Job,
    closed: ClosedParts,
    cost: CostSums,
    currency: str,
    holds: Mapping[str, Hold] | None = None,
    waiting_for: str | None = None,
    exports: Sequence[Export] = (),
) -> JobDetail:
    """A job with its cost so far and the files of its output."""
    own = _differing(job, closed, holds, waiting_for)
    undelivered = describe_undelivered(job, exports)
    return JobDetail.of(
        job, **own, cost=present_cost(cost, currency), exports=exports, undelivered=undelivered
    )


def describe_undelivered(job: Job, exports: Sequence[Export]) -> str | None:
    """Which files of its output are not where they belong, where that is, and why; None if all are there, or
    nothing has failed yet."""
    missing = [each for each in exports if each.error and each.state in ("pending", "failed")]
    if job.output is None or not missing:
        return None
    what = ", ".join(each.format for each in missing)
    where = job.output["prefix"]
    if job.output["connection"] is not None:
        where = f"{where} (connection {job.output['connection']})"
    reasons = dict.fromkeys((each.error or "").rstrip(".") for each in missing)
    stale = "; an earlier file is still there" if any(each.written_at for each in missing) else ""
    ends = "given up" if all(each.state == "failed" for each in missing) else "it will be tried again"
    return f"{what} could not be written below {where}: {'; '.join(reasons)}{stale}; {ends}."


def _differing(
    job: Job, closed: ClosedParts, holds: Mapping[str, Hold] | None, waiting_for: str | None
) -> dict[str, Any]:
    """The fields of the answer that are not attributes of the job."""
    waits = job.state is JobState.QUEUED
    requires = route_of(job.queue).requires
    return {
        "source": SourceOut.of(job.source, uri=_public_uri(job.source, closed)),
        "requires": None if requires == ANY_MACHINE else requires,
        "waiting_for": waiting_for if waits else None,
        "lease_owner": job.lease_owner if job.state is JobState.RUNNING else None,
        "progress": _progress(job),
        "times": job,
        "warnings": job.warnings or [],
        "skipped_seconds": _sum_skipped(job),
        "error": _error(job),
        "tags": job.tags or {},
        "priority": PRIORITY_NAMES[job.priority],
        "late": waits and job.deadline is not None and job.deadline_rank == NEVER,
        "held": (holds or {}).get(job.project) if waits else None,
        "deleted": job if job.source_deleted_at or job.transcript_deleted_at else None,
        "closed": bool(closed),
    } | (_HIDDEN | {"options": open_options(job, closed)} if closed else {})


_HIDDEN: dict[str, Any] = {
    "warnings": [],
    **dict.fromkeys(("words", "speakers", "words_without_evidence", "speech_without_words")),
}
"""What may tell something about closed words."""


def open_options(job: Job, closed: ClosedParts) -> JobOptions:
    """The options without the text that a prompt gave the model, if something is closed."""
    return job.options.model_copy(update={"prompt": None}) if closed else job.options


def _error(job: Job) -> JobErrorOut | None:
    """Why it failed, or why its last attempt did while it waits for the next one."""
    if job.error_code is None or job.state is JobState.RUNNING:
        return None
    return JobErrorOut(code=job.error_code, message=job.error_message or "")


def present_speakers(
    job: Job, matches: Mapping[str, Sequence[VoiceMatch]], shown: Container[str] | None = None
) -> ListOf[HeardSpeakerOut]:
    """The speakers of a job's transcript with the voices they may be, by label; only those in `matches` have
    a voice print. `shown`: the labels that are not closed."""
    return ListOf(
        items=[
            HeardSpeakerOut(
                **each,
                has_voice_print=each["label"] in matches,
                matches=list(map(VoiceMatchOut.of, matches.get(each["label"], ()))),
            )
            for each in job.speakers or []
            if shown is None or each["label"] in shown
        ]
    )


def present_cost(cost: CostSums, currency: str) -> CostOut:
    """What one job cost so far."""
    return CostOut.of(cost, currency=currency)


def present_worker(worker: Worker) -> WorkerOut:
    """A worker as it last reported."""
    return WorkerOut.of(
        worker,
        state=worker.status,
        reason=_reason(worker),
        model_facts=[
            WorkerModelOut.of(worker.model_facts.get(name, AnnouncedModel()), name=name)
            for name in worker.models
        ],
        rtfx=_rtfx(worker),
        quality={name: QualityOut.of(each, qoi=round(each.qoi, 4)) for name, each in worker.quality.items()},
        price_per_hour=Decimal(worker.price_per_hour_micros) / MICROS_PER_UNIT,
        busy_seconds=worker.busy_ns / NANOS_PER_SECOND,
        refused_jobs=worker.counts.refused,
        junk_messages=worker.counts.junk_messages,
    )


def _rtfx(worker: Worker) -> float | None:
    seconds = worker.engine_busy_ns / NANOS_PER_SECOND
    samples = worker.counts.audio_samples
    return samples / SAMPLE_RATE / seconds if seconds and samples else None


def _reason(worker: Worker) -> str | None:
    if worker.status != "lost":
        return worker.reason
    before = f"; its last state was {worker.state}{f': {worker.reason}' if worker.reason else ''}"
    return f"no heartbeat since {worker.seen_at:%Y-%m-%d %H:%M:%S} UTC{before}"


def _sum_skipped(job: Job) -> float | None:
    if job.decoded_seconds is None or job.audio_seconds is None:
        return None
    return round(max(0.0, job.audio_seconds - job.decoded_seconds), 3)


def _public_uri(source: Source, closed: ClosedParts) -> str:
    """The address without its query, where signed web addresses carry their credentials; none of a closed
    recording on the web, where anybody could play it."""
    if closed and source.kind == "https":
        return ""
    return source.uri.partition("?")[0] if source.kind == "https" else source.uri


def _progress(job: Job) -> ProgressOut:
    fraction = None
    if job.state is JobState.DONE:
        fraction = 1.0
    elif job.audio_seconds:
        fraction = min(1.0, job.done_seconds / job.audio_seconds)
    return ProgressOut(audio_seconds=job.audio_seconds, done_seconds=job.done_seconds, fraction=fraction)
