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
    """Whatever this client raises."""


class Unreachable(ClientError):
    """No Spool server answers at this address, or its answer broke off."""

    def __init__(self, url: str, cause: Exception) -> None:
        super().__init__(f"No answer from {url} ({str(cause) or type(cause).__name__}).")
        self.url = url


class TimedOut(ClientError):
    """What was waited for has not ended in time. It goes on; wait again or cancel it."""


class Refused(ClientError):
    """The server refused. `code` is stable, `detail` is for people, `problem` is the whole document."""

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
    """What was asked cannot be done as asked."""


class Unauthorized(Refused):
    """No valid key came with the request."""


class Forbidden(Refused):
    """The key is for something else."""


class NotFound(Refused):
    """There is no such thing for this key."""


class Conflict(Refused):
    """The state of the thing does not allow this."""


class Deleted(Refused):
    """It was deleted on purpose."""


class TooLarge(Refused):
    """More bytes than the server takes."""


class RateLimited(Refused):
    """Asked too often."""


class ServerFailed(Refused):
    """The server could not answer."""


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
    """The answer (already read) as an error; its status alone where it is no problem document."""
    kind = ServerFailed if response.status_code >= 500 else _BY_STATUS.get(response.status_code, Refused)
    try:
        problem = response.json()
        return kind(response.status_code, str(problem["code"]), str(problem["detail"]), problem)
    except (ValueError, KeyError, TypeError):
        return kind(response.status_code, "http", f"The server answered {response.status_code}.", {})
