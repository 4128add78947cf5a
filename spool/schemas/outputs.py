"""The schemas of outputs and connections."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from spool.domain.archive.outputs import Layout
from spool.domain.manifest import Printable
from spool.formats import FORMATS, Format
from spool.schemas.common import AnswerModel, Project, RequestModel, ShownWhole

Access = Literal["read", "write", "both"]
ConnectionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class OutputRequest(RequestModel):
    """Where transcripts are to be written, and how."""

    prefix: Annotated[Printable, Field(min_length=1, max_length=1000)] = Field(
        description="`s3://bucket/prefix/` or `file:///folder/`: one that the server allows, or below "
        "that of the connection."
    )
    formats: Annotated[list[Format], Field(min_length=1, max_length=len(FORMATS))] = Field(
        description="One file in each of these formats."
    )
    layout: Layout = Field(
        "mirror",
        description="`mirror`: the same folders as the recordings; `flat`: all files in one folder.",
    )
    connection: ConnectionName | None = Field(
        None, description="A connection of the project, for a bucket that the server itself may not write to."
    )


Output = Annotated[
    OutputRequest | None,
    Field(description="Where transcripts are written, besides Spool's own store."),
    ShownWhole(OutputRequest),
]


Connection = Annotated[
    ConnectionName | None,
    Field(description="A connection of the project that may read; it reads `s3://` sources."),
]


class OutputOut(AnswerModel):
    """Where a job's transcript is written."""

    prefix: str
    formats: list[str]
    layout: Layout
    connection: str | None


class ExportOut(AnswerModel):
    """One file of a job's output."""

    format: str
    state: Literal["pending", "written", "failed", "replaced"] = Field(
        description="`failed`: given up; `replaced`: a newer job of the same recording writes this file."
    )
    uri: str | None = Field(description="The file; null before it has a name.")
    revision: int = Field(description="Grows when the transcript changes; the file then is written again.")
    error: str | None = Field(description="Why it was not written, or not yet.")
    tries: int
    next_try_at: datetime | None
    written_at: datetime | None = Field(description="When it was last written.")


class ConnectionRequest(RequestModel):
    """A connection to be created."""

    name: ConnectionName
    project: Project | None = Field(None, description="The project that may use it. Default: `default`.")
    endpoint: Annotated[str, Field(pattern=r"^https?://[^\s/]+/?$", max_length=500)] | None = Field(
        None, description="The address of an S3-compatible store; null is AWS."
    )
    region: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")] = "us-east-1"
    prefix: Annotated[
        Printable, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?$", max_length=1000)
    ] = Field(description="`s3://bucket/prefix/`; what is read or written with the connection lies below it.")
    access: Access = Field("write", description="Whether it may write outputs, read sources, or both.")
    key_id: Annotated[Printable, Field(min_length=1, max_length=200)]
    secret: Annotated[SecretStr, Field(min_length=1, max_length=1000)] = Field(
        description="The secret access key. It is kept encrypted and never shown."
    )


class ConnectionOut(AnswerModel):
    """A connection, without its secret."""

    name: str
    project: str
    endpoint: str | None
    region: str
    prefix: str
    access: Access
    key_id: str
    created_at: datetime
