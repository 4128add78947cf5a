"""The laws as rules over what is stored: what counts as a breach, and what is merely work in progress.

Pure: facts in, breaches out. `spool.audit.runner` applies these rules to a live database and object store;
the queries are in `spool.store.audit`. Every rule holds after each commit, whatever died in between, so a
breach is a defect of Spool or a change by hand, never bad luck.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from spool.domain.jobs import JobState
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE, cost_nanos
from spool.domain.retention import Content, Retention, content_of, rule_for

RULES = {
    "owned": "every job has ended, is owned under a live lease, or is due to be sent or swept",
    "version": "a job that runs a recording again is a version of a recording that its project has",
    "ended": "a job that ended says how: a transcript and full coverage, or an error",
    "chunks": "chunks are unique, in order, and never overlap",
    "covered": "the chunks of a finished job cover every sample of each channel exactly once",
    "billed": "a job's billable lines are exactly its saved chunks, attempt by attempt",
    "wasted": "wasted time stands apart: it bills no audio",
    "priced": "a line's money is its time at its price",
    "busy": "a worker's lines add up to its charged time, and to its engine's when it has stopped",
    "period": "no worker is billed more time than it had been up by the end of each day",
    "stored": "a finished job's transcript is in the object store with the recorded hash",
    "source": "an upload is in the store until it is deleted on purpose, or its job failed as source_missing",
    "searchable": "the search has every word of every transcript, and no other",
    "corrected": "no correction of a transcript is lost",
    "reviewed": "passages have the errors of the corrections that stand, and recordings their doubt",
    "exported": "every finished job with an output has its files written elsewhere, or says why not",
    "language_model": "the file of every language model is in the object store with the recorded hash",
    "deleted": "what was deleted on purpose is gone, every trace of it, and the log says so",
    "retained": "nothing is kept for longer than its project's rule says",
    "upload": "no upload past the API outlives its time",
    "orphan": "no object under jobs/ is without its job, or the upload that waits for one",
}


class Breach(NamedTuple):
    """A rule of `RULES`, the job, worker or object that breaks it, and how, in one sentence."""

    rule: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Grace:
    """How long work that goes on may look unowned: a hint is recent for `hint_seconds`; workers send a
    heartbeat each `beat_seconds`; sweeps, heartbeats and clocks may be late by `grace_seconds`; an upload may
    take `upload_seconds` to get its row."""

    hint_seconds: float = 30.0
    beat_seconds: float = 10.0
    grace_seconds: float = 60.0
    upload_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job's row as the rules need it; `now` is the database's clock in the same statement."""

    id: str
    state: JobState
    attempt: int
    separate: bool
    source_kind: str
    source_uri: str
    lease_until: datetime | None
    queued_at: datetime
    hinted_at: datetime | None
    finished_at: datetime | None
    in_outbox: bool
    audio_seconds: float | None
    coverage: float | None
    transcript_key: str | None
    transcript_sha256: str | None
    error_code: str | None
    now: datetime
    complete: bool | None = None
    """Whether the recording was as long as its header states; None where it states no length."""
    reused: bool = False
    """Its transcript is a copy of an earlier job's, whose chunks covered the same bytes."""
    project: str = ""
    deleted: frozenset[Content] = frozenset()
    """What of it was deleted on purpose."""
    logged: frozenset[Content] = frozenset()
    """Of what the log says so."""
    words: int | None = None
    """Of its transcript."""
    indexed: int = 0
    """Words of it that the search has."""
    edited_words: int | None = None
    """Words of the transcript as people corrected it; None where nobody did."""
    missing_edits: int = 0
    """Revisions that are not there, though later ones are."""
    spelled: bool = False
    """The search by sound has words of it."""
    files: int = 0
    """Of its output, by the job's options."""
    exports: int = 0
    """Of these, what is written, or says why it is not yet or not at all."""
    still_read: bool = False
    """A version of its recording is still to be made."""
    stray: bool = False
    """It is a version of a recording that no job of its project has, or of another one."""
    traces: bool = False
    """The row still has a key, a hash or a list of phrases that lead to its words."""


