"""The schemas of direct uploads, past the API."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from spool.domain.manifest import Name
from spool.schemas.common import AnswerModel, Project, RequestModel


class NewUploadRequest(RequestModel):
    """A recording to be sent straight to the object store."""

    name: Name = Field(description="The file's name, and the default name of its job.")
    bytes: Annotated[int, Field(ge=1, le=2**53)] = Field(description="Its size.")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None,
        description="Of the whole file. A worker that reads other bytes fails the job, and repeating this "
        "request returns the same upload until a job uses it.",
    )
    content_type: Annotated[str, Field(pattern=r"^[\w.+-]{1,40}/[\w.+-]{1,50}$")] = "application/octet-stream"
    project: Project | None = Field(
        None, description="The project that pays. Default: the key's project, or `default`."
    )


class UploadOut(AnswerModel):
    """A direct upload to the object store."""

    id: str
    state: Literal["open", "complete", "used"] = Field(description="`used`: it is a job's recording.")
    source: str = Field(description="The source that a job names once the upload is complete.")
    name: str
    project: str
    bytes: int
    sha256: str | None
    part_bytes: int = Field(description="Bytes of each part; the last one has what is left.")
    parts: int = Field(description="The number of parts.")
    job: str | None = Field(validation_alias="used_by", description="The job that uses it.")
    created_at: datetime
    expires_at: datetime = Field(description="When it is deleted unless a job uses it.")


class PartOut(AnswerModel):
    """A part of an upload."""

    number: int = Field(description="1, 2, 3 …")
    offset: int = Field(description="Where it begins in the file.")
    bytes: int = Field(description="Its exact size; the store refuses any other.")
    received: bool = Field(description="Whether the store has it.")
    url: str | None = Field(description="Where to PUT it, without a key; null once it was received.")


class PartPage(AnswerModel):
    """Parts of an upload, by number."""

    items: list[PartOut]
    next: int | None = Field(description="`from` of the next page; null on the last.")
    expires_at: datetime = Field(
        description="Until when the URLs are valid; repeat the request for new ones."
    )
