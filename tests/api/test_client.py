"""The HTTP client of the commands, against the real server."""

from pathlib import Path

import pytest

from api.client import Client, Refused, ServerUnreachable
from tests.api.running import Live


@pytest.mark.parametrize("size", [300_001, 40_000_000])
def test_a_file_that_is_too_large_is_told_as_such_and_not_as_a_broken_line(
    live: Live, tmp_path: Path, size: int
) -> None:
    tape = tmp_path / "tape.wav"
    with tape.open("wb") as file:
        file.truncate(size)
    with Client(live.url) as client, pytest.raises(Refused) as refused:
        client.submit_file(tape, {})
    assert (refused.value.status, refused.value.code) == (413, "too_large")
    assert "300000 bytes" in refused.value.detail


def test_every_job_comes_page_after_page(live: Live, recordings: Path) -> None:
    with Client(live.url) as client:
        source = (recordings / "reel 1.wav").as_uri()
        ids = [client.submit_source(source, {"name": str(number)}).id for number in range(3)]
        assert [job.id for job in client.jobs({"limit": 2}).items] == ids[:0:-1]
        assert [job.id for job in client.all_jobs()] == ids[::-1]
        assert client.readiness().ready


def test_a_server_that_is_not_there_is_named() -> None:
    with Client("http://127.0.0.1:9") as client:
        with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9"):
            client.jobs()
        with pytest.raises(ServerUnreachable):
            client.readiness()


def test_a_server_that_is_not_spool_is_refused_by_its_status(live: Live) -> None:
    with Client(f"{live.url}/docs") as client, pytest.raises(Refused, match="nothing at"):
        client.jobs()
