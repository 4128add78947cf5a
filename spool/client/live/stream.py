"""A live session over `GET /v1/listen` that goes on where its connection breaks off.

    with LiveStream(model="streaming", interim_results="true") as stream:
        threading.Thread(target=speak, args=(stream,)).start()  # stream.send(pcm) …, stream.finish()
        for message in stream:
            print(message)

What the server has not acknowledged is kept, and sent again to the connection that follows, which the server
tells where to go on: no sample is lost, none doubled, and each final comes once. One thread sends, another
one reads; the reader's reconnects. Needs the package `websockets`.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode

import httpx
from websockets.exceptions import ConnectionClosed, InvalidStatus, InvalidURI, WebSocketException
from websockets.sync.client import ClientConnection, connect

from spool import clock
from spool.client.base import Session
from spool.client.errors import ClientError, Unreachable, refusal

RESUME_SECONDS = 60
_FRAME_BYTES = 64 * 1024
_OPEN_SECONDS = 60.0
"""The server waits for a worker with room before it answers."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_FOR_GOOD = frozenset({1003, 1007, 1008, 1009})
"""Close codes after which the session is over: the audio cannot be accepted, or another client continues."""
_MAY_PASS = frozenset({429, 500, 502, 503, 504})
"""Statuses after which another try may succeed."""


class SessionEnded(ClientError):
    """The server has ended the session. Its words so far are in its job (`LiveStream.job`)."""


class LiveStream(Session):
    """One session, opened on creation. `job` is the id of its job."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        resume: int = RESUME_SECONDS,
        **query: str,
    ) -> None:
        """`query`: the parameters of `GET /v1/listen`; `resume`: how many seconds the server waits for this
        client when its connection breaks, and this client tries to come back. Raises `Refused` and
        `Unreachable`."""
        super().__init__(url, key)
        self._resume_seconds = resume
        self._told = {name: query[name] for name in ("interim_results", "vad_events") if name in query}
        self._lock = clock.Lock()
        self._kept = bytearray()  # what is not acknowledged
        self._base = self._sent = 0  # bytes of the session before `_kept`, and sent by this connection
        self._heard = 0.0
        self._finished = False
        self._socket = self._connect(query | {"resume": str(resume), "acknowledge": "true"})
        assert self._socket.response is not None
        self.job: str = self._socket.response.headers["dg-request-id"]
        self.resumed = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(self, pcm: bytes) -> None:
        """The next audio: 16-bit PCM, whole samples. Does not wait for a lost connection."""
        with self._lock:
            self._kept += pcm
            self._send_kept()

    def finish(self) -> None:
        """End the audio; the last words and `Metadata` follow."""
        with self._lock:
            self._finished = True
            self._send_kept()

    def close(self) -> None:
        """Leave; the session ends, with the audio sent so far."""
        self._socket.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The server's messages (in Deepgram's format), up to `Metadata`. Raises SessionEnded if it ends the
        session early, and request errors if the client cannot reconnect."""
        while True:
            try:
                message: dict[str, Any] = json.loads(self._socket.recv())
            except ConnectionClosed as closed:
                received = closed.rcvd
                if received is not None and received.code in _FOR_GOOD:
                    raise SessionEnded(received.reason) from None
                self._come_back()
                continue
            kind = message.get("type")
            if kind == "Stored":
                self._drop(int(message["bytes"]))
            elif kind == "Results" and message["is_final"]:
                self._heard = max(self._heard, message["start"] + message["duration"])
            if kind not in {"Stored", "Resumed", "Error"}:
                yield message
            if kind == "Metadata":
                return

    def _drop(self, size: int) -> None:
        """So much of the session is stored durably."""
        with self._lock:
            del self._kept[: max(0, size - self._base)]
            self._base = max(self._base, size)

    def _send_kept(self) -> None:
        """Send what this connection was not sent yet. If it is lost, the reader notices."""
        try:
            while (at := self._sent - self._base) < len(self._kept):
                frame = bytes(self._kept[at : at + _FRAME_BYTES])
                self._socket.send(frame)
                self._sent += len(frame)
            if self._finished:
                self._socket.send('{"type": "CloseStream"}')
        except ConnectionClosed:
            pass

    def _come_back(self) -> None:
        """Reconnect, and send again everything that is not stored."""
        deadline, pause = clock.monotonic() + self._resume_seconds, _FIRST_PAUSE
        while True:
            query = self._told | {"acknowledge": "true", "session": self.job, "from": f"{self._heard:.3f}"}
            try:
                socket = self._connect(query)
                first = json.loads(socket.recv())
                break
            except (ClientError, ConnectionClosed) as error:
                status = getattr(error, "status", 503)
                if status not in _MAY_PASS or clock.monotonic() >= deadline:
                    raise
            clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        if first.get("type") != "Resumed":
            raise SessionEnded(str(first.get("description", "The session has ended.")))
        self._drop(int(first["bytes"]))
        with self._lock:
            self._socket, self._sent = socket, int(first["bytes"])
            self.resumed += 1
            self._send_kept()

    def _connect(self, query: dict[str, str]) -> ClientConnection:
        address = f"{self.url.replace('http', 'ws', 1)}/v1/listen?{urlencode(query)}"
        try:
            # From websockets 17.1 on a connection should be entered; `close` closes it all the same.
            return ExitStack().enter_context(
                connect(address, additional_headers=self._headers, proxy=None, open_timeout=_OPEN_SECONDS)
            )
        except InvalidStatus as refused:
            answer = httpx.Response(refused.response.status_code, content=bytes(refused.response.body or b""))
            raise refusal(answer) from None
        except (OSError, InvalidURI, WebSocketException) as error:
            raise Unreachable(self.url, error) from error
