"""The calls of versions: transcribe a recording again, list its versions, compare them."""

from collections.abc import Mapping
from typing import Any, Literal

from spool.client.exchange import Ask, Flow, read
from spool.client.jobs import new_key
from spool.domain.priority import PriorityName
from spool.schemas.jobs import JobDetail
from spool.schemas.versions import BatchDiff, DiffOut, VersionList


def rerun(
    job_id: str,
    options: Mapping[str, Any] | None = None,
    *,
    pool: str | None = None,
    tags: Mapping[str, str] | None = None,
    priority: PriorityName | None = None,
    idempotency_key: str | None = None,
) -> Flow[JobDetail]:
    """Submit a job on another job's recording, with the same options except those given here. Nothing is
    uploaded. Raises Deleted if the recording or the transcript was deleted."""
    values = {"pool": pool, "tags": dict(tags) if tags else None, "priority": priority}
    body = {"options": dict(options or {})} | {
        name: value for name, value in values.items() if value is not None
    }
    ask = Ask("POST", f"/v1/jobs/{job_id}/rerun", json=body, key=idempotency_key or new_key())
    return (yield from read(ask, JobDetail))


def versions(job_id: str) -> Flow[VersionList]:
    """The jobs on the same recording, oldest first."""
    return (yield from read(Ask("GET", f"/v1/jobs/{job_id}/versions"), VersionList))


def diff(
    job_id: str, other: str, *, sort: Literal["time", "doubt"] = "time", limit: int = 1000
) -> Flow[DiffOut]:
    """Where the words of two versions of a recording differ, and the WER of `other` with `job_id` as the
    reference. Raises Conflict while one of them is not done, and for different recordings."""
    query: dict[str, str | int | bool | None] = {"with": other, "sort": sort, "limit": limit}
    return (yield from read(Ask("GET", f"/v1/jobs/{job_id}/diff", query, slow=True), DiffOut))


def batch_diff_page(
    batch_id: str, *, model: str | None = None, cursor: str | None = None, limit: int = 20
) -> Flow[BatchDiff]:
    """Up to `limit` (1 to 50) jobs of a batch beside the newest later versions of their recordings, or the
    newest of `model`. The sums cover only this page: add up those of all pages."""
    query: dict[str, str | int | bool | None] = {"model": model, "cursor": cursor, "limit": limit}
    return (yield from read(Ask("GET", f"/v1/batches/{batch_id}/diff", query, slow=True), BatchDiff))
