"""Load shedding: limits the requests of one process that are under way, in all and for each caller.

Beyond the limit a request is refused at once with 503 and `Retry-After`, reads before writes, so that
submissions still get through. Health checks are exempt. A caller is known only once its key was checked, so
authentication counts it (`Ticket.assign`). Everything here runs in the event loop's thread.
"""

from collections import Counter

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import Problem, problem_response

READ_SHARE = 0.8
"""The share of all places that reads may take."""
RETRY_SECONDS = 2
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_EXEMPT = frozenset({"/healthz", "/readyz"})


class InFlight:
    """The requests under way: at most `total`, and of one caller `per_caller`."""

    def __init__(self, total: int, per_caller: int) -> None:
        self._total, self._per_caller = total, per_caller
        self.count = 0
        self.callers: Counter[str] = Counter()

    def admit(self, *, reads: bool) -> "Ticket | None":
        """A place for a request; None if there is none."""
        if self.count >= (max(1, int(self._total * READ_SHARE)) if reads else self._total):
            return None
        self.count += 1
        return Ticket(self, self._per_caller)


class Ticket:
    """The place of one request, until it is released."""

    def __init__(self, in_flight: InFlight, per_caller: int) -> None:
        self._in_flight, self._per_caller = in_flight, per_caller
        self._caller: str | None = None
        self._released = False

    def assign(self, caller: str) -> None:
        """Count the request for its caller. Raises `Problem` 503 for one that has too many under way."""
        callers = self._in_flight.callers
        if callers[caller] >= self._per_caller:
            raise busy(f"This caller has {self._per_caller} requests under way; wait for one to end.")
        if self._caller is None and not self._released:
            callers[caller] += 1
            self._caller = caller

    def release(self) -> None:
        """Release the place; safe to repeat."""
        if self._released:
            return
        self._released = True
        self._in_flight.count -= 1
        if self._caller is not None:
            self._in_flight.callers[self._caller] -= 1
            if not self._in_flight.callers[self._caller]:
                del self._in_flight.callers[self._caller]


class LoadShedding:
    """ASGI middleware: refuses what exceeds the limits, and an address that contains a zero byte."""

    def __init__(self, app: ASGIApp, in_flight: InFlight) -> None:
        self._app = app
        self._in_flight = in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with a ticket in the request's state."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            # PostgreSQL rejects text with a zero byte, so no object can have such a name.
            error = Problem(400, "invalid_request", "The address contains a zero byte (%00); remove it.")
            await _answer(error, scope, receive, send)
            return
        if scope["path"] in _EXEMPT:
            await self._app(scope, receive, send)
            return
        ticket = self._in_flight.admit(reads=scope["method"] in _READS)
        if ticket is None:
            error = busy("The server has too many requests under way; try again in a moment.")
            await _answer(error, scope, receive, send)
            return
        scope["state"]["ticket"] = ticket
        try:
            await self._app(scope, receive, send)
        finally:
            ticket.release()


def busy(detail: str) -> Problem:
    """The error for a request that may be sent again."""
    return Problem(503, "overloaded", detail, {"Retry-After": str(RETRY_SECONDS)})


async def _answer(error: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    request = Request(scope)
    response = problem_response(request, error.status, error.code, error.detail, headers=error.headers)
    await response(scope, receive, send)
