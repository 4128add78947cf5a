"""Uploads past the API: each becomes the recording of one job."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from sqlalchemy import CheckConstraint, Index

from spool.domain.columns import BigInt, Id, Length, Name, Sha256
from spool.tables.record import table_of

SCHEME = "upload://"


class UploadState(StrEnum):
    """The progress of an upload towards a job."""

    OPEN = "open"
    COMPLETE = "complete"
    USED = "used"
    REMOVED = "removed"


def key_of(job_id: str) -> str:
    """The key of a job's uploaded recording."""
    return f"jobs/{job_id}/source"


@dataclass(frozen=True)
class NewUpload:
    """An upload to be created; see `StoredUpload`."""

    project: Name
    job_id: Id
    name: str
    bytes: BigInt
    part_bytes: BigInt
    sha256: Sha256 | None
    content_type: Annotated[str, Length(100)]
    multipart_id: str


@dataclass(frozen=True, kw_only=True)
class StoredUpload(NewUpload):
    """An upload: `bytes` in parts of `part_bytes`, the last one smaller, and the SHA-256 (hex) that its
    client announced, if any. `multipart_id` is the store's."""

    id: Id
    state: UploadState
    etag: str | None
    created_at: datetime
    expires_at: datetime

    @property
    def source(self) -> str:
        """The source that a job names."""
        return f"{SCHEME}{self.id}"

    @property
    def used_by(self) -> str | None:
        """The job whose recording it is."""
        return self.job_id if self.state is UploadState.USED else None

    @property
    def key(self) -> str:
        """The key of its object."""
        return key_of(self.job_id)

    @property
    def parts(self) -> int:
        """The number of its parts."""
        return -(-self.bytes // self.part_bytes)

    def size_of(self, number: int) -> int:
        """Bytes of the part with this number, from 1."""
        return min(self.part_bytes, self.bytes - (number - 1) * self.part_bytes)


# Direct uploads in parts (`spool.store.archive.uploads`), each under the key of its future job.
uploads = table_of(
    "uploads",
    StoredUpload,
    CheckConstraint("state IN ('open', 'complete', 'used', 'removed')", name="state"),
    Index("ix_uploads_job_id", "job_id", unique=True),
    # The same file, sent again after an interruption.
    Index("ix_uploads_project_sha256", "project", "sha256"),
    Index("ix_uploads_expires_at", "expires_at"),
)
