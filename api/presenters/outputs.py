"""Outputs and connections as the API shows them. Pure: one function for each record, no queries."""

from collections.abc import Sequence

from spool.domain.jobs import Job
from spool.schemas.outputs import ConnectionOut, ExportOut, OutputOut
from spool.store.archive.connections import ConnectionRow
from spool.store.archive.exports import Export


def present_output(job: Job) -> OutputOut | None:
    """Where the job's transcript is written to."""
    return None if job.output is None else OutputOut.model_validate(job.output)


def present_exports(exports: Sequence[Export]) -> list[ExportOut]:
    """The files of a job's output."""
    return [
        ExportOut(
            format=export.format,
            state=export.state,
            uri=export.uri,
            revision=export.revision,
            error=export.error,
            tries=export.tries,
            next_try_at=export.due_at if export.state == "pending" else None,
            written_at=export.written_at,
        )
        for export in exports
    ]


def present_connection(row: ConnectionRow) -> ConnectionOut:
    """A connection without its secret."""
    return ConnectionOut(
        name=row.name,
        project=row.project,
        endpoint=row.endpoint,
        region=row.region,
        prefix=row.prefix,
        access=row.access,
        key_id=row.key_id,
        created_at=row.created_at,
    )
