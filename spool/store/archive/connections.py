"""Named connections to other people's object stores; their secrets are encrypted, and read by the exporter
only."""

from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection as Transaction
from sqlalchemy import delete, select, update

from spool.errors import Conflict, NotFound
from spool.settings.secret_key import SecretBox, SecretUnreadable
from spool.store.sql import now_utc, upsert
from spool.tables import connections


@dataclass(frozen=True, slots=True)
class NewConnection:
    """A connection to be created; everything that is written with it lies below `prefix`."""

    project: str
    name: str
    endpoint: str | None
    region: str
    prefix: str
    key_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConnectionRow:
    """A connection as its row was read."""

    project: str
    name: str
    endpoint: str | None
    region: str
    prefix: str
    key_id: str
    secret: str = field(repr=False)  # encrypted
    created_at: datetime


def create_connection(tx: Transaction, new: NewConnection, box: SecretBox) -> ConnectionRow:
    """Create a connection, whose secret only `box` can read from now on. Raises Conflict for a name that the
    project uses already."""
    values = {name: getattr(new, name) for name in ("project", "name", "endpoint", "region", "prefix")}
    values |= {"key_id": new.key_id, "secret": box.encrypt(new.secret), "created_at": now_utc()}
    written = upsert(tx, connections, values, returning=[connections.c.name])
    if written.one_or_none() is None:
        raise Conflict(f"Project {new.project} has a connection {new.name}; remove it first.")
    return get_connection(tx, new.project, new.name)


def get_connection(tx: Transaction, project: str, name: str) -> ConnectionRow:
    """A project's connection. Raises NotFound."""
    named = (connections.c.project == project, connections.c.name == name)
    row = tx.execute(select(*connections.c).where(*named)).one_or_none()
    if row is None:
        raise NotFound(f"Project {project} has no connection {name}.")
    return ConnectionRow(**row._mapping)


def list_connections(tx: Transaction, project: str | None = None) -> list[ConnectionRow]:
    """Every connection, or a project's, by project and name."""
    query = select(*connections.c).order_by(connections.c.project, connections.c.name)
    if project is not None:
        query = query.where(connections.c.project == project)
    return [ConnectionRow(**row._mapping) for row in tx.execute(query)]


def remove_connection(tx: Transaction, project: str, name: str) -> None:
    """Delete a connection with its secret. Raises NotFound."""
    get_connection(tx, project, name)
    tx.execute(delete(connections).where(connections.c.project == project, connections.c.name == name))


def reencrypt_connections(tx: Transaction, box: SecretBox) -> int:
    """Encrypt with the box's first key what another of its keys encrypted; returns how many changed."""
    changed = 0
    for row in list_connections(tx):
        with suppress(SecretUnreadable):
            secret = box.reencrypt(row.secret)
            if secret != row.secret:
                same = (connections.c.project == row.project, connections.c.name == row.name)
                query = update(connections).where(*same, connections.c.secret == row.secret)
                changed += tx.execute(query.values(secret=secret)).rowcount
    return changed
