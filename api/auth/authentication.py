"""Authenticates requests and authorizes them: the caller, the scope that the route requires, the rate limits.

`SPOOL_API_TOKEN` is the operator's, with every scope. What a caller may see is in `principal`.
"""

import base64
import hmac
from collections.abc import Iterator, Mapping
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.dependencies.models import Dependant
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocket

from api.auth.principal import ANYBODY, OPERATOR, Principal, principal_of
from api.auth.rate_limit import Allowance, Buckets, address_name
from api.middleware.load import Ticket
from api.problems import Problem, validation_problem
from api.services import Services, services_of
from spool.domain.api_keys import Scope, key_id_of
from spool.errors import Forbidden, Unauthorized
from spool.store.api_keys import ApiKey

_bearer = HTTPBearer(
    auto_error=False, description="An API key (`spool keys create`), if the server requires one."
)


async def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Principal:
    """The caller. Raises `Unauthorized`, `Forbidden` for a scope that is missing, `Problem` 429 and 503."""
    address = _address(request)
    key = credentials.credentials if credentials else _password_of(request)
    caller = await _identify(request, key, address)
    request.state.caller = caller
    count_caller(request, caller, address)
    _check_scope(request, caller)
    _check_query(request)
    return caller


_TAKES_BASIC = "POST /v1/sources/notifications"
"""The only route that also accepts a key as the password of Basic authentication, which is all that SNS can
send. A browser attaches such a password to other sites' requests too, so no further route may accept one."""


def _password_of(request: Request) -> str | None:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic" or rule_name(request) != _TAKES_BASIC:
        return None
    try:
        return base64.b64decode(text.strip(), validate=True).decode().partition(":")[2] or None
    except ValueError:
        return None


_SCHEMES = frozenset({"token", "bearer"})


async def authenticate_websocket(websocket: WebSocket) -> Principal:
    """The caller of a WebSocket. A browser, which cannot set headers, sends its key as a second subprotocol
    after `token` or `bearer`; accept the connection with `subprotocol_of`.

    Raises as `authenticate` does.
    """
    address = _address(websocket)
    scheme, _, text = websocket.headers.get("authorization", "").partition(" ")
    key = text.strip() if scheme.lower() in _SCHEMES and text.strip() else None
    offered: list[str] = websocket.scope.get("subprotocols", [])
    if key is None and subprotocol_of(websocket) is not None and len(offered) > 1:
        key = offered[1]
    caller = await _identify(websocket, key, address)
    websocket.state.caller = caller
    _count(websocket, services_of(websocket).limits, caller.key_id or address)
    _check_scope(websocket, caller)
    return caller


def subprotocol_of(websocket: WebSocket) -> str | None:
    """The subprotocol under which a client offers its key."""
    offered: list[str] = websocket.scope.get("subprotocols", [])
    return offered[0] if offered and offered[0].lower() in _SCHEMES else None


def count_caller(request: Request, caller: Principal | None = None, address: str | None = None) -> None:
    """Count a request by its key, or by its address if it has none. Raises `Problem` 429 and 503."""
    name = (caller.key_id if caller else None) or address or _address(request)
    _count(request, services_of(request).limits, name)
    ticket: Ticket = request.state.ticket
    ticket.assign(name)


CallerDep = Annotated[Principal, Depends(authenticate)]


def rule_name(connection: HTTPConnection) -> str:
    """The route of a request, named as in `api.routing.SCOPES`."""
    return f"{connection.scope.get('method', 'GET')} {connection.scope['route'].path}"


async def _identify(request: HTTPConnection, text: str | None, address: str) -> Principal:
    services = services_of(request)
    token, key_cache = services.settings.api_token, services.key_cache
    if text is not None and token is not None and _is_equal(text, token.get_secret_value()):
        return OPERATOR
    key_id = key_id_of(text) if text is not None else None
    if text is not None and key_id is not None:
        key = key_cache.get_cached(key_id, text) or await _find_key(services, key_id, text, address)
        request.state.caller = principal_of(key)  # for the log, even if the key is refused
        if not key.alive:
            raise Unauthorized(f"The key {key.id} {'was revoked' if key.revoked_at else 'has expired'}.")
        key_cache.note_use(key.id)
        return principal_of(key)
    if not (
        key_cache.requires_key if key_cache.is_sure else await run_in_threadpool(key_cache.check_required)
    ):
        return ANYBODY
    if text is None:
        raise Unauthorized("Send an API key as `Authorization: Bearer …`.")
    _count_miss(services.misses, address)
    raise _unknown_key()


async def _find_key(services: Services, key_id: str, text: str, address: str) -> ApiKey:
    """The key from the database. A caller that guesses keys is refused before it costs many queries."""
    if not services.key_cache.has_seen(key_id, text):
        _refuse_guesses(services.misses.take(address, cost=0))
    key = await run_in_threadpool(services.key_cache.find, key_id, text)
    if key is None:
        _count_miss(services.misses, address)
        raise _unknown_key()
    return key


def _address(request: HTTPConnection) -> str:
    return address_name(request.client.host if request.client else None)


def _unknown_key() -> Unauthorized:
    return Unauthorized("The API key is invalid.")


def _is_equal(text: str, token: str) -> bool:
    return hmac.compare_digest(text.encode(), token.encode())


def _count(request: HTTPConnection, limits: Buckets, name: str) -> None:
    allowance = limits.take(name)
    if allowance is None:
        return
    headers = allowance.headers()
    request.state.rate_headers = headers
    if not allowance.allowed:
        wait = allowance.wait_seconds
        raise Problem(429, "rate_limited", f"Too many requests; try again in {wait} s.", headers)


def _count_miss(misses: Buckets, address: str) -> None:
    _refuse_guesses(misses.take(address))


def _refuse_guesses(allowance: Allowance | None) -> None:
    if allowance is not None and not allowance.allowed:
        headers = {"Retry-After": str(allowance.wait_seconds)}
        raise Problem(429, "rate_limited", "Too many wrong keys from this address; try again later.", headers)


def _check_query(request: Request) -> None:
    """Raise `Problem` 422 for an unknown query parameter: a misspelt filter would otherwise list
    everything."""
    known = set(_query_of(request.scope["route"].dependant))
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        message = f"is not a parameter of this route; parameters: {', '.join(sorted(known)) or 'none'}"
        raise validation_problem([{"loc": (name,), "msg": message} for name in unknown], "query")


def _query_of(dependant: Dependant) -> Iterator[str]:
    """The names of the query parameters of a route and its dependencies."""
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_of(each)


def _check_scope(request: HTTPConnection, caller: Principal) -> None:
    name = rule_name(request)
    scopes: Mapping[str, Scope | None] = request.app.state.scopes
    if name not in scopes:
        raise Forbidden("This route has no access rule, so nobody may call it.")
    needed = scopes[name]
    if not caller.may(needed):
        raise Forbidden(f"This request requires a key with the scope {needed}.")
