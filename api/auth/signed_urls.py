"""Signed links, for clients that cannot send a header, such as an audio player in a page.

A link names the job, the caller and an expiry, signed (HMAC-SHA256) with the stored hash of the caller's key.
Every API process can verify it, and it becomes invalid together with the key.
"""

import hashlib
import hmac
from urllib.parse import urlencode

from api.auth.principal import OPERATOR, Principal, principal_of
from api.services import Services
from spool import clock
from spool.errors import Unauthorized
from spool.store.api_keys import find_key

HOLDS_SECONDS = 12 * 3600


def sign_link(services: Services, caller: Principal, path: str, *, closed: bool = False) -> tuple[str, int]:
    """`path` with its signature, and when the link expires (seconds since 1970). `closed`: the link opens
    what is closed."""
    until = int(clock.time()) + HOLDS_SECONDS
    secret = _secret(services, caller.name)
    if secret is None:
        return (f"{path}?closed=true" if closed else path), until
    query = {"by": caller.name, "until": until, "signature": _signature(secret, path, until, closed)}
    query |= {"closed": "true"} if closed else {}
    return f"{path}?{urlencode(query)}", until


def verify_link(
    services: Services, path: str, by: str, until: int, signature: str, closed: bool
) -> Principal:
    """The caller who created the link. Raises Unauthorized if it was altered, has expired or lost its key."""
    secret = _secret(services, by)
    if secret is None or not hmac.compare_digest(_signature(secret, path, until, closed), signature):
        raise Unauthorized("The link is invalid, or its key was revoked. Request a new link.")
    if until < clock.time():
        raise Unauthorized("The link has expired. Request a new link.")
    if by == OPERATOR.name:
        return OPERATOR
    with services.database.read() as tx:
        key = find_key(tx, by)
    if key is None or not key.alive:
        raise Unauthorized("The link's key was revoked or has expired. Request a new link.")
    return principal_of(key)


def _secret(services: Services, name: str) -> bytes | None:
    """The secret that signs a caller's links; None if the caller needed no key or its key is no longer
    valid."""
    token = services.settings.api_token
    if name == OPERATOR.name:
        return None if token is None else hashlib.sha256(token.get_secret_value().encode()).digest()
    with services.database.read() as tx:
        key = find_key(tx, name)
    return bytes.fromhex(key.sha256) if key is not None and key.alive else None


def _signature(secret: bytes, path: str, until: int, closed: bool) -> str:
    what = "listen closed" if closed else "listen"
    return hmac.new(secret, f"{what}\n{path}\n{until}".encode(), hashlib.sha256).hexdigest()
