"""The client for asyncio: sends, sleeps and streams, with every call as a method.

`jobs`, `batches` and the others define the calls, `exchange` when a request is repeated.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import cached_property
from types import TracebackType
from typing import Self, TypeVar, cast

import httpx

from spool.client.base import Session
from spool.client.errors import Unreachable
from spool.client.exchange import Ask, Flow, Lines, Pages, Pause, Stream, receive, with_retries
from spool.client.methods import Methods
from spool.client.parts import PartUpload

T = TypeVar("T")


class AsyncSpool(Methods, Session):
    """A client for asyncio: the methods of `Spool`, awaited. Files are read in blocks between awaits."""

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, headers=self._headers, verify=self._verify)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        driven = with_retries(flow, self._contact)
        try:
            step = next(driven)
            while True:
                try:
                    answer = await self._carry_out(step)
                except httpx.TransportError as error:
                    step = driven.throw(Unreachable(self.url, error))
                else:
                    step = driven.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _carry_out(self, step: Ask | Pause | PartUpload) -> httpx.Response | None:
        if isinstance(step, Ask):
            return await self._send(step)
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
        else:
            await step.send_soon()
        return None

    async def _send(self, ask: Ask) -> httpx.Response:
        with ask.parts() as parts:
            request = self._http.build_request(ask.method, ask.path, **parts)
            response = await self._http.send(request, stream=ask.stream)
        if ask.stream and not response.is_success:
            await response.aread()
        return response

    async def _iterate(self, stream: Stream[T]) -> AsyncIterator[T]:
        if isinstance(stream, Pages):
            cursor: str | None = None
            while True:
                page = await self._run(stream.fetch(cursor))
                for item in page.items:
                    yield item
                cursor = page.next_cursor
                if cursor is None:
                    return
        assert isinstance(stream, Lines)
        response = await self._run(receive(stream.ask))
        try:
            if stream.read is None:
                async for block in response.aiter_bytes():
                    yield cast("T", block)
                return
            async for line in response.aiter_lines():
                yield stream.read(line)
        except httpx.TransportError as error:
            raise Unreachable(self.url, error) from error
        finally:
            await response.aclose()
