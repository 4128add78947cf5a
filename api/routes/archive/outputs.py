"""The routes of outputs: named connections, and writing a job's files again.

The exporter writes; nothing is written from here. The server connects to whatever endpoint a connection
names, so only operators create connections; jobs of its project use them.
"""

from typing import Annotated

from fastapi import Path, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.auth.authentication import CallerDep
from api.auth.principal import Principal, get_visible_job
from api.openapi.jobs import answer, describe, json_body, no_content, problems
from api.presenters.outputs import present_connection, present_exports
from api.services import Services, ServicesDep
from api.submission.bodies import SMALL, read_json
from spool.domain.retention import Content
from spool.errors import Conflict
from spool.schemas.common import Project
from spool.schemas.examples import outputs as examples
from spool.schemas.outputs import ConnectionList, ConnectionOut, ConnectionRequest, ExportList
from spool.store.archive import connections as store
from spool.store.archive.exports import enqueue_exports, exports_of
from spool.store.deletions import refuse_deleted

ConnectionName = Annotated[str, Path(max_length=64)]

CREATE = describe(
    "Create a connection",
    answer(201, "The connection. Its secret is not shown again.", ConnectionOut, examples.CONNECTION),
    problems("malformed", "too_slow", "too_large", "conflict", "invalid_request"),
    status_code=201,
    openapi_extra=json_body(ConnectionRequest, examples.CONNECTION_REQUEST),
)
LIST = describe(
    "List connections", answer(200, "Connections, without secrets.", ConnectionList, examples.CONNECTIONS)
)
REMOVE = describe(
    "Remove a connection",
    no_content("The connection was removed."),
    problems("not_found"),
    status_code=204,
)
EXPORT = describe(
    "Write a job's files again",
    answer(202, "The files, to be written next.", ExportList, examples.EXPORTS),
    problems("not_found", "conflict", "deleted"),
    status_code=202,
)


async def create(request: Request, services: ServicesDep, caller: CallerDep) -> ConnectionOut:
    """Store the credentials of an S3-compatible store under a name that outputs of the project can use."""
    body = await read_json(request, ConnectionRequest, SMALL)
    return await run_in_threadpool(_create, services, caller, body)


def _create(services: Services, caller: Principal, body: ConnectionRequest) -> ConnectionOut:
    new = store.NewConnection(
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
        return present_connection(store.create_connection(tx, new, services.secret_box))


def list_connections(
    services: ServicesDep, caller: CallerDep, project: Project | None = None
) -> ConnectionList:
    """Connections by project and name. Secrets are never shown."""
    if project is not None and not caller.sees(project):
        return ConnectionList(items=[])
    with services.database.read() as tx:
        rows = store.list_connections(tx, caller.project or project)
    return ConnectionList(items=[present_connection(row) for row in rows])


def remove(
    services: ServicesDep, caller: CallerDep, name: ConnectionName, project: Project | None = None
) -> Response:
    """Delete a connection and its secret. Files still to be written with it fail."""
    with services.database.begin() as tx:
        store.remove_connection(tx, caller.project_for(project), name)
    return Response(status_code=204)


def export(services: ServicesDep, caller: CallerDep, job_id: str) -> ExportList:
    """Write the files of a job's output again, for example after a failure. Existing files are replaced."""
    with services.database.begin() as tx:
        job = get_visible_job(tx, caller, job_id)
        refuse_deleted(job, Content.TRANSCRIPT)
        if job.output is None:
            raise Conflict(f"Job {job.id} has no output.")
        if not enqueue_exports(tx, job):
            raise Conflict(f"Job {job.id} is {job.state}; its files are written once it is done.")
        files = exports_of(tx, job.id)
    services.exporter.wake()
    return ExportList(items=present_exports(files))
