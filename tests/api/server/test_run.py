"""`python -m api` as a process: where it listens, how it takes large uploads, how it ends."""

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

import migrations
from api.local.token import local_token
from api.server.run import bind
from ops.testbed.waiting import until
from spool.objects import FolderStore
from tests.api.cli.commands import ROOT

SIZE = 96 * 2**20


@dataclass
class Server:
    process: "subprocess.Popen[bytes]"
    url: str
    home: Path
    announced: Path

    @property
    def key(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {local_token(self.home)}"}

    def resident_peak(self) -> int:
        """The most memory it has had in RAM, in bytes (Linux); 0 where that is not told."""
        status = Path(f"/proc/{self.process.pid}/status")
        if not status.exists():
            return 0
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024


@pytest.fixture
def environment() -> dict[str, str]:
    return {}


@pytest.fixture
def server(tmp_path: Path, redis_url: str, environment: dict[str, str]) -> Iterator[Server]:
    home = tmp_path / "home"
    home.mkdir()
    migrations.upgrade(f"sqlite:///{home / 'spool.db'}")
    announced = tmp_path / "api.json"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    environ = (
        kept | {"SPOOL_HOME": str(home), "SPOOL_REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)} | environment
    )
    command = [sys.executable, "-W", "error", "-m", "api", "--port", "0", "--announce", str(announced)]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.PIPE)
    try:
        until(lambda: process.poll() is not None or announced.exists(), "the API")
        assert process.poll() is None
        told = json.loads(announced.read_text())
        assert told["pid"] == process.pid
        yield Server(process, told["url"], home, announced)
    finally:
        process.kill()
        process.communicate()


def form(size: int, pace: float = 0.0) -> Iterator[bytes]:
    yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="tape.wav"\r\n\r\n'
    block = bytes(2**16)
    for _ in range(size // len(block)):
        time.sleep(pace)
        yield block
    yield b"\r\n--x--\r\n"


HEADERS = {"Content-Type": "multipart/form-data; boundary=x"}


def test_a_large_upload_goes_through_and_memory_stays_flat(server: Server) -> None:
    httpx.post(
        f"{server.url}/v1/jobs", content=form(2**20), headers=HEADERS | server.key, timeout=60
    ).raise_for_status()
    before = server.resident_peak()

    response = httpx.post(
        f"{server.url}/v1/jobs", content=form(SIZE), headers=HEADERS | server.key, timeout=120
    )

    assert response.status_code == 202, response.text
    source = response.json()["source"]
    assert source["size"] == SIZE
    digest = hashlib.sha256()
    with FolderStore(server.home / "objects").open(source["uri"]) as stored:
        while block := stored.read(2**20):
            digest.update(block)
    assert digest.hexdigest() == hashlib.sha256(bytes(SIZE)).hexdigest()
    assert server.resident_peak() - before < SIZE / 4


def test_sigterm_lets_a_request_finish_and_ends_in_good_order(server: Server) -> None:
    # Given an upload under way
    answers: list[int] = []
    begun = threading.Event()

    def pieces() -> Iterator[bytes]:
        for piece in form(2**20, pace=0.05):
            begun.set()
            yield piece

    def upload() -> None:
        response = httpx.post(
            f"{server.url}/v1/jobs", content=pieces(), headers=HEADERS | server.key, timeout=60
        )
        answers.append(response.status_code)

    uploading = threading.Thread(target=upload)
    uploading.start()
    assert begun.wait(60)
    # Connections are taken in turn: once this one is answered, the upload before it is in the server's hands.
    httpx.get(f"{server.url}/healthz", timeout=60).raise_for_status()

    # When the server is asked to end
    server.process.send_signal(signal.SIGTERM)

    # Then the upload is answered, the process ends by itself, and its address is no longer announced
    uploading.join(60)
    assert answers == [202]
    assert server.process.wait(60) == 0
    assert not server.announced.exists()
    assert list((server.home / "uploads").iterdir()) == []


@pytest.mark.parametrize("environment", [{"SPOOL_API_DRAIN_SECONDS": "60"}])
def test_a_draining_server_reports_it_and_still_accepts_jobs(server: Server) -> None:
    def health() -> tuple[int, str]:
        answer = httpx.get(f"{server.url}/healthz", timeout=60)
        return answer.status_code, answer.json()["status"]

    assert health() == (200, "ok")
    server.process.send_signal(signal.SIGTERM)
    until(lambda: health() == (503, "stopping"))
    answer = httpx.post(
        f"{server.url}/v1/jobs", files={"file": ("a.wav", b"RIFF")}, headers=server.key, timeout=60
    )
    assert answer.status_code == 202, answer.text


def test_streams_of_events_end_in_good_order_when_it_stops(server: Server) -> None:
    with httpx.Client(base_url=server.url, headers=server.key, timeout=60, verify=False) as client:
        job = client.post("/v1/jobs", files={"file": ("a.wav", b"RIFF")}).json()
        with client.stream("GET", f"/v1/jobs/{job['id']}/events") as stream:
            lines = stream.iter_lines()
            assert next(lines) == "retry: 2000"
            server.process.send_signal(signal.SIGTERM)
            # Were it cut off, httpx would say so
            assert "event: end" not in list(lines)
    assert server.process.wait(60) == 0


@pytest.mark.integration
def test_an_address_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-m", "api", "--port", str(port)],
            env=os.environ | {"SPOOL_HOME": str(tmp_path), "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == (
        f"spool: The API cannot listen on 127.0.0.1:{port}: Address already in use. "
        "Another program uses this port: stop it, or set SPOOL_API_PORT to a free one.\n"
    )


@pytest.mark.integration
def test_answers_do_not_wait_for_the_client_to_acknowledge_their_headers() -> None:
    """asyncio turns Nagle's algorithm off only on a socket that was made as one of TCP."""
    delays = asyncio.Queue[int]()

    def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted = writer.get_extra_info("socket")
        delays.put_nowait(accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def ask() -> int:
        listener = bind("127.0.0.1", 0)
        async with await asyncio.start_server(connected, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            no_delay = await delays.get()
            writer.close()
            return no_delay

    assert asyncio.run(ask()) == 1
