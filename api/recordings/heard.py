"""What a request may hear of a recording: every answer with sound asks here."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from api.auth.sight import View
from api.problems import Problem
from api.recordings.sample_format import CannotCut
from api.recordings.samples import Samples, Silence, open_samples
from api.recordings.source import Readable, Recording, RecordingFile
from api.recordings.wav_file import WavFile
from api.services import Services
from spool.domain.jobs import Job
from spool.errors import Forbidden
from spool.recordings.silence import Muted, mute_wav
from spool.store.archive.closed import any_content_closed


@dataclass(frozen=True, slots=True)
class MutedRecording:
    """A plain WAV file with zeros for what is closed."""

    recording: Recording
    muted: Muted

    @property
    def size(self) -> int:
        """That of the recording."""
        return self.recording.size

    def part(self, start: int, end: int) -> Iterator[bytes]:
        """Bytes `[start, end)`."""
        return self.muted.apply(self.recording.part(start, end), start)


def refuse_unsure(services: Services, job: Job, view: View) -> None:
    """Raise `Problem` if the bytes of the recording may be those of a closed one."""
    if view.closed or job.content_sha256 is not None:
        return
    with services.database.read() as tx:
        unsure = any_content_closed(tx, job.project)
    if unsure:
        reason = "Something of this project is closed, and this recording has not been read yet."
        raise Problem(409, "not_here", reason)


def silence_recording(services: Services, job: Job, recording: Recording, view: View) -> Readable | None:
    """The recording without what is closed; None if nothing is. Raises Forbidden if it cannot be
    silenced."""
    if not view.hides:
        refuse_unsure(services, job, view)
        return None
    if not view.closed.is_whole:
        file = RecordingFile(recording)
        muted = mute_wav(cast("BinaryIO", file), view.closed.spans)
        if file.error is not None:
            raise file.error
        if muted is not None:
            return MutedRecording(recording, muted)
    samples = hear_samples(recording, job, view)
    return WavFile(samples, 0, samples.frames, view.closed.spans)


def hear_samples(recording: Recording, job: Job, view: View) -> Samples:
    """The samples of the recording; if it is closed whole, as many of silence. Raises Forbidden if something
    is closed and they cannot be told apart, and CannotCut if nothing is."""
    if view.hides and view.closed.is_whole and job.audio_seconds is not None:
        return Silence(job.audio_seconds)
    try:
        return open_samples(recording, job.name, job.audio_seconds)
    except CannotCut as error:
        if view.hides:
            raise Forbidden(f"{view.closed.sentence} {error.detail}") from None
        raise
