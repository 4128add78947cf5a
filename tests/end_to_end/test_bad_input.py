"""Broken and odd recordings as jobs, through the real worker command and the demo model."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.testbed.bad_audio import EXPECTED, make_bad_files
from ops.testbed.fake_models import tone
from ops.testbed.jobs import write_wav
from ops.testbed.processes import REAL, Fleet, drained
from ops.testbed.waiting import until
from spool.domain import JobState, Transcript
from spool.objects import object_store


@pytest.fixture
def fleet(tmp_path: Path, sqlite_url: str, redis_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, sqlite_url, redis_url, SPOOL_LEASE_SECONDS="30", SPOOL_HEARTBEAT_SECONDS="1")
    yield fleet
    fleet.close()


def test_every_bad_file_fails_alone_and_at_once(fleet: Fleet, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive.mkdir()
    make_bad_files(archive)
    outside = tmp_path.parent / f"{tmp_path.name}-outside.wav"
    write_wav(outside, tone(2))
    vanishing = write_wav(archive / "vanishing.wav", tone(2))
    jobs = {name: fleet.submit(archive / name, "demo-tdt") for name in EXPECTED}
    (archive / "link.wav").symlink_to(outside)
    jobs |= {"vanishing": fleet.submit(vanishing, "demo-tdt")}
    jobs |= {"outside": fleet.submit(archive / "link.wav", "demo-tdt")}
    unserved = fleet.submit(archive / "zeros.wav", "nobody")
    vanishing.unlink()
    expected = {name: error.code if error else None for name, error in EXPECTED.items()}
    expected |= {"vanishing": "source_missing", "outside": "source_forbidden"}

    worker = fleet.start(*REAL)
    until(lambda: fleet.ended(jobs.values()), "all jobs ended")

    rows = {name: fleet.job(job_id) for name, job_id in jobs.items()}
    assert {name: row.error_code for name, row in rows.items()} == expected
    tried_again = {name for name, row in rows.items() if row.attempt > 1}
    assert tried_again == {"vanishing"}, "only a missing file is looked for again"
    for name, row in rows.items():
        if expected[name] is None:
            assert row.state is JobState.DONE
            assert row.coverage == 1.0
        else:
            assert row.state is JobState.FAILED
            assert row.error_message is not None
            assert row.name in row.error_message
    assert fleet.job(unserved).state is JobState.QUEUED, "no worker has its model"
    for name in ("zeros.wav", "ten_samples.wav"):
        assert rows[name].words == 0
    objects = object_store(fleet.settings)
    for row in rows.values():
        if row.transcript_key is not None:
            with objects.open(row.transcript_key) as stream:
                assert Transcript.model_validate_json(stream.read()).job == row.id
    assert drained(worker) == 0
    assert fleet.billed_ns() == fleet.workers()[0].engine_busy_ns
