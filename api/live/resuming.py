"""Resumes a session on another connection: who may, and from which of its bytes on.

Its audio continues after what is stored. Nothing of the lost connection is needed, so the new one may be in
another process: SQL says where the new part of the log begins (`spool.domain.live.log`), and anything
that the old connection writes after that is not part of the session.
"""

from dataclasses import dataclass
from typing import Final

from anyio import to_thread

from api.auth.principal import Principal, get_visible_job
from api.live.log_writer import Place
from api.live.opening import parameter_problem, read_values, take_switches
from api.services import Services
from spool.domain.jobs import Job, JobState
from spool.domain.live.log import LogParts, audio_size, decode_record, is_in_part, part_prefix
from spool.domain.live.options import SAMPLE_RATE
from spool.errors import Conflict, NotFound
from spool.store.chunks import load_chunks
from spool.store.live import get_parts, open_part

PARAMETER: Final = "session"
_FROM = "from"
_TOLERANCE = 0.002
"""In seconds: the ends of finals are sent in whole milliseconds."""
_TRIES = 5
_OPEN = frozenset({JobState.QUEUED, JobState.RUNNING})


@dataclass(frozen=True, slots=True)
class Resumption:
    """What a resuming client asks for: its session, and up to where it has the finals, in seconds."""

    job_id: str
    heard: float


def read_resumption(pairs: list[tuple[str, str]]) -> tuple[Resumption, dict[str, bool]]:
    """The request of a query with `session`, and its switches. Raises `Problem` 422."""
    values, tags = read_values(pairs)
    switches = take_switches(values)
    job_id, text = values.pop(PARAMETER), values.pop(_FROM, "0")
    if values or tags:
        raise parameter_problem(next(iter(values), "tag"), "was chosen when the session was opened")
    try:
        heard = float(text)
    except ValueError:
        heard = -1.0
    if not 0 <= heard < 1e9:
        raise parameter_problem(_FROM, "must be a number of seconds")
    return Resumption(job_id, heard), switches


async def resume_session(services: Services, caller: Principal, asked: Resumption) -> tuple[Job, Place]:
    """The session's job, and where to continue. Raises NotFound for a session that the key may not see, and
    Conflict for one that has ended."""
    return await to_thread.run_sync(_resume, services, caller, asked, limiter=services.live.threads)


def _resume(services: Services, caller: Principal, asked: Resumption) -> tuple[Job, Place]:
    for _ in range(_TRIES):
        with services.database.read() as tx:
            job = get_visible_job(tx, caller, asked.job_id)
            if job.options.live is None or job.key_id != caller.key_id:
                raise NotFound(f"There is no job {asked.job_id}.")
            parts = get_parts(tx, job.id)
            chunks = load_chunks(tx, job.id, 0)
        start = _measure_stored(services, job, parts) if job.state in _OPEN else None
        if start is None:
            raise Conflict(f"The session has ended; its words are in job {job.id}.")
        with services.database.begin() as tx:
            if not open_part(tx, job.id, parts, start):
                continue
        known = [chunk for chunk in chunks if chunk.span.core_end / SAMPLE_RATE <= asked.heard + _TOLERANCE]
        return job, Place(parts.last + 1, start, len(known))
    raise Conflict("The session is being resumed by several clients at once.")


def _measure_stored(services: Services, job: Job, parts: LogParts) -> int | None:
    """How much of the session's audio is stored, in bytes; None if its end is, too."""
    size, last = parts.start(parts.last), None
    for item in services.objects.list(part_prefix(job.id, parts.last)):
        if is_in_part(item.key, job.id, parts.last):
            size, last = size + audio_size(item.size), item.key
    try:
        if last is not None and _is_end(services, last):
            return None
    except NotFound:  # the session has ended meanwhile, and its log was joined into its recording
        return None
    return size


def _is_end(services: Services, key: str) -> bool:
    with services.objects.open(key) as stream:
        return decode_record(stream.read()).kind == "end"
