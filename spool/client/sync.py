"""The blocking client: sends, sleeps and streams, with every call as a method.

`jobs`, `batches` and the others define the calls, `exchange` when a request is repeated.
"""

from collections.abc import Iterator
from functools import cached_property
from types import TracebackType
from typing import Self, TypeVar, cast

import httpx

from spool import clock
from spool.client.base import Session
from spool.client.errors import Unreachable
from spool.client.exchange import Ask, Flow, Lines, Pages, Pause, Stream, receive, with_retries
from spool.client.methods import Methods
from spool.client.parts import PartUpload

T = TypeVar("T")


class Spool(Methods, Session):
    """A client that blocks. Use it as a context manager, or close it; one thread at a time."""

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers=self._headers, verify=self._verify)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _run(self, flow: Flow[T]) -> T:
        driven = with_retries(flow, self._contact)
        try:
            step = next(driven)
            while True:
                try:
                    answer = self._carry_out(step)
                except httpx.TransportError as error:
                    step = driven.throw(Unreachable(self.url, error))
                else:
                    step = driven.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def _carry_out(self, step: Ask | Pause | PartUpload) -> httpx.Response | None:
        if isinstance(step, Ask):
            return self._send(step)
        if isinstance(step, Pause):
            clock.sleep(step.seconds)
        else:
            step.send()
        return None

    def _send(self, ask: Ask) -> httpx.Response:
        with ask.parts() as parts:
            response = self._http.send(
                self._http.build_request(ask.method, ask.path, **parts), stream=ask.stream
            )
        if ask.stream and not response.is_success:
            response.read()
        return response

    def _iterate(self, stream: Stream[T]) -> Iterator[T]:
        if isinstance(stream, Pages):
            cursor: str | None = None
            while True:
                page = self._run(stream.fetch(cursor))
                yield from page.items
                cursor = page.next_cursor
                if cursor is None:
                    return
        assert isinstance(stream, Lines)
        response = self._run(receive(stream.ask))
        try:
            if stream.read is None:
                yield from cast("Iterator[T]", response.iter_bytes())
            else:
                yield from map(stream.read, response.iter_lines())
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        finally:
            response.close()
