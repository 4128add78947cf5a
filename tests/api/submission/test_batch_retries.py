"""What failed in a batch, again: once under an idempotency key, and to its end where it broke off."""

from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection

from ops.testbed.running_api import Live, problem
from spool.errors import StorageError
from spool.store import batches


def test_a_retry_under_a_key_is_done_once_and_to_its_end(
    live: Live, http: httpx.Client, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recordings / "reel 2.wav").write_bytes(b"RIFF")
    batch = http.post("/v1/batches", json={"source": recordings.as_uri() + "/"}).json()["id"]

    def fail_all() -> None:
        worker = live.work()
        for job in http.get("/v1/jobs", params={"batch": batch, "state": "queued"}).json()["items"]:
            worker.fail(job["id"], "storage", "The store was away.")

    def retry(key: str) -> httpx.Response:
        return http.post(f"/v1/batches/{batch}/retry-failed", headers={"Idempotency-Key": key})

    # Given a retry that broke off after its first job
    fail_all()
    whole = batches.retry_failed
    blocks = []

    def breaks_off(tx: Connection, batch_id: str, after: int) -> list[int]:
        blocks.append(batch_id)
        if len(blocks) == 2:
            raise StorageError("The database does not answer.")
        return whole(tx, batch_id, after, limit=1)

    monkeypatch.setattr(batches, "retry_failed", breaks_off)
    problem(retry("again-1"), 503, "storage")
    # Then its repeat goes on
    assert retry("again-1").json() == {"retried": 1}
    # And one after it came to its end does nothing, though jobs failed anew
    fail_all()
    assert retry("again-1").json() == {"retried": 0}
    assert retry("again-2").json() == {"retried": 2}

    # And the key of one request is no other's
    job = http.get("/v1/jobs", params={"batch": batch}).json()["items"][0]["id"]
    used = http.post(f"/v1/jobs/{job}/retry", headers={"Idempotency-Key": "again-2"})
    problem(used, 409, "conflict")
