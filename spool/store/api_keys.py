"""API keys in SQL: created, looked up, listed and revoked, but never deleted.

Stores the SHA-256 of a key and never its text. The database's clock decides whether a key has expired.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, literal, or_, select, update

from spool.domain.api_keys import Minted, Scope, mint_key
from spool.errors import InvalidRequest, NotFound
from spool.store.sql import now_utc, seconds_from_now
from spool.tables import api_keys
from spool.tables.admin import ApiKeyRow
from spool.tables.record import reader_of

USE_NOTED_SECONDS = 60.0
"""The time of a key's last use is written at most this often."""


@dataclass(frozen=True, kw_only=True)
class ApiKey(ApiKeyRow):
    """A key, and whether it is neither revoked nor expired."""

    alive: bool


def create_key(
    tx: Connection,
    name: str,
    project: str | None,
    scopes: Sequence[Scope],
    *,
    sources: Sequence[str] | None = None,
    expires_at: datetime | None = None,
) -> Minted:
    """Create a key; its text is returned here and stored nowhere. Raises InvalidRequest."""
    if not scopes:
        raise InvalidRequest("A key needs at least one scope: read, submit or admin.")
    if (project is None) != (Scope.ADMIN in scopes):
        raise InvalidRequest("An admin key has no project, since it covers all; any other key needs one.")
    if Scope.ADMIN in scopes and sources is not None:
        raise InvalidRequest("An admin key cannot be limited to sources; use the scopes read and submit.")
    minted = mint_key()
    tx.execute(
        insert(api_keys).values(
            id=minted.id,
            name=name,
            project=project,
            scopes=sorted(set(scopes)),
            sources=None if sources is None else list(sources),
            sha256=minted.sha256,
            created_at=now_utc(),
            expires_at=expires_at,
        )
    )
    return minted


def find_key(tx: Connection, key_id: str) -> ApiKey | None:
    """The key, alive or not."""
    row = tx.execute(_keys().where(api_keys.c.id == key_id)).one_or_none()
    return None if row is None else _key_of(row)


def alive_keys(tx: Connection, key_ids: Sequence[str]) -> set[str]:
    """The keys that are neither revoked nor expired."""
    if not key_ids:
        return set()
    return {row.id for row in tx.execute(_keys().where(api_keys.c.id.in_(key_ids))) if row.alive}


def list_keys(tx: Connection) -> list[ApiKey]:
    """Every key, revoked ones too, newest first."""
    return [_key_of(row) for row in tx.execute(_keys().order_by(api_keys.c.created_at.desc(), api_keys.c.id))]


def revoke_key(tx: Connection, key_id: str) -> ApiKey:
    """Revoke the key; revoking it again changes nothing. Raises NotFound."""
    tx.execute(
        update(api_keys)
        .where(api_keys.c.id == key_id, api_keys.c.revoked_at.is_(None))
        .values(revoked_at=now_utc())
    )
    key = find_key(tx, key_id)
    if key is None:
        raise NotFound(f"There is no key {key_id}.")
    return key


def any_key(tx: Connection) -> bool:
    """Whether a key was ever created: from then on every request needs one."""
    return tx.execute(select(literal(1)).select_from(api_keys).limit(1)).one_or_none() is not None


def note_use(tx: Connection, key_id: str) -> None:
    """Record that the key was used, at most once in `USE_NOTED_SECONDS`."""
    stale = or_(api_keys.c.used_at.is_(None), api_keys.c.used_at < seconds_from_now(-USE_NOTED_SECONDS))
    tx.execute(update(api_keys).where(api_keys.c.id == key_id, stale).values(used_at=now_utc()))


def _keys() -> Any:  # noqa: ANN401 - a select of these columns
    unexpired = func.coalesce(api_keys.c.expires_at > now_utc(), True)
    return select(api_keys, (api_keys.c.revoked_at.is_(None) & unexpired).label("alive"))


_key_of = reader_of(ApiKey)
