"""The calls about batches: submit an archive, show its progress, read its results, retry, cancel."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from spool.client.exchange import Ask, Blocks, Flow, Lines, Sent, Upload, all_pages, read
from spool.client.jobs import LONGEST_PAGE, new_key, order_fields, poll_until
from spool.domain.jobs import JobState
from spool.domain.priority import PriorityName
from spool.schemas.batches import BatchDetail, BatchOut, BatchResult, BatchRetried
from spool.schemas.common import Page

_NDJSON = "application/x-ndjson"


def submit_batch(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    name: str | None = None,
    project: str | None = None,
    options: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    strict: bool | None = None,
    reuse: bool | None = None,
    pool: str | None = None,
    worker: str | None = None,
    requires: Mapping[str, Any] | None = None,
    priority: PriorityName | None = None,
    deadline: datetime | str | None = None,
    output: Mapping[str, Any] | None = None,
    connection: str | None = None,
    idempotency_key: str | None = None,
    sent: Sent | None = None,
) -> Flow[BatchDetail]:
    """Submit many recordings at once and return their batch; `bad_lines` lists the lines that make no job.

    `source`: an address that the server lists or reads (`s3://bucket/prefix/`, `file:///folder/`, a manifest
    that ends in `.jsonl`); a local manifest, which is uploaded, with `sent(bytes, of)` called as it
    progresses; a local folder, for a server that sees the same files; or the lines of a manifest themselves,
    each with its `source`. Arguments are defaults for the lines. `connection`: the project's connection that
    reads every `s3://` address.

    Raises OSError for a manifest that cannot be read; InvalidRequest (`code` `bad_lines`) when no line is
    good, or with `strict` when one is bad; Refused and Unreachable.
    """
    values = {
        "name": name,
        "project": project,
        "pool": pool,
        "worker": worker,
        "strict": strict,
        "reuse": reuse,
        "connection": connection,
    }
    request: dict[str, Any] = {field: value for field, value in values.items() if value is not None}
    request |= {"requires": dict(requires)} if requires else {}
    request |= {"output": dict(output)} if output else {}
    request |= {"options": dict(options or {}), "tags": dict(tags or {})} | order_fields(priority, deadline)
    ask = _submission(source, request, idempotency_key or new_key(), sent)
    return (yield from read(ask, BatchDetail))


def batch(batch_id: str) -> Flow[BatchDetail]:
    """One batch: counts by state, audio, speed, time left, cost."""
    return (yield from read(Ask("GET", f"/v1/batches/{batch_id}"), BatchDetail))


def batch_page(
    *, project: str | None = None, limit: int = LONGEST_PAGE, cursor: str | None = None
) -> Flow[Page[BatchOut]]:
    """Up to `limit` (1 to 200) batches, newest first, after the `next_cursor` of another page."""
    query = {"project": project, "limit": limit, "cursor": cursor}
    return (yield from read(Ask("GET", "/v1/batches", query), Page[BatchOut]))


batches = all_pages(batch_page)


def wait_batch(
    batch_id: str, *, progress: Callable[[BatchDetail], object] | None = None, timeout: float | None = None
) -> Flow[BatchDetail]:
    """Wait until every job of the batch has ended, and return it.

    `progress` is called with the batch after each poll. Raises TimedOut after `timeout` seconds.
    """
    return (yield from poll_until(lambda: batch(batch_id), lambda it: it.state == "ended", progress, timeout))


def results(batch_id: str, *, words: bool = False, state: JobState | str | None = None) -> Lines[BatchResult]:
    """The result of each line, in the order of the manifest, as it arrives: text, or an error.

    Raises Unreachable if it is interrupted.
    """
    return Lines(_results(batch_id, words=words, state=state), BatchResult.model_validate_json)


def result_lines(batch_id: str, *, words: bool = False, state: JobState | str | None = None) -> Lines[str]:
    """The same as the lines of JSON that the server sends."""
    return Lines(_results(batch_id, words=words, state=state), str)


def transcripts(batch_id: str, format: str = "txt") -> Blocks:  # noqa: A002 - the name users know it by
    """The transcripts of its finished jobs as the bytes of one zip, as they arrive; `missing.tsv` in it names
    the jobs without one.

    Raises Unreachable if it is interrupted.
    """
    path = f"/v1/batches/{batch_id}/transcripts"
    return Blocks(Ask("GET", path, {"format": format}, slow=True, stream=True))


def retry_failed(batch_id: str, *, idempotency_key: str | None = None) -> Flow[BatchRetried]:
    """Queue every failed job of the batch again; returns how many."""
    path = f"/v1/batches/{batch_id}/retry-failed"
    ask = Ask("POST", path, key=idempotency_key or new_key(), slow=True)
    return (yield from read(ask, BatchRetried))


def cancel_batch(batch_id: str) -> Flow[BatchDetail]:
    """Cancel queued jobs; running ones stop at their next chunk. Finished ones are kept."""
    return (yield from read(Ask("DELETE", f"/v1/batches/{batch_id}", slow=True), BatchDetail))


def _submission(
    source: str | Path | Iterable[Mapping[str, Any]], request: dict[str, Any], key: str, sent: Sent | None
) -> Ask:
    path = "/v1/batches"
    if isinstance(source, str) and "://" in source:
        return Ask("POST", path, json={"source": source, **request}, key=key, slow=True)
    if not isinstance(source, str | Path):
        lines = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in source).encode()
        return Ask("POST", path, upload=Upload(request, lines, "manifest.jsonl", _NDJSON), key=key)
    local = Path(source)
    if local.is_dir():
        address = f"{local.resolve().as_uri()}/"
        return Ask("POST", path, json={"source": address, **request}, key=key, slow=True)
    named = request if "name" in request else request | {"name": local.name}
    return Ask("POST", path, upload=Upload(named, local, local.name, _NDJSON, sent), key=key)


def _results(batch_id: str, *, words: bool, state: JobState | str | None) -> Ask:
    query = {"include": "words" if words else None, "state": state}
    return Ask("GET", f"/v1/batches/{batch_id}/results", query, slow=True, stream=True)
