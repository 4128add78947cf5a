"""What a worker knows of its models reaches its row, also after a heartbeat was lost."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.processes import Fleet
from ops.testbed.waiting import until

pytestmark = pytest.mark.integration


def test_a_worker_that_was_forgotten_reports_its_models_again(
    tmp_path: Path, sqlite_url: str, redis_url: str
) -> None:
    told = {"SPOOL_MODELS": "plain=plain", "SPOOL_DEFAULT_MODEL": "plain", "SPOOL_HEARTBEAT_SECONDS": "0.2"}
    fleet = Fleet(tmp_path, sqlite_url, redis_url, **told)
    try:
        worker = fleet.start()

        def heads() -> list[tuple[str, ...]]:
            rows = [row for row in fleet.workers() if row.pid == worker.pid]
            return [row.model_facts["plain"].heads for row in rows if "plain" in row.model_facts]

        job = fleet.submit(write_wav(tmp_path / "reel.wav", speechlike(4)), "plain")
        until(lambda: fleet.ended([job]), "the model was loaded")
        until(lambda: heads() == [("tdt",)], "its row says what was loaded")
        with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as raw:  # no foreign keys
            raw.execute("DELETE FROM workers")
            raw.commit()
        until(lambda: heads() == [("tdt",)], "the new row says it too")
    finally:
        fleet.close()
