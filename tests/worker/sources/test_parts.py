"""Large recordings in a bucket come over several connections, held to all that a single stream is held to."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ops.testbed.faulty_s3 import FaultyS3, Rule
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.domain import Source
from spool.errors import JobCancelled, ObjectDamaged, SourceChanged, SourceTooLarge, StorageError
from spool.objects import FolderStore, s3_parts
from spool.settings import Settings
from worker.sources import Sources

pytestmark = pytest.mark.integration

PART = 100_000
BODY = random.Random(16).randbytes(10 * PART + 37)


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """A bucket whose recording counts as large and is one of eleven parts."""
    monkeypatch.setattr("spool.objects.s3.PARALLEL_BYTES", len(BODY))
    monkeypatch.setattr(s3_parts, "PART_BYTES", PART)
    client = s3_server.client()
    with suppress(client.exceptions.BucketAlreadyOwnedByYou):
        client.create_bucket(Bucket="reels")
    client.put_object(Bucket="reels", Key="reel.wav", Body=BODY, ChecksumAlgorithm="CRC32")
    client.put_object(Bucket="reels", Key="short.wav", Body=BODY[:-1])
    client.close()
    with FaultyS3(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def fetch(
    proxy: FaultyS3, s3_server: S3Server, make_settings: Callable[..., Settings], tmp_path: Path
) -> Callable[..., bytes]:
    def fetch(
        key: str = "reel.wav",
        check: Callable[[], None] = lambda: None,
        etag: str | None = None,
        **settings: int,
    ) -> bytes:
        made = make_settings(
            s3_endpoint_url=proxy.url,
            s3_access_key_id=s3_server.access_key,
            s3_secret_access_key=s3_server.secret_key,
            **settings,
        )
        sources = Sources(made, FolderStore(tmp_path / "objects"), tmp_path / "copies")
        with sources.fetch(Source("s3", f"s3://reels/{key}", None, etag), "reel", check) as path:
            return path.read_bytes()

    return fetch


def test_a_large_recording_comes_in_parts(proxy: FaultyS3, fetch: Callable[..., bytes]) -> None:
    assert fetch() == BODY
    assert len(proxy.ranges) == 11
    assert fetch("short.wav") == BODY[:-1]
    assert len(proxy.ranges) == 11


def test_parts_that_break_off_are_asked_for_again(proxy: FaultyS3, fetch: Callable[..., bytes]) -> None:
    proxy.rules += [Rule("GET", "reel.wav", cut=10), *(Rule("GET", "reel.wav", cut=70_000) for _ in range(3))]
    assert fetch() == BODY
    assert len(proxy.ranges) > 11


def test_a_changed_byte_in_one_part_is_found(proxy: FaultyS3, fetch: Callable[..., bytes]) -> None:
    proxy.rules += [Rule("GET", "reel.wav"), Rule("GET", "reel.wav", flip=500)]
    with pytest.raises(ObjectDamaged):
        fetch()


@pytest.mark.parametrize(
    "fault", [Rule("GET", "reel.wav", status=412), Rule("GET", "reel.wav", etag='"other"')]
)
def test_parts_of_another_version_are_refused(
    proxy: FaultyS3, fetch: Callable[..., bytes], fault: Rule
) -> None:
    proxy.rules += [Rule("GET", "reel.wav"), Rule("GET", "reel.wav"), fault]
    with pytest.raises(SourceChanged):
        fetch()


def test_a_store_that_fails_may_come_back(proxy: FaultyS3, fetch: Callable[..., bytes]) -> None:
    proxy.rules += [Rule("GET", "reel.wav"), Rule("GET", "reel.wav", times=99, cut=10)]
    with pytest.raises(StorageError):
        fetch()


def test_the_limit_holds(fetch: Callable[..., bytes]) -> None:
    with pytest.raises(SourceTooLarge):
        fetch(source_max_bytes=len(BODY) - 1)


@pytest.mark.parametrize("fault", [{"drip": 0.2}, {"delay": 8.0}])
def test_a_cancel_reaches_whoever_waits_for_parts(
    proxy: FaultyS3, fetch: Callable[..., bytes], fault: dict[str, float]
) -> None:
    slow = Rule("GET", "reel.wav", times=99, **fault)  # type: ignore[arg-type]
    proxy.rules += [Rule("GET", "reel.wav"), slow]
    before = set(threading.enumerate())
    asked: list[float] = []

    def check() -> None:
        if slow.used >= 2:
            asked.append(time.monotonic())
            raise JobCancelled

    with pytest.raises(JobCancelled):
        fetch(check=check)
    assert time.monotonic() - asked[0] < 5.0
    if "drip" in fault:
        ours = ("spool-source", "ThreadPoolExecutor")
        until(
            lambda: not [t for t in set(threading.enumerate()) - before if t.name.startswith(ours)],
            "the readers' threads ended",
        )
