"""Audits a live database and its object store, and reports every violation of the rules in
`spool.audit.rules`.

Reads in short transactions of a page of jobs each, touches no object while one is open, and uses constant
memory. Changes nothing, unless asked to remove the uploads that a killed API left without a job. If something
cannot be read the audit ends with StorageError, since half an audit proves nothing.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from sqlalchemy import Connection

from spool import clock
from spool.audit.rules import (
    Breach,
    Core,
    Grace,
    JobFacts,
    check_bill,
    check_busy_time,
    check_days,
    check_deleted_object,
    check_deletion,
    check_line,
    check_owner,
    check_retention,
    check_row,
    check_tiling,
    measure_lost_time,
)
from spool.background.upload_sweeper import STRAY_SECONDS, find_strays
from spool.domain.archive.edits import Edit, apply_edits, find_standing_edits
from spool.domain.archive.passages import digest_of, passages_of, sounds_of
from spool.domain.archive.sampling import passage_errors
from spool.domain.jobs import JobState
from spool.domain.retention import Content, Retention
from spool.domain.transcript import Transcript
from spool.errors import NotFound, ObjectDamaged, SourceMissing
from spool.formats import STORED, render
from spool.objects import ObjectStore
from spool.objects.integrity import open_verified, read_verified
from spool.sounds.blocks import DamagedSounds, unpack_block
from spool.store import Database
from spool.store import audit as facts
from spool.store.archive.language_models import all_versions, files_in_use, key_of
from spool.store.archive.uploads import find_job_ids, list_overdue
from spool.store.deletions import OVERDUE_SECONDS
from spool.store.queue.locks import SWEEP_LOCK
from spool.store.transcripts.edits import edits_of_all

PAGE = 200
KEPT = 1000
BLOCK = 1024 * 1024
JOBS = "jobs/"
_NOTHING = digest_of((), ())
# Streamed rows are judged between two statements, and a reader locks no row that others need.
IDLE_SECONDS = 60.0


@dataclass(slots=True)
class AuditReport:
    """What was examined, how many violations there are of each rule, and the first `KEPT` of them.

    `arriving` are objects so recent that their job may still be on its way; `leftovers` are files of attempts
    that do not count, which cost space and are harmless; `removed` are orphans that this audit removed;
    `stopped` are unfinished jobs while neither an API process nor a worker runs: they go on when one starts.
    `died` are workers that did not stop properly. Of the finished jobs, `cut_off` are those whose recording
    is shorter than its header states, `unstated` those whose file states no length. Unbilled engine time is
    between `lost_least_ns` and `lost_most_ns`.
    """

    jobs: int = 0
    chunks: int = 0
    lines: int = 0
    workers: int = 0
    objects: int = 0
    arriving: int = 0
    leftovers: int = 0
    removed: int = 0
    stopped: int = 0
    died: int = 0
    cut_off: int = 0
    unstated: int = 0
    lost_least_ns: int = 0
    lost_most_ns: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    breaches: list[Breach] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether every law holds."""
        return not self.counts

    def add(self, breaches: Iterable[Breach]) -> None:
        """Add these violations."""
        for breach in breaches:
            self.counts[breach.rule] += 1
            if len(self.breaches) < KEPT:
                self.breaches.append(breach)


class Corrections(NamedTuple):
    """The edits of a job, and if it has any, its review passages."""

    edits: Sequence[Edit]
    passages: Sequence[facts.PassageErrors]


def audit(
    db: Database,
    objects: ObjectStore | None,
    grace: Grace | None = None,
    *,
    remove_orphans: bool = False,
    retention: Mapping[str, Retention] | None = None,
) -> AuditReport:
    """Check everything; without `objects`, only SQL. Raises StorageError."""
    grace = grace or Grace()
    report = AuditReport()
    for page in _check_pages(db, grace, report, retention or {}):
        if objects is not None:
            with db.read(IDLE_SECONDS) as tx:
                ids = [job.id for job, _ in page]
                indexed, edits = dict(facts.index_digests(tx, ids)), edits_of_all(tx, ids)
                reviewed = facts.passage_errors(tx, edits)
                wrong = facts.wrong_recordings(tx, ids)
            message = "The doubt of its recording does not follow from its passages."
            report.add(Breach("reviewed", job_id, message) for job_id in wrong)
            for job, channels in page:
                digest = indexed.get(job.id, _NOTHING)
                corrections = Corrections(edits.get(job.id, ()), reviewed.get(job.id, ()))
                report.add(_check_objects(objects, job, channels, digest, corrections))
    _check_ledger(db, grace, report)
    if objects is not None:
        report.add(_check_language_models(db, objects))
        _check_orphans(db, objects, grace, report, remove_orphans)
        report.add(_check_uploads(db, objects, grace, report, remove_orphans))
    return report


