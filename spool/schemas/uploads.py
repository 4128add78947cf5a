"""The schemas of uploads that go past the API, in parts."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field

from spool.domain.manifest import Name
from spool.schemas.common import Project, with_example
from spool.schemas.examples import uploads as examples


class NewUploadRequest(BaseModel):
    """A recording that is to be sent straight to the object store."""

    model_config = with_example(examples.REQUEST, strict=True)

    name: Name = Field(description="The file's name, which the job has unless it is given another.")
    bytes: Annotated[int, Field(ge=1, le=2**53)] = Field(description="Its size.")
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None,
        description="Of the whole file. A worker that reads other bytes fails the job, and a repeat of this "
        "request answers with the same upload until a job names it.",
    )
    content_type: Annotated[str, Field(pattern=r"^[\w.+-]{1,40}/[\w.+-]{1,50}$")] = "application/octet-stream"
    project: Project | None = Field(
        None, description="The project that pays. Default: the key's project, or `default`."
    )


class UploadOut(BaseModel):
    """An upload past the API."""

    model_config = with_example(examples.UPLOAD)

    id: str
    state: Literal["open", "complete", "used"] = Field(description="`used`: a job has it.")
    source: str = Field(description="What a job names as its source once the upload is complete.")
    name: str
    project: str
    bytes: int
    sha256: str | None
    part_bytes: int = Field(description="Bytes of each part; the last one has what is left.")
    parts: int = Field(description="How many there are.")
    job: str | None = Field(description="The job that has it.")
    created_at: datetime
    expires_at: datetime = Field(description="When it is dropped unless a job has it.")


class PartOut(BaseModel):
    """A part of an upload."""

    number: int = Field(description="1, 2, 3 …")
    offset: int = Field(description="Where it begins in the file.")
    bytes: int = Field(description="How many it has; the store refuses others.")
    received: bool = Field(description="Whether the store has it.")
    url: str | None = Field(description="Where to PUT it, without a key; null for one that was received.")


class PartPage(BaseModel):
    """Parts of an upload, by number."""

    model_config = with_example(examples.PARTS)

    items: list[PartOut]
    next: int | None = Field(description="`from` of the next page; null on the last.")
    expires_at: datetime = Field(description="Until when the addresses are good; ask again for others.")
