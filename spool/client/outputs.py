"""The calls of outputs: connections, and writing a job's files again."""

from spool.client.base import answer
from spool.client.exchange import Ask, Flow, read
from spool.schemas.common import ListOf
from spool.schemas.outputs import Access, ConnectionOut, ExportOut

_ALL = "/v1/connections"


def add_connection(
    name: str,
    *,
    prefix: str,
    key_id: str,
    secret: str,
    endpoint: str | None = None,
    region: str | None = None,
    access: Access | None = None,
    project: str | None = None,
) -> Flow[ConnectionOut]:
    """Store the credentials of a bucket under a name that the project's outputs may use, or its sources
    (`access` `read`), or both. The secret is stored encrypted and not shown again."""
    values = {"endpoint": endpoint, "region": region, "access": access, "project": project}
    body = {"name": name, "prefix": prefix, "key_id": key_id, "secret": secret}
    body |= {field: value for field, value in values.items() if value is not None}
    return (yield from read(Ask("POST", _ALL, json=body), ConnectionOut))


def connections(*, project: str | None = None) -> Flow[list[ConnectionOut]]:
    """All connections, by project and name."""
    return (yield from read(Ask("GET", _ALL, {"project": project}), ListOf[ConnectionOut])).items


def remove_connection(name: str, *, project: str | None = None) -> Flow[None]:
    """Delete a connection and its secret."""
    yield from answer(Ask("DELETE", f"{_ALL}/{name}", {"project": project}))


def export_again(job_id: str) -> Flow[list[ExportOut]]:
    """Write the files of a job's output again."""
    return (yield from read(Ask("POST", f"/v1/jobs/{job_id}/exports"), ListOf[ExportOut])).items
