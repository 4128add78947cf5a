"""Uploads straight to the object store, past the API: begin, list parts, complete, drop.

Which parts have arrived is asked of the object store, never of the client. `jobs` turns an upload into a job;
`spool.background.upload_sweeper` removes those that were abandoned.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

import structlog

from api.auth.principal import Principal, get_visible_upload
from api.problems import Problem
from api.services import Services
from api.submission.uploads import too_large
from spool import clock
from spool.background.upload_sweeper import remove_upload
from spool.domain.jobs import Source
from spool.errors import Conflict, NotFound, SpoolError
from spool.failpoints import failpoint
from spool.ids import is_id, new_id
from spool.objects import Receiver
from spool.schemas.uploads import NewUploadRequest, PartOut, PartPage
from spool.store.archive import uploads as store
from spool.tables.uploads import SCHEME, NewUpload, StoredUpload, UploadState, key_of

PART_BYTES = 16 * 2**20
"""S3 takes parts of 5 MiB to 5 GiB."""
MOST_PARTS = 10_000
URL_SECONDS = 3600
_SHOWN = 100

log = structlog.get_logger(__name__)


def open_upload(services: Services, caller: Principal, body: NewUploadRequest) -> tuple[StoredUpload, bool]:
    """The upload, and whether it is new: an unfinished upload of the same file is continued. Raises `Problem`
    if the server accepts none or it is too large, Conflict if there are too many."""
    receiver, project = _get_receiver(services), caller.project_for(body.project)
    if body.bytes > services.settings.upload_max_bytes:
        raise too_large(services.settings.upload_max_bytes)
    with services.database.read() as tx:
        if body.sha256 is not None:
            same = store.find_same_upload(tx, project, body.name, body.bytes, body.sha256)
            if same is not None:
                return same, False
        store.refuse_too_many(tx, project)
    job_id = new_id("job")
    # The object store first: a row without it could not be completed. The sweeper aborts what a crash leaves.
    multipart_id = receiver.begin(key_of(job_id), body.content_type)
    failpoint("upload.begun")
    new = NewUpload(
        project=project,
        job_id=job_id,
        name=body.name,
        bytes=body.bytes,
        part_bytes=part_bytes_of(body.bytes),
        sha256=body.sha256,
        content_type=body.content_type,
        multipart_id=multipart_id,
    )
    try:
        with services.database.begin() as tx:
            return store.create_upload(tx, new, services.settings.upload_days), True
    except Conflict:
        receiver.abort(key_of(job_id), multipart_id)
        raise


def part_bytes_of(size: int) -> int:
    """The bytes of a part, for a file of `size` bytes."""
    part = PART_BYTES
    while part * MOST_PARTS < size:
        part *= 2
    return part


def find_upload(services: Services, caller: Principal, upload_id: str) -> StoredUpload:
    """The upload. Raises NotFound."""
    with services.database.read() as tx:
        return get_visible_upload(tx, caller, upload_id)


def list_parts(services: Services, caller: Principal, upload_id: str, first: int, limit: int) -> PartPage:
    """Parts from number `first` on; those that are missing have a URL. Raises NotFound, Conflict for an
    upload that is complete, and `Problem` if the server accepts none."""
    upload, receiver = find_upload(services, caller, upload_id), _get_receiver(services)
    if upload.state is not UploadState.OPEN:
        raise Conflict(f"Upload {upload_id} is {upload.state}; it needs no more parts.")
    until = int(clock.time()) + URL_SECONDS
    try:
        received_bytes = {
            part.number: part.size for part in receiver.parts(*_object_of(upload), first - 1, limit)
        }
    except NotFound:
        raise _refuse_vanished(upload) from None
    numbers = range(first, min(first + limit, upload.parts + 1))
    items = []
    for number in numbers:
        size = upload.size_of(number)
        received = received_bytes.get(number) == size
        url = None if received else receiver.address(*_object_of(upload), number, size, URL_SECONDS)
        offset = (number - 1) * upload.part_bytes
        items.append(PartOut(number=number, offset=offset, bytes=size, received=received, url=url))
    following = first + limit
    return PartPage(
        items=items,
        next=following if following <= upload.parts else None,
        expires_at=datetime.fromtimestamp(until, UTC),
    )


def complete_upload(services: Services, caller: Principal, upload_id: str) -> StoredUpload:
    """Join the parts that the store has; safe to repeat. Raises NotFound, and `Problem` for missing parts."""
    upload = find_upload(services, caller, upload_id)
    if upload.state is not UploadState.OPEN:
        return upload
    receiver = _get_receiver(services)
    try:
        parts = list(receiver.parts(*_object_of(upload)))
        _refuse_missing(upload, {part.number: part.size for part in parts})
        receiver.join(*_object_of(upload), parts)
    except NotFound:
        pass  # If there is an object, an earlier request joined it and its answer was lost.
    failpoint("upload.joined")
    stored = services.objects.head(upload.key)
    if stored is None or stored.size != upload.bytes:
        raise _refuse_vanished(upload)
    with services.database.begin() as tx:
        return store.note_complete(tx, upload_id, stored.etag)


def drop_upload(services: Services, caller: Principal, upload_id: str) -> None:
    """Remove an upload. Raises NotFound, and Conflict if a job uses it."""
    find_upload(services, caller, upload_id)
    with services.database.begin() as tx:
        upload = store.give_up(tx, upload_id)
    try:
        remove_upload(services.database, services.objects, upload)
    except SpoolError as error:  # the sweeper tries again
        log.warning("the upload could not be removed yet", upload=upload_id, error=error.message)


class UploadLookup:
    """The uploads that the lines of a batch name, read many lines at a time."""

    def __init__(self, services: Services, caller: Principal, project: str) -> None:
        self._database, self._caller, self._project = services.database, caller, project
        self.batch_id: str | None = None
        """Set when an interrupted batch is resumed, whose lines may name uploads that its own jobs use."""
        self._found: dict[str, StoredUpload] = {}
        self._own: set[str] = set()

    def read(self, sources: Iterable[str | Source]) -> None:
        """Read the uploads among these sources."""
        named = [each for each in sources if isinstance(each, str) and each.startswith(SCHEME)]
        ids = {source.removeprefix(SCHEME) for source in named}
        ids = {each for each in ids if is_id(each, "upl")}
        self._found, self._own = {}, set()
        if ids:
            with self._database.read() as tx:
                self._found = store.find_uploads(tx, ids)
                if self.batch_id is not None:
                    jobs = [upload.job_id for upload in self._found.values()]
                    self._own = store.find_in_batch(tx, self.batch_id, jobs)

    def find(self, source: str) -> StoredUpload:
        """The upload that this source names, if a job of the batch can use it. Raises NotFound, and Conflict
        for one that belongs to another project, is not complete, or is used by another job."""
        upload_id = source.removeprefix(SCHEME)
        upload = self._found.get(upload_id)
        if upload is None or not self._caller.sees(upload.project):
            raise NotFound(f"There is no upload {upload_id}.")
        refuse_other_project(upload, self._project)
        if upload.job_id not in self._own:
            store.refuse_unready(upload)
        return upload


def refuse_other_project(upload: StoredUpload, project: str | None) -> None:
    """Raise Conflict if the upload belongs to another project; None allows any."""
    if project not in (None, upload.project):
        raise Conflict(f"Upload {upload.id} belongs to project {upload.project}.")


def offers_uploads(services: Services) -> bool:
    """Whether clients may send recordings straight to the object store."""
    return _find_receiver(services) is not None


def _find_receiver(services: Services) -> Receiver | None:
    settings = services.settings
    reached = settings.direct_uploads and settings.s3_public_endpoint_url is not None
    return services.objects.receiver() if reached else None


def _get_receiver(services: Services) -> Receiver:
    receiver = _find_receiver(services)
    if receiver is None:
        raise Problem(409, "not_offered", "This server accepts no recordings in parts; send each one whole.")
    return receiver


def _object_of(upload: StoredUpload) -> tuple[str, str]:
    return upload.key, upload.multipart_id


def _refuse_missing(upload: StoredUpload, found: dict[int, int]) -> None:
    wrong = [each for each in range(1, upload.parts + 1) if found.get(each) != upload.size_of(each)]
    if wrong:
        detail = f"{len(wrong)} of {upload.parts} parts are missing; the first is part {wrong[0]}."
        raise Problem(409, "parts_missing", detail, missing=wrong[:_SHOWN], missing_count=len(wrong))


def _refuse_vanished(upload: StoredUpload) -> Conflict:
    return Conflict(f"The object store no longer has upload {upload.id}; delete it and start a new one.")
