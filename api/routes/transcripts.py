"""The route of transcripts: the record as JSON from the object store, other formats rendered from it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import IO, Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_job
from api.auth.sight import SightDep, View
from api.openapi.document import BINARY, TEXT
from api.presenters.transcripts import key_of_transcript, read_transcript
from api.queries import Subtitles
from api.services import ServicesDep
from spool.domain.archive.verbatim import leave_out
from spool.domain.jobs import Job
from spool.domain.transcript import Lattice, Transcript
from spool.errors import Forbidden
from spool.formats import (
    CONTENT_TYPES,
    IIIF_TYPE,
    ServedFormat,
    check_subtitles,
    correct_record,
    manifest,
    pbcore,
    render_bytes,
)
from spool.formats.digits import with_digits
from spool.objects.integrity import open_verified, read_verified
from spool.store.transcripts.edits import edits_of

MEDIA = {
    kind.partition(";")[0]: BINARY if name == "docx" else TEXT
    for name, kind in CONTENT_TYPES.items()
    if "json" not in kind
} | {IIIF_TYPE.partition(";")[0]: {"type": "object"}}
_BLOCK = 256 * 1024
REVISION = "X-Spool-Revision"
"""How many corrections the answer includes; an edit repeats it as what it has seen."""


def get_transcript(
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    sight: SightDep,
    job_id: str,
    form: Annotated[ServedFormat, Query(alias="format", description="Format of the transcript.")] = "json",
    digits: Annotated[
        str | None,
        Query(
            pattern="^(auto|[a-z]{2})$",
            description="Write numbers as digits: the language they are spoken in, or `auto` for the "
            "transcript's.",
        ),
    ] = None,
    original: Annotated[bool, Query(description="As recognised, without corrections.")] = False,
    recorded: Annotated[
        bool,
        Query(description="As JSON the stored record, byte for byte, whose hash the receipt has."),
    ] = False,
    subtitles: Subtitles = None,
) -> Annotated[Response, Transcript | list[Lattice]]:
    """Fetch a transcript.

    The transcript of a finished job, with its corrections and the names of its speakers.
    """
    with services.database.read() as tx:
        job = get_visible_job(tx, caller, job_id)
        edits = [] if original else edits_of(tx, job_id)
    key = key_of_transcript(job)
    view = sight.look_at(services.database, job)
    version = (
        _version(job, len(edits)) + (f"-{digits}" if digits else "") + (f"-{subtitles}" if subtitles else "")
    ) + _mark(view)
    headers = {"ETag": f'"{version}.{form}"', REVISION: str(len(edits))}
    if recorded:
        if view.hides:
            raise Forbidden(f"{view.closed.sentence} The stored record requires opening that: `closed=true`.")
        return FileStream(
            open_verified(services.objects, key, job.transcript_sha256 or ""), {}, CONTENT_TYPES["json"]
        )
    sha256 = job.transcript_sha256 or ""
    if form == "json" and not (digits or subtitles or view.closed):
        if not (edits or job.speaker_names):
            return FileStream(open_verified(services.objects, key, sha256), headers, CONTENT_TYPES["json"])
        pieces = correct_record(read_verified(services.objects, key, sha256), edits, job.speaker_names)
        return StreamingResponse(_split(pieces), headers=headers, media_type=CONTENT_TYPES["json"])

    def read() -> Transcript:
        words = read_transcript(services.objects, job, edits, view)
        return words if digits is None else with_digits(words, digits)

    if form == "json" and subtitles is None:

        def put_together() -> bytes:
            if digits is not None:
                return render_bytes(read(), form)
            record = read_verified(services.objects, key, sha256)
            return b"".join(view.show_record(record, edits, job.speaker_names))

        content = services.rendered.get(f"{job_id} {version}", put_together)
        return Response(content, headers=headers, media_type=CONTENT_TYPES[form])
    words = read()
    check_subtitles(form, subtitles)
    address = f"{request.base_url}v1/jobs/{job_id}"
    if form == "iiif":
        return Response(manifest(words, address), headers=headers, media_type=IIIF_TYPE)
    if form == "pbcore":
        described = pbcore(leave_out(words), address)
        return Response(described, headers=headers, media_type=CONTENT_TYPES[form])
    return Response(render_bytes(words, form, subtitles), headers=headers, media_type=CONTENT_TYPES[form])


def _mark(view: View) -> str:
    """What the closures add to the version: other bytes while they stand, and once they are opened."""
    if not view.closed:
        return ""
    which = " ".join(each.id for each in view.closed.closures)
    return f"-{'opened' if view.opened else 'closed'}-{sha256(which.encode()).hexdigest()[:16]}"


def _version(job: Job, revision: int) -> str:
    """What the transcript's bytes depend on: its record, the corrections and the speakers' names."""
    names = json.dumps(job.speaker_names, sort_keys=True)
    return (
        f"{job.transcript_sha256}"
        + (f"-r{revision}" if revision else "")
        + (f"-{sha256(names.encode()).hexdigest()[:16]}" if job.speaker_names else "")
    )


class FileStream(StreamingResponse):
    """Answers with an open file, and closes it even if the client leaves before the first block."""

    def __init__(self, file: IO[bytes], headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(_blocks(file), headers=headers, media_type=media_type)
        self._file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, then close the file."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()


def _blocks(record: IO[bytes]) -> Iterator[bytes]:
    while block := record.read(_BLOCK):
        yield block


def _split(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for piece in pieces:
        for at in range(0, len(piece), _BLOCK):
            yield piece[at : at + _BLOCK]
