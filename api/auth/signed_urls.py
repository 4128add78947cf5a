"""Links that carry their own permission, for what cannot send a header: a player in a page.

A link names the job, who asked for it and until when it holds, signed (HMAC-SHA256) by what the server keeps
of that caller's key, which never leaves it. So every API process knows it, and it dies with the key.
"""

import hashlib
import hmac
import time
from urllib.parse import urlencode

from api.auth.principal import OPERATOR, Principal, principal_of
from api.services import Services
from spool.errors import Unauthorized
from spool.store.api_keys import find_key

HOLDS_SECONDS = 12 * 3600


def signed_link(services: Services, caller: Principal, path: str) -> tuple[str, int]:
    """`path` with what lets its bearer in, and until when (seconds since 1970)."""
    until = int(time.time()) + HOLDS_SECONDS
    secret = _secret(services, caller.name)
    if secret is None:
        return path, until
    asked = {"by": caller.name, "until": until, "signature": _signature(secret, path, until)}
    return f"{path}?{urlencode(asked)}", until


def bearer_of(services: Services, path: str, by: str, until: int, signature: str) -> Principal:
    """Who asked for this link. Raises Unauthorized when it was altered, has run out or lost its key."""
    secret = _secret(services, by)
    if secret is None or not hmac.compare_digest(_signature(secret, path, until), signature):
        raise Unauthorized("The link is not one that this server made, or its key is gone.")
    if until < time.time():
        raise Unauthorized("The link has run out; ask for another.")
    if by == OPERATOR.name:
        return OPERATOR
    with services.database.read() as tx:
        key = find_key(tx, by)
    if key is None or not key.alive:
        raise Unauthorized("The link's key is gone.")
    return principal_of(key)


def _secret(services: Services, name: str) -> bytes | None:
    """What signs for a caller; None for one who needed no key."""
    token = services.settings.api_token
    if name == OPERATOR.name:
        return None if token is None else hashlib.sha256(token.get_secret_value().encode()).digest()
    with services.database.read() as tx:
        key = find_key(tx, name)
    return bytes.fromhex(key.sha256) if key is not None and key.alive else None


def _signature(secret: bytes, path: str, until: int) -> str:
    return hmac.new(secret, f"listen\n{path}\n{until}".encode(), hashlib.sha256).hexdigest()
