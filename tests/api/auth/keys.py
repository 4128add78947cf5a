"""Keys for tests of who may call what."""

from datetime import datetime
from typing import Any

import httpx

from spool.domain import Scope
from spool.store import Database, create_key

BOTH = (Scope.READ, Scope.SUBMIT)


def new_key(
    database: Database,
    project: str | None = "alpha",
    scopes: tuple[Scope, ...] = BOTH,
    *,
    sources: list[str] | None = None,
    expires_at: datetime | None = None,
) -> str:
    with database.begin() as tx:
        return create_key(tx, "a key", project, scopes, sources=sources, expires_at=expires_at).text


def admin_key(database: Database) -> str:
    return new_key(database, None, (Scope.ADMIN,))


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def get(url: str, **parts: Any) -> httpx.Response:
    """As `httpx.get`, with the patience that a busy machine asks for."""
    return httpx.get(url, timeout=60, verify=False, **parts)  # reading certificates takes its time


def post(url: str, **parts: Any) -> httpx.Response:
    """As `httpx.post`, with the same patience."""
    return httpx.post(url, timeout=60, verify=False, **parts)