class Core(NamedTuple):
    """A saved chunk's core, in samples at 16 kHz."""

    job_id: str
    channel: int
    number: int
    start: int
    end: int


class Bill(NamedTuple):
    """What one attempt at a job was billed (without wasted lines), beside what it saved."""

    job_id: str
    attempt: int
    billed_ns: int
    saved_ns: int
    billed_samples: int
    saved_samples: int


class Line(NamedTuple):
    """One cost line."""

    job_id: str
    attempt: int
    worker_id: str
    day: date
    price_per_hour_micros: int
    wasted: bool
    engine_ns: int
    audio_samples: int
    cost_nanos: int


class WorkerFacts(NamedTuple):
    """A worker's sums. `billed_ns` is the sum of its lines, `last_sign` when it stopped or was last heard
    of."""

    id: str
    state: str
    busy_ns: int
    engine_busy_ns: int
    billed_ns: int
    unbilled_ns: int = 0
    gone: bool = False
    """It did not stop, and was not heard of for a while: it died."""


class Lost(NamedTuple):
    """Engine time of one worker that is on no bill, in nanoseconds: no less and no more than this."""

    least_ns: int
    most_ns: int


class WorkerDay(NamedTuple):
    """What one worker was billed on one UTC day."""

    worker_id: str
    day: date
    engine_ns: int
    started_at: datetime
    last_sign: datetime


def check_owner(job: JobFacts, sweeping: bool, grace: Grace) -> Iterator[Breach]:
    """`sweeping`: some process holds the sweep's lock or did a moment ago, so that what is due goes out."""
    if job.state.terminal:
        return
    allowance = timedelta(seconds=grace.grace_seconds)
    if job.state is JobState.RUNNING:
        late = job.now - (job.lease_until or job.queued_at)
        if late > allowance:
            seconds = late.total_seconds()
            yield Breach("owned", job.id, f"Its lease ran out {seconds:.0f} s ago and nobody took it back.")
        return
    sent = job.hinted_at or job.queued_at
    recent = job.now - sent <= allowance + timedelta(seconds=grace.hint_seconds)
    if not (job.in_outbox or recent or sweeping):
        yield Breach("owned", job.id, f"It waits since {sent:%Y-%m-%d %H:%M:%S} UTC and nobody sweeps.")


def check_version(job: JobFacts) -> Iterator[Breach]:
    """A job that runs a recording again is a version of a recording that its project has."""
    if job.stray:
        yield Breach("version", job.id, "The first job on its recording is gone, or has another recording.")


def check_end(job: JobFacts) -> Iterator[Breach]:
    """What a row in a terminal state has to say."""
    if job.state.terminal and job.finished_at is None:
        yield Breach("ended", job.id, f"It is {job.state} without a time.")
    if job.state is JobState.FAILED and not job.error_code:
        yield Breach("ended", job.id, "It failed without a reason.")
    if job.state is not JobState.DONE:
        return
    if Content.TRANSCRIPT in job.deleted:
        return  # the rules of deletion say what is left
    if not job.transcript_key or not job.transcript_sha256 or job.audio_seconds is None:
        yield Breach("ended", job.id, "It is done and names no transcript.")
    elif job.coverage != 1:
        yield Breach("ended", job.id, f"It is done with a coverage of {job.coverage}.")


def check_index(job: JobFacts) -> Iterator[Breach]:
    """The words that can be searched are those of the transcript that the job has, if it has one, as people
    corrected it."""
    words = (job.words or 0) if job.edited_words is None else job.edited_words
    words = words if job.transcript_key else 0
    if job.indexed != words:
        yield Breach("searchable", job.id, f"The search has {job.indexed} words of it; it has {words}.")
    elif job.spelled and not words:
        yield Breach("searchable", job.id, "The search by sound has words of it; it has none.")


