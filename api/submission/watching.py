"""From a request to a watched folder or bucket: its address, options and output are checked as a batch's are.

The address may be unreachable now, as a disk or bucket may be at any later time; the watcher reports that.
"""

from collections.abc import Sequence

from sqlalchemy import Connection

from api.auth.principal import Principal
from api.services import Services
from api.submission.intake import Intake
from api.submission.listing import folder_of
from api.submission.notifications import places_below
from api.submission.sources import check_place, is_bucket
from spool.domain.options import drop_inapplicable
from spool.errors import InvalidRequest
from spool.schemas.batches import BatchUploadRequest
from spool.schemas.sources import SourceChangeRequest, SourceRequest
from spool.store.archive.sources import SourceChange, create_source, list_sources, mark_places
from spool.tables.sources import NewSource, WatchedSource

SETTLE_FOLDER_S = 30.0


def create_from_request(services: Services, caller: Principal, body: SourceRequest) -> WatchedSource:
    """The new source. Raises InvalidRequest, UnknownModel, SourceForbidden, SourceMissing, Forbidden and
    Conflict."""
    project = caller.project_for(body.project)
    address, settle = _check_address(services, caller, body.source)
    request = body.for_jobs()
    checked = BatchUploadRequest.model_validate(request | {"project": project})
    intake = Intake(services, caller, checked, address=address)  # refuses options and outputs by name
    intake.access.check(address)
    new = NewSource(
        project=project,
        name=body.name or address[:200],
        address=address,
        request=request | {"project": project},
        every_seconds=body.every_seconds,
        settle_seconds=settle if body.settle_seconds is None else body.settle_seconds,
        key_id=caller.key_id,
        reads=None if caller.sources is None else list(caller.sources),
    )
    with services.database.begin() as tx:
        return create_source(tx, new)


def change_from_request(
    services: Services, caller: Principal, source: WatchedSource, body: SourceChangeRequest
) -> SourceChange:
    """What is to change. New options are checked with those that stay, as at the beginning. Raises
    InvalidRequest, UnknownModel and Forbidden."""
    request = None
    if body.options:
        kept = drop_inapplicable(source.request.get("options", {}), body.options)
        request = source.request | {"options": kept | body.options}
        checked = BatchUploadRequest.model_validate(request)
        Intake(services, caller, checked, address=source.address)
    return SourceChange(body.name, request, body.every_seconds, body.settle_seconds, body.paused)


def mark_from_notification(tx: Connection, caller: Principal, created: Sequence[str]) -> int:
    """Mark the objects (`s3://bucket/key`) that are below sources that the caller sees; how many."""
    marked = 0
    for source in list_sources(tx, caller.project):
        marked += mark_places(tx, source.id, places_below(source.address, created))
    return marked


def _check_address(services: Services, caller: Principal, address: str) -> tuple[str, float]:
    """The address with one slash at its end, and how long its files have to settle by default."""
    if not address.isprintable() or address != address.strip():
        raise InvalidRequest("source: an address must not contain control characters or end with a space.")
    if address.startswith("s3://"):
        bucket, _, prefix = address.removeprefix("s3://").partition("/")
        if not is_bucket(bucket):
            raise InvalidRequest(f"source: {bucket!r} is not the name of an S3 bucket.")
        address = f"s3://{bucket}/{prefix.strip('/')}".rstrip("/") + "/"
        check_place(address, services.settings, caller)
        return address, 0.0
    if address.startswith("file://"):
        folder = folder_of(address, services.settings.source_roots)
        address = f"{folder.as_uri().rstrip('/')}/"
        check_place(address, services.settings, caller)
        return address, SETTLE_FOLDER_S
    raise InvalidRequest("source: watch s3://bucket/prefix/ or file:///folder/.")
