"""The calls about batches: submit an archive, show its progress, read its results, retry, cancel."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from spool import schemas
from spool.client.exchange import Ask, Flow, Lines, Sent, Upload, all_pages, body_of, read
from spool.client.fields import BatchFields, State
from spool.client.jobs import LONGEST_PAGE, new_key, poll_until

_NDJSON = "application/x-ndjson"


def submit_batch(
    source: str | Path | Iterable[Mapping[str, Any]],
    *,
    idempotency_key: str | None = None,
    sent: Sent | None = None,
    **fields: Unpack[BatchFields],
) -> Flow[schemas.BatchDetail]:
    """Submit many recordings at once and return their batch; `bad_lines` lists the lines that make no job.

    `source`: an address that the server lists or reads (`s3://bucket/prefix/`, `file:///folder/`, a manifest
    that ends in `.jsonl`); a local manifest, which is uploaded, with `sent(bytes, of)` called as it
    progresses; a local folder, for a server that sees the same files; or the lines of a manifest themselves,
    each with its `source`. Fields are defaults for the lines. `connection`: the project's connection that
    reads every `s3://` address.

    Raises OSError for a manifest that cannot be read; InvalidRequest (`code` `bad_lines`) when no line is
    good, or with `strict` when one is bad; Refused and Unreachable.
    """
    return read(_submission(source, body_of(fields), idempotency_key or new_key(), sent), schemas.BatchDetail)


def batch(batch_id: str) -> Flow[schemas.BatchDetail]:
    """One batch: counts by state, audio, speed, time left, cost."""
    return read(Ask("GET", f"/v1/batches/{batch_id}"), schemas.BatchDetail)


def batch_page(
    *, project: str | None = None, limit: int = LONGEST_PAGE, cursor: str | None = None
) -> Flow[schemas.Page[schemas.BatchOut]]:
    """Up to `limit` (1 to 200) batches, newest first, after the `next_cursor` of another page."""
    query = {"project": project, "limit": limit, "cursor": cursor}
    return read(Ask("GET", "/v1/batches", query), schemas.Page[schemas.BatchOut])


batches = all_pages(batch_page)


def wait_batch(
    batch_id: str,
    *,
    progress: Callable[[schemas.BatchDetail], object] | None = None,
    timeout: float | None = None,
) -> Flow[schemas.BatchDetail]:
    """Wait until every job of the batch has ended, and return it.

    `progress` is called with the batch after each poll. Raises TimedOut after `timeout` seconds.
    """
    return poll_until(lambda: batch(batch_id), lambda it: it.state == "ended", progress, timeout)


def results(batch_id: str, *, words: bool = False, state: State | None = None) -> Lines[schemas.BatchResult]:
    """The result of each line, in the order of the manifest, as it arrives: text, or an error.

    Raises Unreachable if it is interrupted.
    """
    return Lines(_results(batch_id, words=words, state=state), schemas.BatchResult.model_validate_json)


def result_lines(batch_id: str, *, words: bool = False, state: State | None = None) -> Lines[str]:
    """The same as the lines of JSON that the server sends."""
    return Lines(_results(batch_id, words=words, state=state), str)


def transcripts(
    batch_id: str,
    format: str = "txt",  # noqa: A002 - the name users know it by
    *,
    subtitles: str | None = None,
) -> Lines[bytes]:
    """The transcripts of its finished jobs as the bytes of one zip, as they arrive; `missing.tsv` in it names
    the jobs without one. `subtitles` as in `transcript_file`.

    Raises Unreachable if it is interrupted.
    """
    path = f"/v1/batches/{batch_id}/transcripts"
    return Lines(Ask("GET", path, {"format": format, "subtitles": subtitles}, slow=True, stream=True), None)


def retry_failed(batch_id: str, *, idempotency_key: str | None = None) -> Flow[schemas.BatchRetried]:
    """Queue every failed job of the batch again; returns how many."""
    path = f"/v1/batches/{batch_id}/retry-failed"
    ask = Ask("POST", path, key=idempotency_key or new_key(), slow=True)
    return read(ask, schemas.BatchRetried)


def cancel_batch(batch_id: str) -> Flow[schemas.BatchDetail]:
    """Cancel queued jobs; running ones stop at their next chunk. Finished ones are kept."""
    return read(Ask("DELETE", f"/v1/batches/{batch_id}", slow=True), schemas.BatchDetail)


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


def _results(batch_id: str, *, words: bool, state: State | None) -> Ask:
    query = {"include": "words" if words else None, "state": state}
    return Ask("GET", f"/v1/batches/{batch_id}/results", query, slow=True, stream=True)
