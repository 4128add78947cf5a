"""Writes a finished transcript to the object store.

Files go under a key that carries the attempt, so that two workers never write the same object and nothing
rests on conditional writes; which attempt counts is said by the row alone. JSON is the record, the others
are rendered from it. Knows keys and formats; runs no SQL.
"""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from spool.domain.transcript import Transcript
from spool.errors import SpoolError
from spool.failpoints import failpoint
from spool.formats import CONTENT_TYPES, STORED, render
from spool.objects import ObjectStore
from spool.objects.base import NewObject
from spool.store.queue.endings import Outcome
from worker.jobs.reuse import Facts
from worker.jobs.speakers import job_speakers

_WARNINGS = 20


@dataclass(frozen=True, slots=True)
class Delivered:
    """The record's key in the object store and the SHA-256 (hex) of its bytes."""

    key: str
    sha256: str


def deliver(objects: ObjectStore, job_id: str, attempt: int, transcript: Transcript) -> Delivered:
    """Write the transcript in every format, the record last. Raises StorageError."""
    record = render(transcript, "json").encode()
    others = [
        NewObject(
            transcript_key(job_id, attempt, form), render(transcript, form).encode(), CONTENT_TYPES[form]
        )
        for form in STORED
        if form != "json"
    ]
    objects.put_several(others)
    failpoint("deliver.begun")
    key = transcript_key(job_id, attempt, "json")
    objects.put_bytes(key, record, CONTENT_TYPES["json"])
    return Delivered(key, hashlib.sha256(record).hexdigest())


def outcome_of(
    transcript: Transcript, delivered: Delivered, facts: Facts, warnings: Sequence[str] = ()
) -> Outcome:
    """What the row of the job says of its transcript. warnings: those that the transcript does not have."""
    witness = transcript.witness
    if witness is not None and witness.abstained:
        witness = None
    return Outcome(
        audio_seconds=transcript.audio.duration,
        transcript_key=delivered.key,
        transcript_sha256=delivered.sha256,
        coverage=transcript.coverage.ratio,
        warnings=[*warnings, *transcript.audio.warnings, *transcript.warnings][:_WARNINGS],
        decoded_seconds=transcript.coverage.speech_seconds,
        speech_coverage=transcript.coverage.speech,
        words=len(transcript.words),
        language=transcript.language,
        complete=transcript.audio.complete,
        expected_seconds=transcript.audio.expected_seconds,
        speakers=None if transcript.diarization is None else job_speakers(transcript),
        words_without_evidence=None if witness is None else witness.words_without_evidence,
        speech_without_words=None if witness is None else transcript.uncovered_seconds,
        **facts,
    )


def withdraw(objects: ObjectStore, job_id: str, attempt: int) -> None:
    """Remove the files of an attempt that does not count, as far as the store allows."""
    for form in STORED:
        with contextlib.suppress(SpoolError):  # the audit finds what stays behind
            objects.delete(transcript_key(job_id, attempt, form))


def transcript_key(job_id: str, attempt: int, form: str) -> str:
    """Where an attempt's transcript is stored."""
    return f"jobs/{job_id}/attempt-{attempt}/transcript.{form}"


def attempt_of(key: str) -> int:
    """The attempt whose transcript is stored under this key."""
    return int(key.split("/")[2].removeprefix("attempt-"))
