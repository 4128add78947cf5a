"""Large files go past the API to the bucket, in parts, and go on after an interruption."""

# ruff: noqa: F811 - fixtures are imported by name

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from api.submission import direct
from ops.testbed.faulty_s3 import Rule
from ops.testbed.running_api import Live
from ops.testbed.s3 import S3Server
from spool.client import AsyncSpool, Retries, ServerFailed, Spool
from spool.client import uploads as sending
from spool.settings import Settings
from spool.tables import uploads
from spool.tables.uploads import key_of
from tests.live.guarded_s3 import GuardedS3
from tests.live.past_the_api import PART, bucket, no_sweeps, past_the_api, proxy  # noqa: F401 - fixtures

BODY = os.urandom(1024) * (2 * 1024 * 5 + 100)

pytestmark = pytest.mark.usefixtures("no_sweeps")


@pytest.fixture
def settings(
    settings: Settings, s3_server: S3Server, bucket: str, proxy: GuardedS3, monkeypatch: pytest.MonkeyPatch
) -> Settings:
    monkeypatch.setattr(direct, "PART_BYTES", PART)
    monkeypatch.setattr("spool.client.jobs.DIRECT_BYTES", PART)
    monkeypatch.setattr(sending, "_PAGE", 2)
    monkeypatch.setattr(sending, "_RETRIES", Retries(tries=2, first_s=0.001))
    return past_the_api(settings, s3_server, f"s3://{bucket}", proxy.url)


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "tape.wav"
    path.write_bytes(BODY)
    return path


def states(live: Live) -> list[str]:
    with live.services.database.read() as tx:
        return sorted(tx.scalars(select(uploads.c.state)))


def stored(live: Live, job_id: str) -> bytes:
    with live.services.objects.open(key_of(job_id)) as stream:
        return stream.read()


def test_what_arrived_before_an_interruption_is_not_sent_again(
    live: Live, proxy: GuardedS3, tape: Path
) -> None:
    lost = Rule("PUT", "partNumber=3", times=99, status=503)
    proxy.rules.append(lost)
    told: list[tuple[int, int]] = []
    with Spool(live.url) as spool:
        with pytest.raises(ServerFailed, match="Received parts are kept: submit the same file again"):
            spool.submit(tape, sent=lambda done, of: told.append((done, of)))
        assert lost.used == 2
        assert told[-1] == (2 * PART, len(BODY))
        proxy.rules.clear()
        again = Rule("PUT", "partNumber=", times=99, delay=0.001)
        proxy.rules.append(again)
        told.clear()
        job = spool.submit(tape, sent=lambda done, of: told.append((done, of)), idempotency_key="tape")
        assert again.used == 1, "the one that was missing"
        assert (told[0], told[-1]) == ((2 * PART, len(BODY)), (len(BODY), len(BODY)))
        assert (job.name, job.source.kind, job.source.size) == ("tape.wav", "upload", len(BODY))
        assert stored(live, job.id) == BODY

        # The whole call again under its own key: the first job, and nothing left over
        assert spool.submit(tape, idempotency_key="tape").id == job.id
    assert states(live) == ["used"]


def test_an_address_is_good_for_its_part_alone(live: Live) -> None:
    with httpx.Client(base_url=live.url, timeout=60) as client:
        upload = client.post("/v1/uploads", json={"name": "a.wav", "bytes": 10}).json()
        (part,) = client.get(f"/v1/uploads/{upload['id']}/parts").json()["items"]
    for sent, status in ((bytes(9), 403), (bytes(11), 403), (bytes(10), 200)):
        assert httpx.put(part["url"], content=sent).status_code == status
    other = part["url"].replace("partNumber=1", "partNumber=2")
    assert httpx.put(other, content=bytes(10)).status_code == 403


def test_the_same_file_twice_at_once_is_two_jobs(live: Live, tape: Path) -> None:
    async def both() -> set[str]:
        async with AsyncSpool(live.url) as spool:
            return {job.id for job in await asyncio.gather(spool.submit(tape), spool.submit(tape))}

    jobs = asyncio.run(both())
    assert len(jobs) == 2
    assert [stored(live, job_id) for job_id in jobs] == [BODY, BODY]
    assert states(live) == ["used", "used"]


def test_it_goes_through_the_api_where_that_is_all_there_is(
    settings: Settings, start_api: Callable[[Settings], Live], tape: Path
) -> None:
    live = start_api(settings.model_copy(update={"direct_uploads": False}))
    with Spool(live.url) as spool:
        job = spool.submit(tape)
    assert (job.name, job.source.kind, states(live)) == ("tape.wav", "upload", [])
    assert stored(live, job.id) == BODY
