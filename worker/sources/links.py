"""Addresses of sources that this process has no credentials for, signed by a process of the API.

The database is where they meet: the question is a row, the answer comes into it, and taking the answer
removes it. Knows no bucket and no audio.
"""

import threading
import time
from collections.abc import Callable

from spool.errors import SourceForbidden, StorageError
from spool.store.archive.connections import SignedAddress, take_link, waits_for_link
from spool.store.database import Database

ANSWER_SECONDS = 45.0
"""How long to wait for an answer; less than a source may take for its first byte."""
_LOOK_SECONDS = 0.2
_LEFT_SECONDS = 60.0
"""What an address has to be good for when a request begins."""


class SignedLink:
    """Addresses of the source of one job (`spool.objects.s3_link.Link`). Safe to share between threads."""

    def __init__(
        self,
        db: Database,
        job_id: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._db, self._job_id = db, job_id
        self._clock, self._sleep = clock, sleep
        self._lock = threading.Lock()
        self._held: str | None = None
        self._until = 0.0

    def address(self) -> str:
        """An address that is good for a minute at least.

        Raises SourceForbidden where the connection is gone or may not read the source, StorageError where
        nobody answers.
        """
        with self._lock:
            if self._held is None or self._clock() > self._until:
                answer = self._asked()
                if answer.error is not None:
                    raise SourceForbidden(answer.error)
                self._held = answer.url
                self._until = self._clock() + answer.seconds - _LEFT_SECONDS
            return self._held

    def forget(self) -> None:
        """Ask for another address before the next request."""
        with self._lock:
            self._held = None

    def _asked(self) -> SignedAddress:
        ends = self._clock() + ANSWER_SECONDS
        while True:
            with self._db.look() as tx:
                waits = waits_for_link(tx, self._job_id)
            if not waits:
                with self._db.begin() as tx:
                    answer = take_link(tx, self._job_id)
                if answer is not None:
                    return answer
            if self._clock() > ends:
                raise StorageError(
                    f"No API process has signed the address of the recording within {ANSWER_SECONDS:g} s; "
                    "is one running, with the right SPOOL_SECRET_KEY?"
                )
            self._sleep(_LOOK_SECONDS)
