"""A fleet with API processes whose live sessions are opened over WebSocket, and what their clients hear."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import soundfile
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from ops.testbed.ports import free_port
from ops.testbed.processes import ROOT, Fleet
from ops.testbed.waiting import DEADLINE, until

GOLDEN = ROOT / "tests" / "golden" / "streaming"
TOKEN = "token-of-the-test"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
QUERY = {"model": "stream", "head": "rnnt", "att_context": "70,1", "endpointing": "240"}
PIECE = 3200


class LiveFleet(Fleet):
    """A fleet with one API process at a time. Its clients wait for a busy worker, and its worker takes
    sessions however long a loaded machine makes their steps."""

    url = ""
    api: "subprocess.Popen[bytes]"

    def __init__(
        self, home: Path, database_url: str, redis_url: str, models: Mapping[str, str], **environment: str
    ) -> None:
        """`models`: paths by name, one of them `stream`, which is the default model."""
        self.grpc_port = free_port()
        super().__init__(
            home,
            database_url,
            redis_url,
            SPOOL_MODELS=",".join(f"{name}={place}" for name, place in models.items()),
            SPOOL_DEFAULT_MODEL="stream",
            SPOOL_API_TOKEN=TOKEN,
            SPOOL_GRPC_PORT=str(self.grpc_port),
            **{
                "SPOOL_LEASE_SECONDS": "3",
                "SPOOL_MAX_CRASHES": "5",
                "SPOOL_LIVE_OPEN_SECONDS": f"{DEADLINE}",
                "SPOOL_LIVE_SHARE": "100",
                **environment,
            },
        )

    def serve(self, *command: str, **own: str) -> None:
        """Start the API, or another one in place of the last."""
        announced = self.home / "api.json"
        announced.unlink(missing_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("SPOOL_")}
        self.api = subprocess.Popen(
            [sys.executable, "-m", "api", "--port", "0", "--announce", str(announced), *command],
            env={**kept, **self.environment, **own},
            cwd=ROOT,
        )
        until(lambda: announced.exists() or self.api.poll() is not None, "the API listens")
        self.url = str(json.loads(announced.read_text())["url"])

    def close(self) -> None:
        self.api.kill()
        self.api.wait(DEADLINE)
        super().close()

    def address(self, path: str = "/v1/listen", **query: str) -> str:
        """Of a session with the parameters `QUERY` and these."""
        return f"{self.url.replace('http', 'ws', 1)}{path}?{urlencode({**QUERY, **query})}"

    def connect(self, path: str = "/v1/listen", **query: str) -> ClientConnection:
        """Open a session."""
        headers = {"Authorization": f"Token {TOKEN}"}
        return connect(
            self.address(path, **query), additional_headers=headers, proxy=None, open_timeout=DEADLINE
        )

    def get(self, path: str) -> httpx.Response:
        """What the API answers."""
        with httpx.Client(base_url=self.url, headers=HEADERS, trust_env=False, timeout=60) as client:
            return client.get(path)


def pcm(number: int) -> bytes:
    """One of the recordings beside the streaming model, 16-bit PCM at 16 kHz."""
    samples = soundfile.read(GOLDEN / f"{number}.flac", dtype="int16")[0]
    return bytes(samples.astype("<i2").tobytes())


def pieces(audio: bytes) -> list[bytes]:
    """A tenth of a second each."""
    return [audio[at : at + PIECE] for at in range(0, len(audio), PIECE)]


def next_message(socket: ClientConnection) -> dict[str, Any]:
    """The next message, for which the session is kept alive: a busy machine loads its model for longer than a
    session may be silent. Raises TimeoutError."""
    end = time.monotonic() + DEADLINE
    while True:
        try:
            message: dict[str, Any] = json.loads(socket.recv(2))
            return message
        except TimeoutError:
            if time.monotonic() > end:
                raise
            socket.send('{"type": "KeepAlive"}')


def rest_of(socket: ClientConnection) -> list[dict[str, Any]]:
    """All messages up to the end of the session."""
    messages = []
    try:
        while True:
            messages.append(json.loads(socket.recv(DEADLINE)))
    except ConnectionClosed:
        return messages


def finals(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """The words of the final results."""
    return [
        word["word"]
        for message in messages
        if message["type"] == "Results" and message["is_final"]
        for word in message["channel"]["alternatives"][0]["words"]
    ]


def words_of(fleet: LiveFleet, job_id: str) -> list[str]:
    """The words of the session's transcript."""
    return [word["text"] for word in fleet.get(f"/v1/jobs/{job_id}/transcript").json()["words"]]
