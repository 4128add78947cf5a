"""The laws as rules over what is stored: what counts as a violation, and what is merely work in progress.

Pure: facts in, violations out. `spool.audit.runner` applies these rules to a live database and object store;
the queries are in `spool.store.audit`. Every rule holds after each commit, whatever crashed in between, so a
violation is a defect of Spool or a manual change, never bad luck.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

from spool.domain.jobs import Job, JobState
from spool.domain.pricing import NANOS_PER_SECOND, SAMPLE_RATE, cost_nanos
from spool.domain.retention import Content, Retention, content_of, rule_for

RULES = {
    "owned": "every job has ended, is owned under a live lease, or is due to be sent or swept",
    "version": "a rerun is a version of a recording that its project has",
    "ended": "a job that ended says how: a transcript and full coverage, or an error",
    "chunks": "chunks are unique, in order, and never overlap",
    "covered": "the chunks of a finished job cover every sample of each channel exactly once",
    "billed": "a job's billable lines are exactly its saved chunks, attempt by attempt",
    "wasted": "wasted time is kept separate: it bills no audio",
    "priced": "a line's money is its time at its price",
    "busy": "a worker's lines add up to its charged time, and to its engine's when it has stopped",
    "period": "no worker is billed more time than it had been up by the end of each day",
    "stored": "a finished job's transcript is in the object store with the recorded hash",
    "source": "an upload is in the store until it is deleted on purpose, or its job failed as source_missing",
    "searchable": "the search has exactly the words of the transcripts",
    "sounds": "what was heard for the search by sound can be read, and is the job's own",
    "corrected": "no correction of a transcript is lost",
    "reviewed": "passages count the errors of standing corrections, and recordings sum up their doubts",
    "exported": "every finished job with an output has its files written elsewhere, or a reason why not",
    "language_model": "the file of every language model is in the object store with the recorded hash",
    "deleted": "content deleted on purpose left no trace, and its deletion is logged",
    "retained": "nothing is kept for longer than its project's rule allows",
    "upload": "no direct upload outlives its expiry",
    "orphan": "every object under jobs/ belongs to a job, or to an upload that waits for one",
}


class Breach(NamedTuple):
    """A rule of `RULES`, the job, worker or object that breaks it, and how, in one sentence."""

    rule: str
    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Grace:
    """How long work in progress may look unowned: a hint is recent for `hint_seconds`; workers send a
    heartbeat each `beat_seconds`; sweeps, heartbeats and clocks may be late by `grace_seconds`; an upload may
    take `upload_seconds` to get its row."""

    hint_seconds: float = 30.0
    beat_seconds: float = 10.0
    grace_seconds: float = 60.0
    upload_seconds: float = 3600.0


@dataclass(frozen=True, kw_only=True)
class JobFacts(Job):
    """A job's row, and what else the rules need of it, read in the same statement."""

    now: datetime
    """The database's clock."""
    hinted_at: datetime | None
    in_outbox: bool
    source_logged: bool
    """The deletion of its recording is logged."""
    transcript_logged: bool
    """The deletion of its transcript is logged."""
    phrases_sha256: str | None
    indexed: int
    """The number of its words in the search."""
    edited_words: int | None
    """The number of words of the corrected transcript; None without corrections."""
    missing_edits: int
    """Missing revisions before existing ones."""
    spelled: bool
    """Whether the search by sound has words of it."""
    exports: int
    """How many files of its output are written, or have a reason why not."""
    still_read: bool
    """A version of its recording has yet to be made."""
    stray: bool
    """It is a version of a recording that no job of its project has, or of another one."""

    @property
    def separate(self) -> bool:
        """Each channel of its recording is transcribed by itself."""
        return self.options.channels == "separate"

    @property
    def files(self) -> int:
        """The number of files of its output."""
        return len(self.output["formats"]) if self.output else 0

    @property
    def deleted(self) -> frozenset[Content]:
        """The contents deleted on purpose."""
        times = {Content.SOURCE: self.source_deleted_at, Content.TRANSCRIPT: self.transcript_deleted_at}
        return frozenset(content for content, moment in times.items() if moment is not None)

    @property
    def logged(self) -> frozenset[Content]:
        """The contents whose deletion is logged."""
        logged = {Content.SOURCE: self.source_logged, Content.TRANSCRIPT: self.transcript_logged}
        return frozenset(content for content, is_logged in logged.items() if is_logged)

    @property
    def has_traces(self) -> bool:
        """The row still has a key, a hash or a list of phrases that lead to its words."""
        traces = (self.transcript_key, self.transcript_sha256, self.content_sha256, self.fingerprint)
        return any(each is not None for each in (*traces, self.phrases_sha256, self.speakers))

    @property
    def keeps_transcript(self) -> bool:
        """It is done, and its transcript was not deleted on purpose."""
        return self.state is JobState.DONE and Content.TRANSCRIPT not in self.deleted

    @property
    def names_transcript(self) -> bool:
        """It says where its transcript is, its hash, and how long the recording is."""
        return bool(self.transcript_key and self.transcript_sha256) and self.audio_seconds is not None

    @property
    def searchable(self) -> int:
        """The number of words that the search should have: of the transcript, if any, as corrected."""
        words = (self.words or 0) if self.edited_words is None else self.edited_words
        return words if self.transcript_key else 0


