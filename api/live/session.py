"""One connection of a live session: its client's frames go to the log, the worker's messages to the client.

SQL says what is final (saved chunks) and when the job has ended; Redis messages carry partials and announce
finals at once. Only audio that is not yet stored exists in this process alone. However the session ends, the
log gets an end, and the job finishes with what there is. A session that waits for a lost client gets no end
from a broken connection: another connection writes the next part of the log (`api.live.resuming`), or the
worker closes it.
"""

import asyncio
import contextlib
import json
from collections.abc import Iterable
from typing import Any

import structlog
from anyio import to_thread
from starlette.websockets import WebSocket, WebSocketDisconnect

from api.live.limits import FINISH_SECONDS, IDLE_SECONDS, MOST_FRAME_BYTES, SEND_SECONDS, SessionEnd
from api.live.log_writer import FIRST, LogWriter, Place
from api.live.protocol import Protocol
from api.live.signals import AsyncSubscription
from api.services import Services
from spool import clock
from spool.broker.live_signals import LOOK_SECONDS, words_channel
from spool.domain.jobs import Job, JobState
from spool.domain.live.options import MOST_AUDIO_BYTES, Listening, LivePace
from spool.errors import StorageError
from spool.store.live import Said, get_said

log = structlog.get_logger(__name__)

_RIFF = b"RIFF"
_GOODBYE = 1000
"""The close code of a client that leaves on purpose."""
_CANCEL_SECONDS = 1.0


