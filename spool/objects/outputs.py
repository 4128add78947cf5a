"""Writes a file to somebody else's folder or bucket, whole or not at all.

The names there are theirs: unlike keys of our own object store they may hold anything. What may be written
where was decided before; a link that leads out of the allowed folder is refused here, since it may have been
made in between.
"""

import hashlib
import stat
from functools import partial
from io import BytesIO
from pathlib import Path

from spool.errors import SourceForbidden
from spool.objects.local import BLOCK, storage_errors, write_whole
from spool.objects.output_folders import folder_at
from spool.objects.s3 import open_bucket
from spool.objects.s3_client import S3Options

_READABLE = stat.S_IRUSR | stat.S_IWUSR | stat.S_IRGRP | stat.S_IWGRP | stat.S_IROTH


def write_object(options: S3Options, uri: str, data: bytes, content_type: str) -> str:
    """Store `data` at `s3://bucket/key`; its SHA-256 (hex). Raises StorageError, DiskFull, NotFound for a
    missing bucket and SourceForbidden for one that may not be written."""
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    digest = hashlib.sha256(data).hexdigest()
    open_bucket(bucket, "", options).call(
        "put_object", key, Body=data, ContentType=content_type, Metadata={"sha256": digest}
    )
    return digest


def write_file(uri: str, prefix: str, data: bytes) -> str:
    """Store `data` in the file at `uri`, below the folder at `prefix`, by way of a temporary file beside it;
    its SHA-256 (hex). Whoever may read the folder may read the file. Missing folders are created.

    Raises StorageError, DiskFull, SourceForbidden.
    """
    root, path = folder_at(prefix), folder_at(uri)
    with storage_errors(str(path)):
        _refuse_links(path.parent, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_links(path.parent, root)
        digest = write_whole(path, path.parent, partial(BytesIO(data).read, BLOCK))
        path.chmod(path.parent.stat().st_mode & _READABLE)
    return digest


def _refuse_links(folder: Path, root: Path) -> None:
    # `root` had its links followed when it was allowed; one that it has now leads elsewhere.
    if not folder.resolve().is_relative_to(root):
        raise SourceForbidden(f"{folder} leads out of {root}.")
