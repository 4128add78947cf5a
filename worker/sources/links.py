"""Addresses of sources that this process has no credentials for, signed by a process of the API.

The request is a row in the database; the API writes its answer into the row, and taking the answer removes
it.
"""

from collections.abc import Callable

from spool import clock
from spool.errors import SourceForbidden, StorageError
from spool.store.archive.connections import SignedAddress, take_link, waits_for_link
from spool.store.database import Database

ANSWER_SECONDS = 45.0
"""Timeout for an answer; shorter than the limit for a source's first byte."""
_POLL_SECONDS = 0.2
_MIN_VALID_SECONDS = 60.0
"""The validity that an address must have left when a request begins."""


class SignedLink:
    """Addresses for the source of one job (`spool.objects.s3_link.Link`). Thread-safe."""

    def __init__(
        self,
        db: Database,
        job_id: str,
        *,
        read_clock: Callable[[], float] = clock.monotonic,
        sleep: Callable[[float], None] = clock.sleep,
    ) -> None:
        self._db, self._job_id = db, job_id
        self._clock, self._sleep = read_clock, sleep
        self._lock = clock.Lock()
        self._url: str | None = None
        self._until = 0.0

    def address(self) -> str:
        """An address that stays valid for at least a minute.

        Raises SourceForbidden if the connection is gone or may not read the source, StorageError if no API
        process answers.
        """
        with self._lock:
            if self._url is None or self._clock() > self._until:
                answer = self._request_address()
                if answer.error is not None:
                    raise SourceForbidden(answer.error)
                self._url = answer.url
                self._until = self._clock() + answer.seconds - _MIN_VALID_SECONDS
            return self._url

    def forget(self) -> None:
        """Discard the address; the next request gets a new one."""
        with self._lock:
            self._url = None

    def _request_address(self) -> SignedAddress:
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
            self._sleep(_POLL_SECONDS)