class Core(NamedTuple):
    """A saved chunk's core, in samples at 16 kHz."""

    job_id: str
    channel: int
    number: int
    start: int
    end: int


class Bill(NamedTuple):
    """What one attempt at a job was billed (without wasted lines), compared with what it saved."""

    job_id: str
    attempt: int
    billed_ns: int
    saved_ns: int
    billed_samples: int
    saved_samples: int


class Line(NamedTuple):
    """One cost line, as far as the rules need it."""

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
    """A worker's sums. `billed_ns` is the sum of its lines, `last_sign` when it stopped or sent its last
    heartbeat."""

    id: str
    state: str
    busy_ns: int
    engine_busy_ns: int
    billed_ns: int
    unbilled_ns: int = 0
    gone: bool = False
    """It did not stop and sent no heartbeat for a while: it died."""


class Lost(NamedTuple):
    """Unbilled engine time of one worker, in nanoseconds, between a lower and an upper bound."""

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
    """`sweeping`: some process holds the sweep's lock or did a moment ago, so that due messages are sent."""
    if job.state.terminal:
        return
    allowance = timedelta(seconds=grace.grace_seconds)
    if job.state is JobState.RUNNING:
        late = job.now - (job.lease_until or job.queued_at)
        if late > allowance:
            seconds = late.total_seconds()
            yield Breach("owned", job.id, f"Its lease ran out {seconds:.0f} s ago and was not taken back.")
        return
    sent = job.hinted_at or job.queued_at
    recent = job.now - sent <= allowance + timedelta(seconds=grace.hint_seconds)
    if not (job.in_outbox or recent or sweeping):
        yield Breach(
            "owned", job.id, f"It has been waiting since {sent:%Y-%m-%d %H:%M:%S} UTC and no process sweeps."
        )


class RowRule(NamedTuple):
    """A rule about one job's row: `breaks` is whether the row violates it, `message` how, with the `job`."""

    rule: str
    breaks: Callable[[JobFacts], object]
    message: str


ROW_RULES = (
    RowRule(
        "version",
        lambda job: job.stray,
        "The first job on its recording does not exist, or has another recording.",
    ),
    RowRule(
        "ended",
        lambda job: job.state.terminal and job.finished_at is None,
        "It is {job.state} without an end time.",
    ),
    RowRule(
        "ended",
        lambda job: job.state is JobState.FAILED and not job.error_code,
        "It failed without a reason.",
    ),
    RowRule(
        "ended",
        lambda job: job.keeps_transcript and not job.names_transcript,
        "It is done but names no transcript.",
    ),
    RowRule(
        "ended",
        lambda job: job.keeps_transcript and job.names_transcript and job.coverage != 1,
        "It is done with a coverage of {job.coverage}.",
    ),
    RowRule(
        "searchable",
        lambda job: job.indexed != job.searchable,
        "The search has {job.indexed} words of it; it has {job.searchable}.",
    ),
    RowRule(
        "searchable",
        lambda job: job.spelled and not job.indexed and not job.searchable,
        "The search by sound has words of it; it has none.",
    ),
    RowRule(
        "corrected", lambda job: job.missing_edits, "Of its corrections {job.missing_edits} are missing."
    ),
    RowRule(
        "exported",
        lambda job: job.transcript_key and job.state is JobState.DONE and job.exports != job.files,
        "Its output has {job.files} files, but only {job.exports} of them are written or due.",
    ),
)


def check_row(job: JobFacts) -> Iterator[Breach]:
    """What a job's row shows by itself."""
    for rule, breaks, message in ROW_RULES:
        if breaks(job):
            yield Breach(rule, job.id, message.format(job=job))


