"""Named connections to other people's object stores, and addresses that are signed with them.

Their secrets are encrypted, and only processes of the API can read them. A worker that is to read a job's
source with a connection asks here for a signed address of that one object, which such a process leaves here;
what is signed is what the job's row says, never what the worker says.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import Connection as Transaction
from sqlalchemy import delete, null, or_, select, update

from spool.domain.jobs import Source
from spool.errors import Conflict
from spool.settings.secret_key import SecretBox, SecretUnreadable
from spool.store.sql import find_row, now_utc, seconds_from_now, upsert
from spool.tables import connections, jobs, source_links
from spool.tables.exports import ConnectionRow, NewConnection
from spool.tables.record import reader_of, values_of

ASKED_SECONDS = 120.0
"""How long a question for an address stands."""


def create_connection(tx: Transaction, new: NewConnection, box: SecretBox) -> ConnectionRow:
    """Create a connection, whose secret only `box` can read from now on. Raises Conflict for a name that the
    project uses already."""
    values = values_of(new, NewConnection)
    values |= {"secret": box.encrypt(new.secret), "created_at": now_utc()}
    written = upsert(tx, connections, values, returning=[connections.c.name])
    if written.one_or_none() is None:
        raise Conflict(f"Project {new.project} has a connection {new.name}; remove it first.")
    return get_connection(tx, new.project, new.name)


def get_connection(tx: Transaction, project: str, name: str) -> ConnectionRow:
    """A project's connection. Raises NotFound."""
    named = (connections.c.project == project, connections.c.name == name)
    missing = f"Project {project} has no connection {name}."
    return _connection_of(find_row(tx, select(*connections.c).where(*named), missing))


def list_connections(tx: Transaction, project: str | None = None) -> list[ConnectionRow]:
    """Every connection, or a project's, by project and name."""
    query = select(*connections.c).order_by(connections.c.project, connections.c.name)
    if project is not None:
        query = query.where(connections.c.project == project)
    return [_connection_of(row) for row in tx.execute(query)]


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


_connection_of = reader_of(ConnectionRow)


@dataclass(frozen=True, slots=True)
class AskedLink:
    """A source that a worker wants to read."""

    job_id: str
    project: str
    source: Source


@dataclass(frozen=True, slots=True)
class SignedAddress:
    """An address at which an object may be read for so many seconds more, or why there is none."""

    url: str = field(repr=False)
    seconds: float
    error: str | None = None


def waits_for_link(tx: Transaction, job_id: str) -> bool:
    """Whether the question for the job's address stands and has no answer yet."""
    none_yet = (source_links.c.url.is_(None), source_links.c.error.is_(None))
    query = select(source_links.c.job_id).where(source_links.c.job_id == job_id, *none_yet)
    return tx.execute(query.where(source_links.c.expires_at > now_utc())).one_or_none() is not None


def take_link(tx: Transaction, job_id: str) -> SignedAddress | None:
    """The signed address of the job's source, which nobody else gets; None while there is none, for which it
    is asked."""
    of_job = source_links.c.job_id == job_id
    query = select(
        source_links.c.url, source_links.c.error, source_links.c.expires_at, now_utc().label("now")
    )
    row = tx.execute(query.where(of_job).with_for_update()).one_or_none()
    if row is None or row.expires_at <= row.now or (row.url is None and row.error is None):
        asked = {"url": null(), "error": null(), "expires_at": seconds_from_now(ASKED_SECONDS)}
        upsert(tx, source_links, {"job_id": job_id} | asked, update=asked)
        return None
    tx.execute(delete(source_links).where(of_job))
    if row.error is not None:
        return SignedAddress("", 0.0, row.error)
    return SignedAddress(row.url, (row.expires_at - row.now).total_seconds())


def list_asked_links(tx: Transaction, limit: int) -> tuple[list[AskedLink], bool]:
    """Up to `limit` sources whose address is to be signed, and whether there are answers that nobody took in
    time."""
    old = or_(source_links.c.url.is_not(None), source_links.c.error.is_not(None))
    query = (
        select(
            jobs.c.id,
            jobs.c.project,
            jobs.c.source_kind,
            jobs.c.source_uri,
            jobs.c.source_connection,
            old.label("answered"),
        )
        .join(source_links, source_links.c.job_id == jobs.c.id)
        .where(or_(~old, source_links.c.expires_at < now_utc()))
        .limit(limit)
    )
    rows = tx.execute(query).all()
    asked = [
        AskedLink(
            row.id,
            row.project,
            Source(row.source_kind, row.source_uri, connection=row.source_connection),
        )
        for row in rows
        if not row.answered
    ]
    return asked, any(row.answered for row in rows)


def answer_link(
    tx: Transaction, job_id: str, url: str | None, seconds: float, error: str | None = None
) -> None:
    """Leave the address, valid for so long, or why there is none."""
    open_ = (source_links.c.job_id == job_id, source_links.c.url.is_(None), source_links.c.error.is_(None))
    values = {"url": url, "error": error, "expires_at": seconds_from_now(seconds)}
    tx.execute(update(source_links).where(*open_).values(**values))


def drop_old_links(tx: Transaction) -> None:
    """Forget questions and answers whose time is over."""
    tx.execute(delete(source_links).where(source_links.c.expires_at < now_utc()))