def _check_pages(
    db: Database, grace: Grace, report: AuditReport, retention: Mapping[str, Retention]
) -> Iterator[list[tuple[JobFacts, int]]]:
    """Judge the jobs a page at a time by their rows, and pass on each page, every job with the number of
    channels that it has chunks of."""
    last = ""
    while True:
        with db.read(IDLE_SECONDS) as tx:
            sweeping = facts.is_swept(tx, SWEEP_LOCK, grace.grace_seconds)
            running = sweeping or facts.has_live_worker(tx, grace.grace_seconds)
            page = facts.jobs_after(tx, last, PAGE)
            ids = [job.id for job in page]
            for bill in facts.bills(tx, ids):
                report.add(check_bill(bill))
            channels = _check_chunks(tx, page, report)
            report.add(_check_sounds(tx, page))
        if not page:
            return
        for job in page:
            if running:
                report.add(check_owner(job, sweeping, grace))
            else:
                report.stopped += not job.state.terminal
            report.add(check_row(job))
            report.add(check_deletion(job, channels[job.id]))
            report.add(check_retention(job, retention))
            finished = job.state is JobState.DONE
            report.cut_off += finished and job.complete is False
            report.unstated += finished and job.complete is None
        report.jobs += len(page)
        last = ids[-1]
        yield [(job, channels[job.id]) for job in page]


def _check_chunks(tx: Connection, page: Sequence[JobFacts], report: AuditReport) -> Counter[str]:
    """Judge the chunks of these jobs as they are streamed; returns how many channels each job has."""
    channels: Counter[str] = Counter()

    def count(cores: Iterable[Core]) -> Iterator[Core]:
        for core in cores:
            report.chunks += 1
            channels[core.job_id] = core.channel + 1
            yield core

    without = {job.id: job for job in page}
    for job_id, cores in groupby(facts.cores(tx, list(without)), attrgetter("job_id")):
        report.add(check_tiling(without.pop(job_id), count(cores)))
    for job in without.values():
        report.add(check_tiling(job, ()))
    return channels


def _check_sounds(tx: Connection, page: Sequence[JobFacts]) -> Iterator[Breach]:
    """What was heard in these jobs can be read back, and is deleted with their transcripts."""
    of_page = {job.id: job for job in page}
    for job_id, channels in groupby(facts.sounds(tx, list(of_page)), itemgetter(0)):
        if not of_page[job_id].transcript_key:
            yield Breach("deleted", job_id, "What was heard in it is kept, but not its transcript.")
        for channel, blocks in groupby(channels, itemgetter(1)):
            for expected, (_, _, number, block) in enumerate(blocks):
                where = f"Block {number} of channel {channel} of what was heard in it"
                if number != expected:
                    yield Breach("sounds", job_id, f"{where} has none before it.")
                    break
                try:
                    unpack_block(block or b"")
                except DamagedSounds as error:
                    yield Breach("sounds", job_id, f"{where} is damaged: {error}.")


def _check_ledger(db: Database, grace: Grace, report: AuditReport) -> None:
    with db.read(IDLE_SECONDS) as tx:
        for line in facts.lines(tx):
            report.lines += 1
            report.add(check_line(line))
        for worker in facts.worker_sums(tx):
            report.workers += 1
            report.add(check_busy_time(worker))
            report.died += worker.gone
            unbilled = measure_lost_time(worker, grace)
            report.lost_least_ns += unbilled.least_ns
            report.lost_most_ns += unbilled.most_ns
        report.add(check_days(facts.worker_days(tx), grace))


def _check_language_models(db: Database, objects: ObjectStore) -> Iterator[Breach]:
    with db.read() as tx:
        versions = all_versions(tx)
    for sha256, kept in {each.sha256: each for each in versions}.items():
        subject, key = f"{kept.project}/{kept.reference}", key_of(sha256)
        try:
            open_verified(objects, key, sha256).close()
        except NotFound:
            # It may have been deleted since the rows were read.
            with db.read() as tx:
                if files_in_use(tx, [sha256]):
                    yield Breach("language_model", subject, f"Its file {key} is not in the object store.")
        except ObjectDamaged as error:
            yield Breach("language_model", subject, error.message)