def check_corrections(job: JobFacts) -> Iterator[Breach]:
    """No correction is lost: the revisions of a transcript are 1, 2, 3 and so on."""
    if job.missing_edits:
        yield Breach("corrected", job.id, f"Of its corrections {job.missing_edits} are missing.")


def check_exports(job: JobFacts) -> Iterator[Breach]:
    """Each file of a finished job's output has a row, which the tables make say where it is or why not."""
    if job.transcript_key and job.state is JobState.DONE and job.exports != job.files:
        message = f"Its output has {job.files} files, and {job.exports} of them are written or to be written."
        yield Breach("exported", job.id, message)


def check_tiling(job: JobFacts, cores: Iterable[Core]) -> Iterator[Breach]:
    """The job's cores in order of channel and number. A finished job's tile [0, total) of every channel from
    0 on; any other job's are in order and apart."""
    done = job.state is JobState.DONE and job.audio_seconds is not None
    done = done and not job.reused and Content.TRANSCRIPT not in job.deleted
    total = round((job.audio_seconds or 0) * SAMPLE_RATE) if done else None
    channel, number, at = -1, -1, 0
    for core in cores:
        if core.channel != channel:
            if done:
                yield from _channel_ends(job, channel, at, total)
                if core.channel != channel + 1:
                    yield Breach("covered", job.id, f"Channel {channel + 1} has no chunks.")
            channel, number, at = core.channel, -1, 0
        where = f"Chunk {core.number} of channel {channel}"
        if core.number == number:
            yield Breach("chunks", job.id, f"{where} is saved twice.")
        elif core.start < at:
            yield Breach("chunks", job.id, f"{where} begins at {core.start}, before {at}.")
        elif done and (core.start > at or core.number != number + 1):
            yield Breach("covered", job.id, f"{where} begins at {core.start}; covered up to {at}.")
        number, at = core.number, max(at, core.end)
    if done:
        yield from _channel_ends(job, channel, at, total)
        if channel < 0 or (channel > 0 and not job.separate):
            yield Breach("covered", job.id, f"It has chunks of {channel + 1} channels.")


def _channel_ends(job: JobFacts, channel: int, at: int, total: int | None) -> Iterator[Breach]:
    if channel >= 0 and at != total:
        yield Breach("covered", job.id, f"Channel {channel} is covered up to {at} of {total} samples.")


def check_bill(bill: Bill) -> Iterator[Breach]:
    """Billable time and audio of one attempt are those of the chunks that it saved."""
    if bill.billed_ns != bill.saved_ns:
        yield Breach(
            "billed",
            bill.job_id,
            f"Attempt {bill.attempt} is billed {bill.billed_ns} ns for chunks that took {bill.saved_ns} ns.",
        )
    if bill.billed_samples != bill.saved_samples:
        yield Breach(
            "billed",
            bill.job_id,
            f"Attempt {bill.attempt} is billed {bill.billed_samples} samples for {bill.saved_samples} saved.",
        )


def check_line(line: Line) -> Iterator[Breach]:
    """A line's own arithmetic."""
    where = f"The line of attempt {line.attempt} on {line.day} by {line.worker_id}"
    if line.wasted and line.audio_samples:
        yield Breach("wasted", line.job_id, f"{where} is wasted and bills {line.audio_samples} samples.")
    price = cost_nanos(line.engine_ns, line.price_per_hour_micros)
    if line.cost_nanos != price:
        yield Breach("priced", line.job_id, f"{where} costs {line.cost_nanos} nano-units instead of {price}.")


