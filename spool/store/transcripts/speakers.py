"""The speakers of a job's recording: asked for again, and the names that people give.

Names are stored in the job's row and never in its stored transcript, so a transcript rendered later has
them. Those that a speaker had before stay for the citations of that time. A deletion removes both.
"""

from collections.abc import Mapping

from sqlalchemy import Connection, func, insert, null, select, update

from spool.domain.archive.diarization import Diarization
from spool.domain.jobs import TERMINAL, Job, JobSpeaker
from spool.domain.options import JobOptions
from spool.domain.retention import Content
from spool.errors import Conflict, InvalidRequest
from spool.store.archive.exports import enqueue_exports
from spool.store.deletions import refuse_deleted
from spool.store.jobs import do_once, get_job, queue_again
from spool.store.rows import JOB_COLUMNS, job_of
from spool.store.sql import now_utc
from spool.store.transcripts.voices import confirm_voices
from spool.tables import former_names, jobs


def diarize_job(tx: Connection, job_id: str, diarization: Diarization) -> Job:
    """Queue a finished job again to find its speakers. Its words and its transcript stay available, also if
    this fails or is cancelled; then it may be requested again, by another model too.

    Raises NotFound, Deleted, and Conflict for a job without a transcript or with one on its way.
    """
    job = get_job(tx, job_id)
    refuse_deleted(job)
    options: JobOptions = job.options.model_copy(update={"diarization": diarization})
    ended = jobs.c.state.in_([state.value for state in TERMINAL])
    has_transcript = jobs.c.transcript_key.is_not(None)
    queued = queue_again(tx, job_id, ended, has_transcript, options=options.model_dump(mode="json"))
    if queued is None:
        raise Conflict(f"Job {job_id} is {job.state}; speakers can be requested once it has a transcript.")
    return queued


def diarize_job_once(
    tx: Connection, job_id: str, diarization: Diarization, key: str | None
) -> tuple[Job, bool]:
    """`diarize_job` under an idempotency key of the job's project, if there is one. The bool is False for a
    repeat, which changes nothing.

    Raises as `diarize_job` does, which leaves the key free; Conflict for another request's key.
    """
    if key is None:
        return diarize_job(tx, job_id, diarization), True
    request = f"diarize {job_id} {diarization.model_dump_json()}"
    return do_once(tx, job_id, key, request, lambda: diarize_job(tx, job_id, diarization))


def name_speakers(
    tx: Connection, job_id: str, names: Mapping[str, str | None], *, remember: bool = False
) -> Job:
    """Name the speakers of a job's transcript by label; None removes a name. Others keep theirs.

    remember: recognise them in the project's other recordings, by their voice prints. Raises NotFound,
    Deleted, Conflict for a job without speakers or a speaker to remember without a print, and InvalidRequest
    for an unknown label.
    """
    tx.execute(select(jobs.c.id).where(jobs.c.id == job_id).with_for_update())
    job = get_job(tx, job_id)
    refuse_deleted(job, Content.TRANSCRIPT)
    if job.speakers is None:
        raise Conflict(f"Job {job_id} has no speakers; nobody has asked for them yet.")
    known = [each["label"] for each in job.speakers]
    unknown = sorted(set(names) - set(known))
    if unknown:
        raise InvalidRequest(
            f"There is no speaker {unknown[0]}; the speakers are: {', '.join(known) or 'none'}."
        )
    speakers: list[JobSpeaker] = [
        {**each, "name": names.get(each["label"], each["name"])} for each in job.speakers
    ]
    values = {"speakers": speakers or null(), "updated_at": now_utc()}
    row = tx.execute(update(jobs).where(jobs.c.id == job_id).values(**values).returning(*JOB_COLUMNS)).one()
    confirm_voices(tx, job_id, job.project, names, remember=remember)
    named = job_of(row)
    if named.speaker_names != job.speaker_names:
        _keep_former_names(tx, job)
    enqueue_exports(tx, named)
    return named


def _keep_former_names(tx: Connection, job: Job) -> None:
    """Keep the names that a job's speakers have, before they have others. Its row is locked."""
    c = former_names.c
    if job.speaker_names in former_names_of(tx, job):
        return
    number = tx.execute(select(func.coalesce(func.max(c.number), 0)).where(c.job_id == job.id)).scalar_one()
    values = {"transcript_sha256": job.transcript_sha256, "names": job.speaker_names}
    tx.execute(insert(former_names).values(job_id=job.id, number=number + 1, **values))


def former_names_of(tx: Connection, job: Job) -> list[dict[str, str]]:
    """By label the names that the speakers of a job's transcript had before, the latest first."""
    c = former_names.c
    own = select(c.names).where(c.job_id == job.id, c.transcript_sha256 == job.transcript_sha256)
    return list(tx.execute(own.order_by(c.number.desc())).scalars())
