"""What one live session may do, and how many there may be in one API process.

A client that exceeds a limit is disconnected with a sentence that says so; what it sent before is
transcribed. Everything here runs in the event loop's thread.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator

from api.problems import Problem
from spool import clock

IDLE_SECONDS = 10.0
"""How long a client may send neither audio nor a message."""
SEND_SECONDS = 10.0
"""How long a client may read nothing of what it is sent."""
FINISH_SECONDS = 120.0
"""How long a client that has ended its session waits for the remaining words."""
MOST_OPENING = 16
"""Clients that wait for a worker at once: each queries the database repeatedly."""
RETRY_SECONDS = 5
REFUSED_SECONDS = 2.0
"""After a refusal for lack of room, others are refused at once for this long."""
MOST_FRAME_BYTES = 1 << 20
"""Of one WebSocket message."""
READ_FRAME_BYTES = 4 * MOST_FRAME_BYTES
"""A longer message is read up to this size: a client with unread bytes may not receive the reason for its
disconnection."""
_REASON_BYTES = 123


class SessionEnd(Exception):
    """A session ends with this WebSocket close code, and this sentence for its client."""

    def __init__(self, code: int, sentence: str, *, is_lost: bool = False) -> None:
        """is_lost: only the connection ends. A session that waits for its client continues."""
        super().__init__(sentence)
        self.code, self.sentence, self.is_lost = code, sentence, is_lost

    @property
    def reason(self) -> str:
        """The sentence, cut to what a close frame can hold."""
        return self.sentence.encode()[:_REASON_BYTES].decode(errors="ignore")


class Seats:
    """The sessions of this process: at most `total`, and of one caller `per_caller`."""

    def __init__(self, total: int, per_caller: int) -> None:
        self._total, self._per_caller = total, per_caller
        self._callers: Counter[str] = Counter()
        self._full_until: dict[str, float] = {}
        self._opening = 0

    @property
    def count(self) -> int:
        """How many sessions are open."""
        return self._callers.total()

    @contextlib.contextmanager
    def seat(self, caller: str, model: str) -> Iterator[None]:
        """A place while the block runs. Raises `Problem` 503."""
        self._check(caller, model)
        with self.seat_again(caller):
            yield

    @contextlib.contextmanager
    def seat_again(self, caller: str) -> Iterator[None]:
        """The place of a session that is resumed on another connection: it was admitted before."""
        self._callers[caller] += 1
        try:
            yield
        finally:
            self._callers[caller] -= 1
            if not self._callers[caller]:
                del self._callers[caller]

    def _check(self, caller: str, model: str) -> None:
        if self.count >= self._total:
            raise full(f"This server has reached its limit of {self._total} live sessions.")
        if self._callers[caller] >= self._per_caller:
            raise full(f"This caller has reached its limit of {self._per_caller} live sessions.")
        if self._full_until.get(model, 0.0) > clock.monotonic():
            raise full(f"No worker has room for another live session of {model} now.")

    @contextlib.contextmanager
    def opening(self) -> Iterator[None]:
        """A place among those that wait for a worker. Raises `Problem` 503."""
        if self._opening >= MOST_OPENING:
            raise full(f"{MOST_OPENING} live sessions are being opened now; try again in a moment.")
        self._opening += 1
        try:
            yield
        finally:
            self._opening -= 1

    def note_full(self, model: str) -> None:
        """No worker took a session of this model in time."""
        self._full_until[model] = clock.monotonic() + REFUSED_SECONDS


def full(detail: str) -> Problem:
    """The error for a session that may be opened later."""
    return Problem(503, "no_room", detail, {"Retry-After": str(RETRY_SECONDS)})