class Session:
    """An accepted WebSocket and the job behind it."""

    def __init__(
        self,
        services: Services,
        websocket: WebSocket,
        job: Job,
        protocol: Protocol,
        place: Place = FIRST,
    ) -> None:
        """`job` was claimed, or is about to be; `place`: where this connection continues the session."""
        assert job.options.live is not None
        self._services, self._socket = services, websocket
        self._job, self._protocol = job, protocol
        self._listening: Listening = job.options.live
        live = services.live
        self._writer = LogWriter(services.objects, live.signals, job.id, live.threads, place)
        self._place = place
        # Words spoken while the client was away are sent at once.
        away = (self._listening.resume_seconds or 0) if place.part else 0
        self._pace = LivePace(ahead=LivePace().ahead + away)
        self._bytes = self._acknowledged = place.start
        self._begun = clock.monotonic()
        self._reasons: dict[int, str] = {}
        self._number = place.chunk

    async def run(self) -> None:
        """Serve the client to the end of the session, and close the socket."""
        writing = asyncio.create_task(self._writer.run())
        reading = asyncio.create_task(self._read())
        speaking = asyncio.create_task(self._send_words())
        ended: SessionEnd | None = None
        try:
            done, _ = await asyncio.wait({writing, reading, speaking}, return_when=asyncio.FIRST_COMPLETED)
            if reading in done and reading.exception() is None:
                if reading.result() == "disconnected" and self._can_resume:
                    self._writer.leave()
                else:
                    self._writer.end(reading.result())
                await writing
                if reading.result() == "closed":
                    await self._send_rest(speaking)
            else:
                for task in done:
                    task.result()
        except SessionEnd as early:
            ended = early
        except WebSocketDisconnect:
            pass
        finally:
            await _stop(reading, speaking)
            await self._close(writing, ended)

    @property
    def _can_resume(self) -> bool:
        """Whether the session outlives a lost connection."""
        return self._listening.resume_seconds is not None

    async def _send_rest(self, speaking: "asyncio.Task[None]") -> None:
        """Send the remaining words to a client that has said that it is done."""
        try:
            await asyncio.wait_for(asyncio.shield(speaking), FINISH_SECONDS)
        except TimeoutError:
            raise SessionEnd(1011, f"The remaining words will be in job {self._job.id}.") from None

    async def _close(self, writing: "asyncio.Task[None]", ended: SessionEnd | None) -> None:
        if not writing.done():
            if ended is not None and ended.is_lost and self._can_resume:
                self._writer.leave()
            else:
                self._writer.end("ended" if ended is None else ended.sentence)
            with contextlib.suppress(Exception):
                await writing
        code, reason = (1000, "") if ended is None else (ended.code, ended.reason)
        fields = {**self._job.ids, "seconds": round(self._listening.seconds_of(self._bytes), 1), "code": code}
        log.info("live session closed", **fields, **({"reason": reason} if reason else {}))
        with contextlib.suppress(Exception):  # the client may have disconnected
            if ended is not None:
                await self._send(self._protocol.error(ended.code, ended.sentence))
            await asyncio.wait_for(self._socket.close(code, reason), SEND_SECONDS)

    # --- from the client ------------------------------------------------------------------------------------

    async def _read(self) -> str:
        """Write what the client sends to the log until it ends the session; returns how it did."""
        while True:
            try:
                message = await asyncio.wait_for(self._socket.receive(), IDLE_SECONDS)
            except TimeoutError:
                raise SessionEnd(
                    1011,
                    f"No audio and no message for {IDLE_SECONDS:g} s; send KeepAlive while nobody speaks.",
                    is_lost=True,
                ) from None
            if message["type"] == "websocket.disconnect":
                return "left" if message.get("code") == _GOODBYE and self._can_resume else "disconnected"
            text, data = message.get("text"), message.get("bytes")
            if text is not None:
                if (audio := self._protocol.audio(text)) is not None:
                    await self._take_audio(audio, binary=False)
                    continue
                control = self._protocol.control(text)
                if control == "close":
                    return "closed"
                if control == "finalize":
                    self._writer.finalize()
                if control == "start":
                    await self._send(self._protocol.report_started())
            elif data:
                await self._take_audio(data, binary=True)
            else:  # how clients of Deepgram's older protocol end a session
                return "closed"

    async def _take_audio(self, data: bytes, *, binary: bool) -> None:
        self._protocol.check_audio(binary=binary)
        listening = self._listening
        if len(data) > MOST_FRAME_BYTES:
            raise SessionEnd(
                1009, f"A message may have at most {MOST_FRAME_BYTES:,} bytes; this one has {len(data):,}."
            )
        fresh = self._bytes - self._place.start
        if not fresh and data.startswith(_RIFF):
            raise SessionEnd(1003, "Send the audio as raw 16-bit PCM, without the header of a WAV file.")
        if len(data) % listening.frame_bytes:
            raise SessionEnd(
                1007,
                f"A message of {len(data)} bytes is not a whole number of samples of {listening.channels} "
                "channels of 16 bits.",
            )
        self._bytes += len(data)
        seconds = listening.seconds_of(self._bytes)
        came = listening.seconds_of(fresh + len(data))
        if not self._pace.allows(came, clock.monotonic() - self._begun):
            raise SessionEnd(
                1008, "The audio comes faster than ten times real time; upload a recording instead."
            )
        most = self._services.settings.max_audio_seconds
        if seconds > most or self._bytes > MOST_AUDIO_BYTES:
            raise SessionEnd(
                1009, "The session has reached the maximum length of a recording; open another one."
            )
        await self._writer.audio(data)

    # --- to the client --------------------------------------------------------------------------------------

    async def _send_words(self) -> None:
        """Send what becomes known, until the job has ended. Raises SessionEnd if it ended badly."""
        async with self._services.live.async_signals.listening(words_channel(self._job.id)) as subscription:
            if self._place.part:
                start = self._place.start
                await self._send(self._protocol.report_resumed(start, self._listening.seconds_of(start)))
            else:  # a browser cannot read the handshake's headers, so this tells it the session's id
                await self._send(self._protocol.report_stored(0, 0.0))
            looked = -LOOK_SECONDS
            while True:
                messages = await self._receive(subscription)
                await self._acknowledge()
                has_finals = any(message.get("type") == "final" for message in messages)
                if has_finals or clock.monotonic() - looked >= LOOK_SECONDS:
                    looked = clock.monotonic()
                    if await self._send_finals():
                        return
                await self._send_partial(messages)

    async def _receive(self, subscription: AsyncSubscription) -> list[dict[str, Any]]:
        messages = await subscription.messages(LOOK_SECONDS)
        for message in messages:
            if message.get("type") == "final":
                self._reasons[int(message["number"])] = str(message["reason"])
            elif "time" in message:
                await self._send(self._protocol.event(str(message["type"]), float(message["time"])))
        return messages

    async def _acknowledge(self) -> None:
        """Report how much of the audio is stored, if it is more than was reported before."""
        size = self._writer.stored_bytes
        if size > self._acknowledged:
            self._acknowledged = size
            await self._send(self._protocol.report_stored(size, self._listening.seconds_of(size)))

    async def _send_partial(self, messages: Iterable[dict[str, Any]]) -> None:
        """Send only the last partial: a client that reads slowly misses those before it."""
        partial = None
        for message in messages:
            partial = message if message.get("type") == "partial" else partial
        if partial is not None and partial["number"] == self._number:
            await self._send(self._protocol.partial(partial))

    async def _send_finals(self) -> bool:
        """Send what was saved since the last time; returns whether the job has ended."""
        try:
            known = await to_thread.run_sync(self._look, limiter=self._services.live.threads)
        except StorageError:
            return False
        for chunk in known.chunks:
            reason = self._reasons.pop(chunk.span.index, "end" if chunk.tail == () else "silence")
            await self._send(self._protocol.final(chunk, reason))
            self._number = chunk.span.index + 1
            if self._protocol.is_over:
                return True
        job = known.job
        if known.parts.last > self._place.part:
            raise SessionEnd(1008, "The session continues on another connection.", is_lost=True)
        if job.state is JobState.DONE:
            await self._send(self._protocol.end(job))
            return True
        if job.state is JobState.CANCELLED:
            raise SessionEnd(1001, f"The session was cancelled; its job is {job.id}.")
        if job.state is JobState.FAILED:
            if job.error_code == "audio_empty":
                await self._send(self._protocol.end(job))
                return True
            raise SessionEnd(1011, job.error_message or "The session failed.")
        return False

    def _look(self) -> Said:
        with self._services.database.read() as tx:
            return get_said(tx, self._job.id, self._number)

    async def _send(self, messages: Iterable[dict[str, Any]]) -> None:
        for message in messages:
            text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
            try:
                await asyncio.wait_for(self._socket.send_text(text), SEND_SECONDS)
            except TimeoutError:
                sentence = f"The client has read nothing for {SEND_SECONDS:g} s."
                raise SessionEnd(1008, sentence, is_lost=True) from None


async def _stop(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel the tasks, repeatedly if necessary: code they await may mistake a cancellation for its own
    timeout."""
    while running := {task for task in tasks if not task.done()}:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=_CANCEL_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)
