"""Sources that are alive and never done: a byte at a time, or none, at every stage of a transfer.

Each ends by itself within its limits, and within five seconds once the job is to stop (law 10).
"""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from ops.testbed.faulty_s3 import FaultyS3, Rule
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.domain import Source
from spool.errors import JobCancelled, StorageError
from spool.objects import FolderStore
from spool.settings import Settings
from tests.worker.sources.drip import HEADERS, DripServer
from worker.sources import PaceLimits, Sources

STOP_SECONDS = 5.0
LIMITS = PaceLimits(first_byte_seconds=1.0, window_seconds=1.0, total_seconds=30.0)


@pytest.fixture
def drip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DripServer]:
    with DripServer(tmp_path) as server:
        monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
        yield server


@pytest.fixture
def make_sources(make_settings: Callable[..., Settings], tmp_path: Path) -> Callable[..., Sources]:
    def make(limits: PaceLimits = LIMITS, **settings: object) -> Sources:
        values: dict[str, object] = {"source_private_hosts": ("localhost",), **settings}
        return Sources(make_settings(**values), FolderStore(tmp_path / "objects"), tmp_path / "tmp", limits)

    return make


def fetch(sources: Sources, kind: str, uri: str, check: Callable[[], None] = lambda: None) -> bytes:
    with sources.fetch(Source(kind, uri), "talk.wav", check) as path:  # type: ignore[arg-type]
        return path.read_bytes()


def stopping(after: float) -> Callable[[], None]:
    """A check that stops the job after so many seconds."""
    stop_at = time.monotonic() + after

    def check() -> None:
        if time.monotonic() > stop_at:
            raise JobCancelled

    return check


STAGES = {
    "handshake": (False, 0),
    "headers": (True, 0),
    "within headers": (True, 20),
    "body": (True, len(HEADERS)),
    "within the body": (True, len(HEADERS) + 1500),
}


@pytest.mark.integration
@pytest.mark.parametrize("stage", STAGES)
def test_a_dripping_server_ends_within_its_limits(
    drip: DripServer, make_sources: Callable[..., Sources], stage: str
) -> None:
    drip.handshake, drip.sent_at_once = STAGES[stage]
    begun = time.monotonic()
    with pytest.raises(StorageError, match=r"talk.wav: .*(too slow|sent nothing|does not answer)"):
        fetch(make_sources(), "https", f"https://localhost:{drip.port}/a.wav")
    assert time.monotonic() - begun < 8.0  # the handshake has the connection's 5 s


@pytest.mark.integration
@pytest.mark.parametrize("stage", STAGES)
def test_a_cancel_reaches_whoever_waits_for_a_server(
    drip: DripServer, make_sources: Callable[..., Sources], stage: str
) -> None:
    drip.handshake, drip.sent_at_once = STAGES[stage]
    patient = make_sources(PaceLimits())
    begun = time.monotonic()
    with pytest.raises(JobCancelled):
        fetch(patient, "https", f"https://localhost:{drip.port}/a.wav", stopping(0.7))
    assert time.monotonic() - begun < 0.7 + STOP_SECONDS
    if drip.handshake:
        assert drip.closed_by_peer.wait(10), "the connection stayed open"


def test_a_name_that_nobody_answers_for_does_not_hold_a_cancel(
    make_sources: Callable[..., Sources], monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(20) and [])
    begun = time.monotonic()
    with pytest.raises(JobCancelled):
        fetch(make_sources(PaceLimits()), "https", "https://archive.example/a.wav", stopping(0.7))
    assert time.monotonic() - begun < 0.7 + STOP_SECONDS
    answered.set()


@pytest.mark.integration
def test_the_whole_transfer_has_an_end(drip: DripServer, make_sources: Callable[..., Sources]) -> None:
    drip.sent_at_once = len(HEADERS)
    limits = PaceLimits(bytes_per_second=0, window_seconds=0.5, total_seconds=2.0)
    with pytest.raises(StorageError, match="did not arrive within"):
        fetch(make_sources(limits), "https", f"https://localhost:{drip.port}/a.wav")


S3_FAULTS = {
    "body": Rule("GET", "slow.wav", times=99, drip=0.1),
    "answer": Rule("GET", "slow.wav", 99, delay=8.0),
}


@pytest.fixture
def slow_s3(s3_server: S3Server, make_sources: Callable[..., Sources]) -> Iterator[Callable[..., Sources]]:
    client = s3_server.client()
    with suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket="archive")
    client.put_object(Bucket="archive", Key="slow.wav", Body=bytes(100_000))
    client.close()
    with ExitStack() as stack:

        def make(rule: Rule, limits: PaceLimits = LIMITS) -> Sources:
            proxy = stack.enter_context(FaultyS3(s3_server.endpoint))
            proxy.rules.append(rule)
            return make_sources(
                limits,
                s3_endpoint_url=proxy.url,
                s3_access_key_id=s3_server.access_key,
                s3_secret_access_key=s3_server.secret_key,
            )

        yield make


@pytest.mark.parametrize("fault", S3_FAULTS)
def test_a_dripping_bucket_ends_within_its_limits(slow_s3: Callable[..., Sources], fault: str) -> None:
    begun = time.monotonic()
    with pytest.raises(StorageError, match=r"talk.wav: .*(too slow|sent nothing)"):
        fetch(slow_s3(S3_FAULTS[fault]), "s3", "s3://archive/slow.wav")
    assert time.monotonic() - begun < 5.0


@pytest.mark.parametrize("fault", S3_FAULTS)
def test_a_cancel_reaches_whoever_waits_for_a_bucket(slow_s3: Callable[..., Sources], fault: str) -> None:
    sources = slow_s3(S3_FAULTS[fault], PaceLimits())
    begun = time.monotonic()
    with pytest.raises(JobCancelled):
        fetch(sources, "s3", "s3://archive/slow.wav", stopping(0.7))
    assert time.monotonic() - begun < 0.7 + STOP_SECONDS


def test_the_reader_of_a_dripping_bucket_goes_away(slow_s3: Callable[..., Sources]) -> None:
    before = readers()  # readers of other tests, which wait for an answer that takes 8 s
    with pytest.raises(JobCancelled):
        fetch(slow_s3(S3_FAULTS["body"], PaceLimits()), "s3", "s3://archive/slow.wav", stopping(1.5))
    until(lambda: not readers() - before, "the reader's thread ended")


def readers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "spool-source"}
