"""One open stream of server-sent events: its queue and its text.

The format is that of the HTML standard (`id`, `event`, `data`, comments). A thread offers events, the event
loop sends them. The queue stays small: a slow reader continues from the log.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from api.auth.principal import Principal
from spool.domain.events import BATCH_DONE, JOB_ENDS, REOPENS, Event
from spool.store import Database
from spool.store.event_log import read_events

MEDIA_TYPE = "text/event-stream"
KEEP_ALIVE_S = 15.0
"""Seconds between two heartbeats on an idle stream."""
PAGE = 500
_HELD = 1000
_WRITE_S = 60.0
_RETRY = "retry: 2000\n\n"
_END = "event: end\ndata: {}\n\n"


@dataclass(frozen=True, slots=True)
class Progress:
    """The current progress of a job or batch; it is not in the log, so it has no number."""

    kind: str
    data: dict[str, Any]


@dataclass(eq=False)
class Stream:
    """What one reader follows. Created in its event loop; any thread may call `offer` and `close`."""

    caller: Principal
    job_id: str | None
    batch_id: str | None
    loop: asyncio.AbstractEventLoop
    behind: bool = False
    """Whether it must read the log before the queue."""
    closed: bool = False
    _held: list[Event | Progress] = field(default_factory=list)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wants(self, event: Event) -> bool:
        """Whether the event belongs to the stream's job or batch."""
        return (self.job_id is not None and event.job_id == self.job_id) or (
            self.batch_id is not None and event.batch_id == self.batch_id
        )

    def is_end(self, event: Event) -> bool:
        """Whether this event ends the job or batch, unless it is retried."""
        return event.type == BATCH_DONE if self.job_id is None else event.type in JOB_ENDS

    def is_over(self, event: Event, before: bool) -> bool:
        """Whether the job or batch has ended after this event; `before`: whether it had. What comes after an
        ending, such as an export, changes nothing."""
        return self.is_end(event) or (before and event.type not in REOPENS)

    def offer(self, items: Sequence[Event | Progress]) -> None:
        """Queue events or progress."""
        self._soon(self._queue, items)

    def close(self) -> None:
        """End the stream at once; the client may reconnect."""
        self._soon(self._close)

    async def receive(self, timeout: float) -> list[Event | Progress]:
        """What was queued since the last call; empty after `timeout` seconds, or once the stream is
        closed."""
        if not self._held and not self.closed:
            try:
                async with asyncio.timeout(timeout):
                    await self._woken.wait()
            except TimeoutError:
                return []
        self._woken.clear()
        items, self._held = self._held, []
        return items

    def fall_behind(self) -> None:
        """Make the stream read the log, since the next offer may come after a gap."""
        self._soon(self._lose)

    def _soon(self, call: Any, *given: Any) -> None:  # noqa: ANN401 - a bound method and what it takes
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, *given)

    def _queue(self, items: Sequence[Event | Progress]) -> None:
        self._held.extend(items)
        if len(self._held) > _HELD:
            self._lose()
        self._woken.set()

    def _lose(self) -> None:
        self._held.clear()
        self.behind = True
        self._woken.set()

    def _close(self) -> None:
        self.closed = True
        self._woken.set()


@dataclass(frozen=True)
class StreamStart:
    """Where a stream begins: after event `seen`, with the current state unless it is resumed."""

    seen: int
    state: Progress | None
    ended: bool
    """Whether the job or batch has ended."""
    placed: bool = True
    """Whether all its events have a number; otherwise one more will be told at least."""
    ending: Event | None = None
    """The event that ended it, if it has ended and the event is still kept."""


async def stream_text(database: Database, stream: Stream, begin: StreamStart) -> AsyncIterator[str]:
    """The text of a stream, until its job or batch has ended or it is closed."""
    seen = begin.seen
    yield _RETRY
    if begin.ending is not None:
        yield _text(begin.ending.type, begin.ending.document(), begin.ending.id)
        yield _END
        return
    if begin.state is not None:
        yield _text(begin.state.kind, begin.state.data, seen)
        if begin.ended and begin.placed:
            yield _END
            return
    stream.behind = stream.behind or begin.state is None
    over, waits = begin.ended, not begin.placed
    while not stream.closed:
        block = await _next(database, stream, seen)
        if not block and (waits or not over):
            yield ": keep-alive\n\n"
        last = None
        for item in block:
            if isinstance(item, Progress):
                if last is None or not stream.is_end(last):
                    yield _text(item.kind, item.data)
            elif item.id > seen:
                seen, last = item.id, item
                over, waits = stream.is_over(item, over), False
                yield _text(item.type, item.document(), item.id)
        if over and not waits and not stream.behind:  # the end may be the last event of a full page
            yield _END
            return


class EventResponse(StreamingResponse):
    """A response that ends if the client stops reading."""

    media_type = MEDIA_TYPE

    async def stream_response(self, send: Send) -> None:
        """Send piece by piece, each within a minute."""

        async def patient(message: Message) -> None:
            async with asyncio.timeout(_WRITE_S):
                await send(message)

        try:
            await super().stream_response(patient)
        except TimeoutError:
            return  # uvicorn closes the connection, since the answer is incomplete


async def _next(database: Database, stream: Stream, seen: int) -> Sequence[Event | Progress]:
    if not stream.behind:
        return await stream.receive(KEEP_ALIVE_S)
    stream.behind = False
    block = await run_in_threadpool(_read, database, stream, seen)
    stream.behind = stream.behind or len(block) == PAGE
    return block


def _read(database: Database, stream: Stream, seen: int) -> list[Event]:
    with database.read() as tx:
        return read_events(tx, seen, PAGE, job_id=stream.job_id, batch_id=stream.batch_id)


def _text(kind: str, data: dict[str, Any], number: int | None = None) -> str:
    numbered = "" if number is None else f"id: {number}\n"
    return f"{numbered}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"
