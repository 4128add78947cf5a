"""The routes of outputs: named connections, and writing a job's files again.

The exporter writes; nothing is written from here. The server connects to whatever endpoint a connection
names, so only operators create connections; jobs of its project use them.
"""

from typing import Annotated

from fastapi import Path

from api.auth.authentication import CallerDep
from api.auth.principal import get_visible_job
from api.queries import ListedProject
from api.services import ServicesDep
from api.submission.bodies import json_body
from spool.domain.retention import Content
from spool.errors import Conflict
from spool.schemas.common import ListOf, Project
from spool.schemas.outputs import ConnectionOut, ConnectionRequest, ExportOut
from spool.store.archive import connections as store
from spool.store.archive.exports import enqueue_exports, exports_of
from spool.store.deletions import refuse_deleted
from spool.tables.exports import NewConnection


def create(
    services: ServicesDep,
    caller: CallerDep,
    body: Annotated[ConnectionRequest, json_body(ConnectionRequest)],
) -> ConnectionOut:
    """Create a connection.

    Stores the credentials of an S3-compatible store under a name that outputs of the project can use. The
    secret is not shown again.
    """
    new = NewConnection(
        project=caller.project_for(body.project),
        name=body.name,
        endpoint=body.endpoint,
        region=body.region,
        prefix=f"{body.prefix.rstrip('/')}/",
        access=body.access,
        key_id=body.key_id,
        secret=body.secret.get_secret_value(),
    )
    with services.database.begin() as tx:
        return ConnectionOut.of(store.create_connection(tx, new, services.secret_box))


def list_connections(services: ServicesDep, project: ListedProject) -> ListOf[ConnectionOut]:
    """List connections.

    By project and name. Secrets are never shown.
    """
    with services.database.read() as tx:
        return ListOf(items=list(map(ConnectionOut.of, store.list_connections(tx, project))))


def remove(
    services: ServicesDep,
    caller: CallerDep,
    name: Annotated[str, Path(max_length=64)],
    project: Project | None = None,
) -> None:
    """Remove a connection.

    Its secret is deleted. Files still to be written with it fail.
    """
    with services.database.begin() as tx:
        store.remove_connection(tx, caller.project_for(project), name)


def export(services: ServicesDep, caller: CallerDep, job_id: str) -> ListOf[ExportOut]:
    """Write a job's files again.

    All files of its output, for example after a failure. Existing files are replaced.
    """
    with services.database.begin() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        if job.output is None:
            raise Conflict(f"Job {job.id} has no output.")
        if not enqueue_exports(tx, job):
            raise Conflict(f"Job {job.id} is {job.state}; its files are written once it is done.")
        files = exports_of(tx, job.id)
    services.exporter.wake()
    return ListOf(items=list(map(ExportOut.of, files)))
