"""Opens the object store of the settings, and others in S3."""

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from spool.errors import SettingsError
from spool.objects.base import ObjectStore
from spool.objects.local import FolderStore
from spool.settings import Settings

if TYPE_CHECKING:
    from spool.objects.s3 import S3Store
    from spool.objects.s3_link import Link


def object_store(settings: Settings) -> ObjectStore:
    """The store that `SPOOL_OBJECTS` names. Connects to nothing yet."""
    folder = settings.objects_folder
    if folder is not None:
        return FolderStore(folder)
    parts = urlsplit(settings.objects)
    if parts.scheme != "s3":
        raise SettingsError("SPOOL_OBJECTS has to be file:///folder or s3://bucket/prefix.")
    return s3_store(settings, parts.netloc, parts.path.strip("/"))


def s3_store(settings: Settings, bucket: str, prefix: str = "", *, link: "Link | None" = None) -> "S3Store":
    """Any bucket, with the settings' endpoint and credentials: where `s3://` sources are read from. With a
    `link`, the one object that it leads to, and no credentials."""
    from spool.objects.s3 import S3Store, open_bucket  # boto3 takes a tenth of a second
    from spool.objects.s3_client import S3Options

    if link is not None:
        return S3Store(bucket, prefix, S3Options(checksums=settings.s3_checksums, link=link))
    own = S3Options(
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=settings.s3_secret_access_key,
        checksums=settings.s3_checksums,
        public_endpoint_url=settings.s3_public_endpoint_url,
    )
    return open_bucket(bucket, prefix, own)
