"""The call that sends a file straight to the object store: begin or resume, send missing parts, complete.

The server says which parts the store has, so the client stores nothing: after an interruption the same call
continues. Generators of steps (`spool.client.exchange`).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

from spool import schemas
from spool.client.errors import Conflict, NotFound, ServerFailed
from spool.client.exchange import Ask, Flow, Pause, Retries, Sent, kind_of, read
from spool.client.parts import PartUpload

DIRECT_BYTES = 16 * 2**20
"""Larger files are uploaded directly if the server accepts that; for smaller ones it would take four requests
instead of one."""
_PAGE = 32
_BLOCK = 4 * 2**20
_RETRIES = Retries()


def send_direct(
    path: Path, name: str, project: str | None, sent: Sent | None
) -> Flow[schemas.UploadOut | None]:
    """The file's completed upload; None if the server accepts none. Raises OSError, Refused and
    Unreachable."""
    size = path.stat().st_size
    request = {"name": name, "bytes": size, "sha256": (yield from _sha256(path))}
    request |= {"content_type": kind_of(path)} | ({} if project is None else {"project": project})
    try:
        begin = Ask("POST", "/v1/uploads", json=request, repeatable=True)
        upload = yield from read(begin, schemas.UploadOut)
    except (NotFound, Conflict) as error:
        if error.code in ("not_found", "not_offered"):  # an older server does not know the route
            return None
        raise
    failures = 0
    while upload.state == "open":
        try:
            yield from _send_missing(path, upload, sent)
            done = Ask("POST", f"/v1/uploads/{upload.id}/complete", repeatable=True)
            upload = yield from read(done, schemas.UploadOut)
        except Conflict:  # another client was faster, or a part is missing
            failures += 1
            upload = yield from get_upload(upload.id)
            if upload.state == "open" and failures == _RETRIES.tries:
                raise
    return upload


def get_upload(upload_id: str) -> Flow[schemas.UploadOut]:
    """The current state of the upload."""
    return (yield from read(Ask("GET", f"/v1/uploads/{upload_id}"), schemas.UploadOut))


def _send_missing(path: Path, upload: schemas.UploadOut, sent: Sent | None) -> Flow[None]:
    """Send every part that the store lacks, a page of parts at a time. Raises ServerFailed if parts keep
    failing."""
    there = 0

    def count_sent(more: int) -> None:
        nonlocal there
        there += more
        if sent is not None:
            sent(there, upload.bytes)

    first: int | None = 1
    failures = 0
    while first is not None:
        asked = Ask("GET", f"/v1/uploads/{upload.id}/parts", {"from": first, "limit": _PAGE})
        page = yield from read(asked, schemas.PartPage)
        if not failures:
            count_sent(sum(part.bytes for part in page.items if part.received))
        step = PartUpload(path, [part for part in page.items if part.url], count_sent)
        if step.parts:
            yield step
        if not step.faults:
            first, failures = page.next, 0
            continue
        failures += 1
        if failures == _RETRIES.tries:
            host = urlsplit(str(step.parts[0].url)).netloc
            detail = (
                f"{path.name}: {len(step.faults)} parts did not reach the object store at {host} "
                f"({step.faults[0]}). Received parts are kept: submit the same file again to continue."
            )
            raise ServerFailed(503, "interrupted", detail, {})
        yield Pause(_RETRIES.pause(failures, None))


def _sha256(path: Path) -> Flow[str]:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            yield Pause(0.0)  # lets other tasks run while a large file is read
    return digest.hexdigest()
