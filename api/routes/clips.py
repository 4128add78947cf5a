"""The routes of clips: a stretch of a recording with its citation, its transcript and its sound."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple, get_args
from urllib.parse import urlencode

from fastapi import Depends, Header, Query, Request, Response

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.auth.sight import Sight, SightDep
from api.openapi.document import BINARY, TEXT
from api.presenters.transcripts import key_of_transcript, read_transcript
from api.queries import Subtitles
from api.recordings.heard import hear_samples, refuse_unsure
from api.recordings.ranges import send
from api.recordings.source import find_recording
from api.recordings.wav_file import MEDIA_TYPE, WavFile
from api.services import Services, ServicesDep
from spool.domain.archive.clips import cut_transcript, revision_of, version_of
from spool.domain.archive.stretch import Stretch, stretch_of
from spool.domain.jobs import Job
from spool.domain.transcript import Transcript
from spool.formats import CONTENT_TYPES, check_subtitles, render_bytes
from spool.schemas.clips import ClipFormat, ClipOut, ClipWords
from spool.schemas.common import RecordingTime
from spool.store.transcripts.edits import edits_of
from spool.store.transcripts.speakers import former_names_of

TRANSCRIPT_MEDIA = {
    CONTENT_TYPES[form].partition(";")[0]: BINARY if form == "docx" else TEXT
    for form in get_args(ClipFormat)
    if form != "json"
}
AUDIO_MEDIA = {MEDIA_TYPE: BINARY}


@dataclass(frozen=True, slots=True)
class ClipQuery:
    """Which stretch, and in which version."""

    start: Annotated[RecordingTime, Query(description="Where the clip begins, in seconds.")]
    end: Annotated[RecordingTime, Query(description="Where it ends.")]
    version: Annotated[
        str | None,
        Query(max_length=40, description="The version of the words, from a citation. Default: the newest."),
    ] = None


ClipDep = Annotated[ClipQuery, Depends()]


class _Clip(NamedTuple):
    """A clip in one version, as the request sees it."""

    job: Job
    stretch: Stretch
    version: str
    newest: str
    words: Transcript

    def address(self, base: str, part: str = "") -> str:
        query = {"start": str(self.stretch.start), "end": str(self.stretch.end)}
        query |= {} if part == "/audio" else {"version": self.version}
        return f"{base}v1/jobs/{self.job.id}/clip{part}?{urlencode(query)}"


def get_clip(
    request: Request, services: ServicesDep, caller: CallerDep, sight: SightDep, job_id: str, wanted: ClipDep
) -> ClipOut:
    """Cite a stretch of a recording.

    Its words, a citation, and the addresses of its transcript and its sound. The addresses name the version:
    they give the same words and names of speakers after later corrections. What has been closed since is left
    out.
    """
    clip = _read(services, caller, sight, job_id, wanted)
    job, base = clip.job, str(request.base_url)
    sha256 = job.transcript_sha256 or ""
    return ClipOut(
        job=job.id,
        name=job.name,
        project=job.project,
        start=clip.stretch.start,
        end=clip.stretch.end,
        version=clip.version,
        newest_version=clip.newest,
        transcript_sha256=sha256,
        text=clip.words.text,
        citation=f"{job.name} ({job.project}), {_clock(clip.stretch.start)} to {_clock(clip.stretch.end)}. "
        f"Transcript {job.id}, version {clip.version}, SHA-256 {sha256}. {clip.address(base)}",
        url=clip.address(base),
        transcript_url=clip.address(base, "/transcript"),
        audio_url=clip.address(base, "/audio"),
    )


def get_clip_transcript(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    wanted: ClipDep,
    form: Annotated[ClipFormat, Query(alias="format", description="Format of the transcript.")] = "txt",
    subtitles: Subtitles = None,
) -> Annotated[Response, ClipWords]:
    """Fetch a clip's transcript.

    The words whose middle lies in the clip. Times count from the clip's start, as in its sound.
    """
    clip = _read(services, caller, sight, job_id, wanted)
    headers = {"Cache-Control": "no-store"}
    if form == "json":
        check_subtitles(form, subtitles)
        words = ClipWords.of(clip.words, start=clip.stretch.start, end=clip.stretch.end, version=clip.version)
        return Response(words.model_dump_json(indent=2), headers=headers, media_type=CONTENT_TYPES[form])
    body = render_bytes(clip.words, form, subtitles)
    return Response(body, headers=headers, media_type=CONTENT_TYPES[form])


def get_clip_audio(
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    start: Annotated[RecordingTime, Query(description="Where the clip begins, in seconds.")],
    end: Annotated[RecordingTime, Query(description="Where it ends.")],
    part: Annotated[str | None, Header(alias="Range", max_length=200)] = None,
) -> Response:
    """Fetch a clip's sound.

    A WAV file of the recording's own samples, or the part that `Range` asks for. What is closed is silence.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
    stretch = stretch_of(job.id, job.audio_seconds, start, end)
    recording = find_recording(services, caller, job)
    view = sight.look_at(services.database, job)
    if not view.hides:
        refuse_unsure(services, job, view)
    samples = hear_samples(recording, job, view)
    rate = samples.format.rate
    first, last = (min(round(time * rate), samples.frames) for time in (stretch.start, stretch.end))
    spans = view.closed.spans if view.hides else ()
    return send(WavFile(samples, first, last, spans), part, MEDIA_TYPE, {"Cache-Control": "no-store"})


def _read(services: Services, caller: Principal, sight: Sight, job_id: str, wanted: ClipQuery) -> _Clip:
    """Raises NotFound, as `key_of_transcript` does, InvalidRequest for times outside, and StorageError."""
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        edits = edits_of(tx, job_id)
        former = former_names_of(tx, job)
    key_of_transcript(job)
    stretch = stretch_of(job.id, job.audio_seconds, wanted.start, wanted.end)
    sha256 = job.transcript_sha256 or ""
    revision = len(edits) if wanted.version is None else revision_of(wanted.version, sha256, len(edits))
    view = sight.look_at(services.database, job)
    words = read_transcript(services.objects, job, edits[:revision], view)
    clips = [cut_transcript(words, stretch.start, stretch.end)]
    newest = version_of(sha256, len(edits), clips[0].speakers)
    clips += [clips[0].with_names(names) for names in former]
    versions = [version_of(sha256, revision, clip.speakers) for clip in clips]
    at = versions.index(wanted.version) if wanted.version in versions else 0
    return _Clip(job, stretch, versions[at], newest, clips[at])


def _clock(seconds: float) -> str:
    """1:02:03.5"""
    minutes, rest = divmod(round(seconds, 1), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{f'{hours}:{minutes:02d}' if hours else minutes}:{rest:04.1f}"