def check_busy_time(worker: WorkerFacts) -> Iterator[Breach]:
    """Lines, charged time and, for a worker that ended in good order, its engine's own count are one sum."""
    if worker.billed_ns != worker.busy_ns:
        yield Breach(
            "busy", worker.id, f"Its lines add up to {worker.billed_ns} ns; charged were {worker.busy_ns} ns."
        )
    if worker.state == "stopped" and worker.busy_ns != worker.engine_busy_ns:
        message = f"It stopped with {worker.engine_busy_ns} ns of engine time; charged were {worker.busy_ns}."
        yield Breach("busy", worker.id, message)


def measure_lost_time(worker: WorkerFacts, grace: Grace) -> Lost:
    """What a worker's engine did that nobody is charged for.

    While it lives, and when it stopped, that is what it says: batches that raised are measured; batches that
    died with the engine's process are as long as they were out, which is an upper bound. A worker that died
    takes with it what it had not billed: at least what its engine had finished by the last sign of life, at
    most that, the batch that was then on the device, and all of the time until the next sign was due.
    """
    if not worker.gone:
        return Lost(0, worker.unbilled_ns)
    finished = max(0, worker.engine_busy_ns - worker.busy_ns)
    silent = round(grace.beat_seconds * NANOS_PER_SECOND)
    return Lost(finished, max(0, worker.engine_busy_ns + worker.unbilled_ns + silent - worker.busy_ns))


def check_days(days: Iterable[WorkerDay], grace: Grace) -> Iterator[Breach]:
    """An engine does one thing at a time: up to the end of any day, no more was billed than it was up.

    `days` in order of worker and day.
    """
    worker, so_far = "", 0
    for day in days:
        if day.worker_id != worker:
            worker, so_far = day.worker_id, 0
        so_far += day.engine_ns
        midnight = datetime.combine(day.day + timedelta(days=1), time(), tzinfo=UTC)
        up = (min(midnight, day.last_sign) - day.started_at).total_seconds() + grace.grace_seconds
        if so_far > up * NANOS_PER_SECOND:
            seconds = so_far / NANOS_PER_SECOND
            yield Breach(
                "period", worker, f"Billed {seconds:.1f} s by the end of {day.day}, up for {up:.1f} s."
            )


SWEEP_GRACE = timedelta(hours=1)
"""By so much the sweep may be late: a rule that is new has much to delete at once."""


class Stored(NamedTuple):
    """A job as its objects need it: the transcript that counts, and what of the job should be gone by now."""

    transcript_key: str | None
    gone: frozenset[Content]


def check_deletion(job: JobFacts, chunks: int) -> Iterator[Breach]:
    """What SQL has to say of a job of which something was deleted; `chunks` are its saved ones."""
    for content in sorted(job.deleted - job.logged):
        yield Breach("deleted", job.id, f"Its {content} was deleted and no log says so.")
    if Content.TRANSCRIPT in job.deleted and (chunks or job.traces):
        yield Breach("deleted", job.id, "Its transcript was deleted, and traces of it are in the database.")
    if job.deleted and not job.state.terminal:
        yield Breach("deleted", job.id, f"Content of it was deleted, and it is {job.state}.")


def check_retention(job: JobFacts, rules: Mapping[str, Retention]) -> Iterator[Breach]:
    """Whether something of the job should have been deleted by now."""
    if job.finished_at is None:
        return
    for content in Content:
        kept_for = rule_for(rules, job.project).of(content)
        if kept_for is None or content in job.deleted:
            continue
        if content is Content.SOURCE and job.source_kind not in ("upload", "live"):
            continue
        if content is Content.SOURCE and job.still_read:
            continue
        late = job.now - job.finished_at - kept_for
        if late > SWEEP_GRACE:
            hours = late.total_seconds() / 3600
            yield Breach("retained", job.id, f"Its {content} should be gone for {hours:.0f} h.")


def check_deleted_object(key: str, stored: Stored) -> Iterator[Breach]:
    """An object of a job of which something was deleted."""
    content = content_of(key)
    if content in stored.gone:
        yield Breach("deleted", key, f"Its job's {content} was deleted, and it is still in the object store.")
