"""Sends parts of a file, each by one PUT to its own URL, several at once, without the key.

A step of a call, like the client's other steps (`spool.client.exchange`): the call itself repeats what did
not arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from spool import schemas

if TYPE_CHECKING:  # most calls send no file
    from concurrent.futures import Future

AT_ONCE = 4
"""Parts sent at once. They are in memory."""
# An answer to a part waits until the store has written it.
_TIMEOUT = httpx.Timeout(60.0, connect=5.0, read=600.0)


@dataclass
class PartUpload:
    """Send these parts of the file. `arrived` is called with the bytes of each that did; `faults` has a
    reason for each that did not, once the step is over. Raises OSError for a file that cannot be read."""

    path: Path
    parts: Sequence[schemas.PartOut]
    arrived: Callable[[int], object]
    faults: list[str] = field(default_factory=list)

    def send(self) -> None:
        """Send them with threads."""
        from concurrent.futures import ThreadPoolExecutor, as_completed

        pool = ThreadPoolExecutor(AT_ONCE, "spool-part")
        with httpx.Client(timeout=_TIMEOUT) as client:
            try:
                asked: dict[Future[httpx.Response], schemas.PartOut] = {
                    pool.submit(self._put, client, part): part for part in self.parts
                }
                for each in as_completed(asked):
                    self._judge(asked[each], each)
            finally:  # an interrupt does not wait for parts on their way
                pool.shutdown(wait=False, cancel_futures=True)

    async def send_soon(self) -> None:
        """Send them with tasks; the file is read between awaits."""
        import asyncio

        turn = asyncio.Semaphore(AT_ONCE)
        async with httpx.AsyncClient(timeout=_TIMEOUT) as client:

            async def put(part: schemas.PartOut) -> None:
                async with turn:
                    try:
                        answer = await client.put(str(part.url), content=self._read(part))
                    except httpx.TransportError as error:
                        self._note(part, error)
                    else:
                        self._note(part, answer)

            await asyncio.gather(*map(put, self.parts))

    def _put(self, client: httpx.Client, part: schemas.PartOut) -> httpx.Response:
        return client.put(str(part.url), content=self._read(part))

    def _read(self, part: schemas.PartOut) -> bytes:
        with self.path.open("rb") as file:
            file.seek(part.offset)
            return file.read(part.bytes)

    def _judge(self, part: schemas.PartOut, put: Future[httpx.Response]) -> None:
        try:
            self._note(part, put.result())
        except httpx.TransportError as error:
            self._note(part, error)

    def _note(self, part: schemas.PartOut, came: httpx.Response | httpx.TransportError) -> None:
        if isinstance(came, httpx.Response):
            if came.is_success:
                self.arrived(part.bytes)
            else:
                self.faults.append(f"it refused it ({came.reason_phrase})")
        else:
            self.faults.append(str(came) or type(came).__name__)