def check_tiling(job: JobFacts, cores: Iterable[Core]) -> Iterator[Breach]:
    """The job's cores in order of channel and number. A finished job's cover [0, total) of every channel from
    0 on, or the stretch that it replaces; any other job's are in order and do not overlap."""
    done = job.state is JobState.DONE and job.audio_seconds is not None
    done = done and job.reused_from is None and Content.TRANSCRIPT not in job.deleted
    stretch = job.stretch
    first = 0 if stretch is None else round(stretch.start * SAMPLE_RATE)
    whole = round((job.audio_seconds or 0) * SAMPLE_RATE)
    total = whole if stretch is None else min(whole, round(stretch.end * SAMPLE_RATE))
    channel, number, at = -1, -1, first
    for core in cores:
        if core.channel != channel:
            if done:
                yield from _check_channel_end(job, channel, at, total)
                if core.channel != channel + 1:
                    yield Breach("covered", job.id, f"Channel {channel + 1} has no chunks.")
            channel, number, at = core.channel, -1, first
        where = f"Chunk {core.number} of channel {channel}"
        if core.number == number:
            yield Breach("chunks", job.id, f"{where} is saved twice.")
        elif core.start < at:
            yield Breach("chunks", job.id, f"{where} begins at {core.start}, before {at}.")
        elif done and (core.start > at or core.number != number + 1):
            yield Breach("covered", job.id, f"{where} begins at {core.start}; covered up to {at}.")
        number, at = core.number, max(at, core.end)
    if done:
        yield from _check_channel_end(job, channel, at, total)
        if channel < 0 or (channel > 0 and not job.separate):
            yield Breach("covered", job.id, f"It has chunks of {channel + 1} channels.")


def _check_channel_end(job: JobFacts, channel: int, at: int, total: int | None) -> Iterator[Breach]:
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
    """The sum of its lines, its charged time and, for a worker that stopped properly, its engine's own count
    are equal."""
    if worker.billed_ns != worker.busy_ns:
        yield Breach(
            "busy", worker.id, f"Its lines add up to {worker.billed_ns} ns; charged were {worker.busy_ns} ns."
        )
    if worker.state == "stopped" and worker.busy_ns != worker.engine_busy_ns:
        message = f"It stopped with {worker.engine_busy_ns} ns of engine time; charged were {worker.busy_ns}."
        yield Breach("busy", worker.id, message)


def measure_lost_time(worker: WorkerFacts, grace: Grace) -> Lost:
    """A worker's engine time that is charged to nobody.

    For a worker that lives or has stopped, this is what it reports: batches that raised are measured; batches
    that died with the engine's process count from when they were sent, which is an upper bound. A worker that
    died loses what it had not billed: at least what its engine had finished by the last heartbeat; at most
    that, the batch then on the device, and all of the time until the next heartbeat was due.
    """
    if not worker.gone:
        return Lost(0, worker.unbilled_ns)
    finished = max(0, worker.engine_busy_ns - worker.busy_ns)
    silent = round(grace.beat_seconds * NANOS_PER_SECOND)
    return Lost(finished, max(0, worker.engine_busy_ns + worker.unbilled_ns + silent - worker.busy_ns))


def check_days(days: Iterable[WorkerDay], grace: Grace) -> Iterator[Breach]:
    """An engine does one thing at a time: by the end of any day, no more was billed than its uptime.

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
"""How late the sweep may be: a new rule has much to delete at once."""


class Stored(NamedTuple):
    """A job as its objects need it: the transcript that counts, and which content should be deleted by
    now."""

    transcript_key: str | None
    gone: frozenset[Content]


def check_deletion(job: JobFacts, chunks: int) -> Iterator[Breach]:
    """What SQL must have for a job with deleted content; `chunks` is the number of its saved ones."""
    for content in sorted(job.deleted - job.logged):
        yield Breach("deleted", job.id, f"Its {content} was deleted, but the deletion is not logged.")
    if Content.TRANSCRIPT in job.deleted and (chunks or job.has_traces):
        yield Breach("deleted", job.id, "Its transcript was deleted, but traces of it are in the database.")
    if job.deleted and not job.state.terminal:
        yield Breach("deleted", job.id, f"Its content was deleted, but it is {job.state}.")


def check_retention(job: JobFacts, rules: Mapping[str, Retention]) -> Iterator[Breach]:
    """Whether content of the job should have been deleted by now."""
    if job.finished_at is None:
        return
    for content in Content:
        kept_for = rule_for(rules, job.project).of(content)
        if kept_for is None or content in job.deleted:
            continue
        if content is Content.SOURCE and job.source.kind not in ("upload", "live"):
            continue
        if content is Content.SOURCE and job.still_read:
            continue
        late = job.now - job.finished_at - kept_for
        if late > SWEEP_GRACE:
            hours = late.total_seconds() / 3600
            yield Breach("retained", job.id, f"Its {content} should have been deleted {hours:.0f} h ago.")


def check_deleted_object(key: str, stored: Stored) -> Iterator[Breach]:
    """An object of a job with deleted content."""
    content = content_of(key)
    if content in stored.gone:
        yield Breach("deleted", key, f"Its job's {content} was deleted, but it is still in the object store.")
