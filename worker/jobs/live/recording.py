"""From a live session's log to its job's end: the transcript, the recording, and the job that follows.

The recording becomes the job's source, an upload like others. What was asked to be done with it next is
submitted in the same commit, on a copy of its own, so that deleting the one leaves the other.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from spool.broker.live_signals import audio_channel
from spool.domain.fleet.routing import ANY_MACHINE
from spool.domain.jobs import Job, Source
from spool.domain.live.log import LogParts
from spool.domain.live.options import MOST_AUDIO_BYTES, Listening
from spool.domain.options import JobOptions
from spool.domain.transcript import AudioFacts, ModelFacts, Transcript
from spool.errors import AudioEmpty, AudioTooLong, SpoolError
from spool.ids import new_id
from spool.objects import ObjectStore
from spool.objects.integrity import hash_file
from spool.settings import Settings
from spool.store.jobs import NewJob, create_job
from spool.store.live import close_log, get_parts, keep_recording
from spool.store.queue.leases import Claim
from worker.audio import SAMPLE_RATE
from worker.jobs.attempt import Attempt
from worker.jobs.live.decoding import LiveDecoding, LiveDesk, live_request
from worker.jobs.live.log_reader import LogReader, drop_log
from worker.jobs.transcript import transcript_of
from worker.models.base import ModelInfo

TAG = "live"
"""The tag of a job that follows a live session; its value is the session's job."""


@dataclass(frozen=True, slots=True)
class KeptRecording:
    """A session's recording as it was stored. `following`: the job to be submitted on it."""

    job_id: str
    sha256: str
    size: int
    hashes: bytes
    following: NewJob | None

    def keep(self, tx: Connection, claim: Claim) -> None:
        """In the commit that ends the session's job: its source is the recording. Raises LeaseLost."""
        keep_recording(tx, claim, self.size, self.hashes)
        if self.following is not None:
            create_job(tx, self.following)

    def withdraw(self, objects: ObjectStore) -> None:
        """Remove the copy of a job that was not submitted after all."""
        if self.following is not None:
            with contextlib.suppress(SpoolError):  # the audit finds what stays behind
                objects.delete(self.following.source.uri)

    def drop_log(self, objects: ObjectStore) -> None:
        """The job has ended: its log is no longer needed."""
        with contextlib.suppress(SpoolError):  # it goes with the recording, when that is deleted
            drop_log(objects, self.job_id)


@dataclass(frozen=True, slots=True)
class _Keeper:
    """What SQL says of the log of a claimed session; as `LogKeeper`."""

    attempt: Attempt

    def parts(self) -> LogParts:
        with self.attempt.context.db.read() as tx:
            return get_parts(tx, self.attempt.claim.job.id)

    def close(self, known: LogParts) -> bool:
        with self.attempt.context.db.begin() as tx:
            return close_log(tx, self.attempt.claim, known)


class LiveJob:
    """One attempt at a live session."""

    def __init__(self, attempt: Attempt, objects: ObjectStore, desk: LiveDesk | None, folder: Path) -> None:
        """`folder`: where the recording lies until it is stored."""
        listening = attempt.claim.job.options.live
        if desk is None or listening is None:
            raise SpoolError(f"{attempt.name}: this worker takes no live sessions.")
        self._attempt, self._objects, self._desk = attempt, objects, desk
        self._listening: Listening = listening
        self._folder = folder

    def hear(self, info: ModelInfo) -> tuple[Transcript, KeptRecording]:
        """Hear the session to its end and store its recording.

        Raises what stops the attempt, AudioEmpty for a session without audio, and StorageError.
        """
        attempt, listening, desk = self._attempt, self._listening, self._desk
        job = attempt.claim.job
        with (
            desk.signals.listening(audio_channel(job.id)) as subscription,
            LogReader(self._objects, job.id, listening, self._folder, subscription, _Keeper(attempt)) as log,
        ):
            decoding = LiveDecoding(attempt, desk, listening, log, live_request(attempt, listening))
            decoding.decode()
            if not decoding.samples:
                raise AudioEmpty(f"{job.name}: the session ended before any audio came.")
            recording = self._store(log)
            transcript = transcript_of(
                job.id,
                attempt.decoded,
                decoding.samples,
                self._facts(decoding.samples),
                ModelFacts(name=info.name, sha256=info.sha256),
                job.options.model_dump(mode="json"),
                warnings=info.warnings,
            )
        return transcript, recording

    def _facts(self, samples: int) -> AudioFacts:
        return AudioFacts(
            name=self._attempt.name,
            format="WAV",
            sample_rate=self._listening.sample_rate,
            channels=self._listening.channels,
            duration=samples / SAMPLE_RATE,
        )

    def _store(self, log: LogReader) -> KeptRecording:
        job = self._attempt.claim.job
        path = log.write_recording()
        size = path.stat().st_size
        if size > MOST_AUDIO_BYTES:
            raise AudioTooLong(f"{job.name}: the recording has {size} bytes, more than a WAV file can hold.")
        sha256, hashes = hash_file(path)
        self._objects.put_file(job.source.uri, path, "audio/wav")
        following = build_following_job(job, self._listening, self._attempt.context.settings, size, hashes)
        if following is not None:
            self._objects.put_file(following.source.uri, path, "audio/wav")
        return KeptRecording(job.id, sha256, size, hashes, following)


def build_following_job(
    job: Job, listening: Listening, settings: Settings, size: int, hashes: bytes
) -> NewJob | None:
    """The job on the session's recording that was asked for with the session."""
    if listening.then is None:
        return None
    options = JobOptions.model_validate(listening.then)
    job_id = new_id("job")
    return NewJob(
        id=job_id,
        source=Source("upload", f"jobs/{job_id}/source", size),
        options=options,
        name=job.name,
        project=job.project,
        pool=None,
        requires=settings.model_requires.get(options.model, ANY_MACHINE),
        tags={**(job.tags or {}), TAG: job.id},
        key_id=job.key_id,
        priority=job.priority,
        traceparent=job.traceparent,
        source_hashes=hashes,
    )
