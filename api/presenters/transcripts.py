"""The transcript of a job as people read it: the verified record, corrected, with speakers named."""

from collections.abc import Sequence

from api.auth.sight import View
from api.problems import Problem
from spool.domain.archive.edits import Edit, apply_edits
from spool.domain.archive.record import Record
from spool.domain.jobs import Job
from spool.domain.retention import Content
from spool.domain.transcript import Transcript
from spool.formats import open_record
from spool.objects import ObjectStore
from spool.objects.integrity import read_verified
from spool.store.deletions import refuse_deleted


def read_transcript(objects: ObjectStore, job: Job, edits: Sequence[Edit], view: View) -> Transcript:
    """The transcript with `edits` applied, as `view` shows it. Raises as `key_of_transcript` does, and
    StorageError."""
    return view.show(apply_edits(read_record(objects, job), edits).with_names(job.speaker_names))


def read_record(objects: ObjectStore, job: Job) -> Transcript:
    """The transcript as it was recognised, closed words too: no answer may show it.

    Raises as `key_of_transcript` does, and StorageError.
    """
    return Transcript.model_validate_json(_read_bytes(objects, job))


def read_parts(objects: ObjectStore, job: Job) -> Record:
    """The same, of which words are read as they are asked for."""
    return open_record(_read_bytes(objects, job))


def _read_bytes(objects: ObjectStore, job: Job) -> bytes:
    return read_verified(objects, key_of_transcript(job), job.transcript_sha256 or "")


def key_of_transcript(job: Job) -> str:
    """The key of a job's transcript record. Raises Deleted, and `Problem` if there is none yet."""
    refuse_deleted(job, Content.TRANSCRIPT)
    if job.transcript_key is None:  # while its speakers are being found, a job keeps its transcript
        reason = f": {job.error_message}" if job.error_message else "."
        raise Problem(409, "not_done", f"Job {job.id} is {job.state}{reason}", state=job.state.value)
    return job.transcript_key
