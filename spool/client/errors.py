"""What can go wrong between a client and its server, each as a class of its own.

ClientError
├── Unreachable         no server answered, or its answer broke off
├── TimedOut            what was waited for has not ended in time; it goes on
└── Refused             the server answered with a problem document (RFC 9457)
    ├── InvalidRequest  400, 408, 415, 416, 422: `errors` names the fields where there are any
    ├── Unauthorized    401
    ├── Forbidden       403
    ├── NotFound        404
    ├── Conflict        409
    ├── Deleted         410: it was there, and was deleted on purpose
    ├── TooLarge        413
    ├── RateLimited     429, after the client has waited as often as it may
    └── ServerFailed    5xx
"""

from collections.abc import Mapping
from typing import Any

import httpx


class ClientError(Exception):
    """The base class of the client's errors."""


class Unreachable(ClientError):
    """No Spool server answers at this address, or its answer was interrupted."""

    def __init__(self, url: str, cause: Exception) -> None:
        super().__init__(f"No answer from {url} ({str(cause) or type(cause).__name__}).")
        self.url = url


class TimedOut(ClientError):
    """The awaited job or batch has not ended in time. It continues; wait again or cancel it."""


class Refused(ClientError):
    """The server refused the request. `code` is stable, `detail` is for people, `problem` is the whole
    document."""

    def __init__(self, status: int, code: str, detail: str, problem: Mapping[str, Any]) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.problem = problem

    @property
    def errors(self) -> list[Mapping[str, str]]:
        """The fields that were refused: `where` and `message`."""
        return list(self.problem.get("errors") or ())


class InvalidRequest(Refused):
    """The request is invalid."""


class Unauthorized(Refused):
    """The request had no valid key."""


class Forbidden(Refused):
    """The key does not allow the request."""


class NotFound(Refused):
    """No such object exists for this key."""


class Conflict(Refused):
    """The object's state does not allow the request."""


class Deleted(Refused):
    """The object was deleted on purpose."""


class TooLarge(Refused):
    """The request is larger than the server accepts."""


class RateLimited(Refused):
    """Too many requests."""


class ServerFailed(Refused):
    """The server failed to answer the request."""


_BY_STATUS: Mapping[int, type[Refused]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    408: InvalidRequest,
    409: Conflict,
    410: Deleted,
    413: TooLarge,
    415: InvalidRequest,
    416: InvalidRequest,
    422: InvalidRequest,
    429: RateLimited,
}


def refusal(response: httpx.Response) -> Refused:
    """The answer (already read) as an error; only its reason if it is not a problem document."""
    kind = ServerFailed if response.status_code >= 500 else _BY_STATUS.get(response.status_code, Refused)
    try:
        problem = response.json()
        return kind(response.status_code, str(problem["code"]), str(problem["detail"]), problem)
    except (ValueError, KeyError, TypeError):
        why = (response.reason_phrase or "no reason given").lower()
        sentence = f"The server at {response.url.netloc.decode()} did not do it: {why}."
        return kind(response.status_code, "http", sentence, {})