def _check_objects(
    objects: ObjectStore, job: JobFacts, channels: int, indexed: str, corrections: Corrections
) -> Iterator[Breach]:
    """A job's upload, and a finished one's files; `indexed` is the digest of its words in the search."""
    uploaded = job.source.kind == "upload" and Content.SOURCE not in job.deleted
    if uploaded and job.error_code != SourceMissing.code and objects.head(job.source.uri) is None:
        yield Breach("source", job.id, f"Its upload {job.source.uri} is not in the object store.")
    key = job.transcript_key
    if job.state is not JobState.DONE or key is None:
        return  # the rule `ended` has reported it
    try:
        record = read_verified(objects, key, job.transcript_sha256 or "")
    except NotFound:
        yield Breach("stored", job.id, f"Its transcript {key} is not in the object store.")
        return
    except ObjectDamaged as error:
        yield Breach("stored", job.id, error.message)
        return
    if job.separate and job.reused_from is None:
        recorded = json.loads(record)["audio"]["channels"]
        if recorded != channels:
            yield Breach(
                "covered", job.id, f"It has chunks of {channels} of the recording's {recorded} channels."
            )
    if key.endswith("/transcript.json"):
        transcript = Transcript.model_validate_json(record)
        yield from _check_renderings(objects, job.id, key, transcript)
        spoken = passages_of(apply_edits(transcript, corrections.edits))
        if digest_of(spoken, sounds_of(spoken)) != indexed:
            yield Breach("searchable", job.id, "The search and its transcript have different words.")
        yield from _check_corrections(job.id, transcript, corrections)


def _check_corrections(job_id: str, transcript: Transcript, corrections: Corrections) -> Iterator[Breach]:
    """The passages that corrections touched count their errors."""
    stands = find_standing_edits(corrections.edits)
    for each in corrections.passages:
        errors = passage_errors(transcript.words, stands, each.first, each.last).edits
        if errors != each.errors:
            counted = f"Passage {each.number} counts {each.errors} errors; by its corrections it has"
            yield Breach("reviewed", job_id, f"{counted} {errors}.")


def _check_renderings(
    objects: ObjectStore, job_id: str, key: str, transcript: Transcript
) -> Iterator[Breach]:
    """The other formats beside a transcript: they must equal its rendering, so they need no hash."""
    for form in STORED:
        if form == "json":
            continue
        other = f"{key.removesuffix('json')}{form}"
        digest = hashlib.sha256(render(transcript, form).encode()).hexdigest()
        try:
            read_verified(objects, other, digest)
        except NotFound:
            yield Breach("stored", job_id, f"{other} is not in the object store.")
        except ObjectDamaged as error:
            yield Breach("stored", job_id, error.message)


def _check_orphans(
    db: Database, objects: ObjectStore, grace: Grace, report: AuditReport, remove: bool
) -> None:
    oldest = clock.now().timestamp() - grace.upload_seconds
    listing = objects.list(JOBS)
    while page := list(islice(listing, PAGE)):
        with db.read(IDLE_SECONDS) as tx:
            ids = {_job_of(item.key) for item in page}
            known = facts.find_jobs(tx, ids, grace.grace_seconds)
            waiting = find_job_ids(tx, ids)
        for item in page:
            report.objects += 1
            job_id = _job_of(item.key)
            if job_id in known:
                report.add(check_deleted_object(item.key, known[job_id]))
                report.leftovers += _is_left_over(item.key, known[job_id].transcript_key)
            elif job_id in waiting or (item.modified is not None and item.modified.timestamp() > oldest):
                report.arriving += 1
            elif remove:
                objects.delete(item.key)
                report.removed += 1
            else:
                report.add([Breach("orphan", item.key, "It belongs to no job.")])


def _check_uploads(
    db: Database, objects: ObjectStore, grace: Grace, report: AuditReport, remove: bool
) -> Iterator[Breach]:
    """Direct uploads that should be deleted, and parts that belong to none."""
    late = OVERDUE_SECONDS + grace.grace_seconds
    with db.read() as tx:
        for upload in list_overdue(tx, late):
            yield Breach("upload", upload.id, f"It expired at {upload.expires_at} but still exists.")
    for stray in find_strays(db, objects, STRAY_SECONDS + late):
        receiver = objects.receiver()
        if remove and receiver is not None:
            receiver.abort(stray.key, stray.upload)
            report.removed += 1
        else:
            yield Breach(
                "orphan", stray.key, f"It has had parts since {stray.begun}, but belongs to no upload."
            )


def _job_of(key: str) -> str:
    return key.removeprefix(JOBS).partition("/")[0]


def _is_left_over(key: str, transcript_key: str | None) -> bool:
    """Whether this is a transcript of another attempt than the one that counts."""
    if transcript_key is None or "/attempt-" not in key:
        return False
    return key.rpartition("/")[0] != transcript_key.rpartition("/")[0]
