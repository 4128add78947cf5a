"""The calls about watched folders and buckets."""

from collections.abc import Mapping
from typing import Any

from spool.client.base import answer
from spool.client.exchange import Ask, Flow, Query, all_pages, read
from spool.client.jobs import LONGEST_PAGE
from spool.schemas.common import ListOf, Page
from spool.schemas.sources import SourceItemOut, WatchedSourceOut

_ALL = "/v1/sources"


def watch(
    source: str,
    *,
    name: str | None = None,
    project: str | None = None,
    every_seconds: float | None = None,
    settle_seconds: float | None = None,
    options: Mapping[str, Any] | None = None,
    tags: Mapping[str, str] | None = None,
    output: Mapping[str, Any] | None = None,
    **more: Any,  # noqa: ANN401 - what else a batch may be given
) -> Flow[WatchedSourceOut]:
    """Watch `s3://bucket/prefix/` or `file:///folder/`: every recording in it is submitted once, and each one
    that is added or changes. `more`: `reuse`, `connection`, `pool`, `worker`, `requires` and `priority`, as
    for batches."""
    values = {
        "name": name,
        "project": project,
        "every_seconds": every_seconds,
        "settle_seconds": settle_seconds,
        "output": dict(output) if output else None,
        **more,
    }
    body = {"source": source, "options": dict(options or {}), "tags": dict(tags or {})}
    body |= {field: value for field, value in values.items() if value is not None}
    return (yield from read(Ask("POST", _ALL, json=body), WatchedSourceOut))


def sources(*, project: str | None = None) -> Flow[list[WatchedSourceOut]]:
    """All watched folders and buckets, newest first."""
    return (yield from read(Ask("GET", _ALL, {"project": project}), ListOf[WatchedSourceOut])).items


def source(source_id: str) -> Flow[WatchedSourceOut]:
    """One source, with how much it found."""
    return (yield from read(Ask("GET", f"{_ALL}/{source_id}"), WatchedSourceOut))


def change_source(
    source_id: str,
    *,
    name: str | None = None,
    every_seconds: float | None = None,
    settle_seconds: float | None = None,
    paused: bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> Flow[WatchedSourceOut]:
    """Change the given fields. `options` replace those of its future jobs; the others stay."""
    values: dict[str, Any] = {
        "name": name,
        "every_seconds": every_seconds,
        "settle_seconds": settle_seconds,
        "paused": paused,
        "options": dict(options) if options else None,
    }
    body = {field: value for field, value in values.items() if value is not None}
    return (yield from read(Ask("PATCH", f"{_ALL}/{source_id}", json=body), WatchedSourceOut))


def pause_source(source_id: str) -> Flow[WatchedSourceOut]:
    """Stop listing a source until it is resumed."""
    return (yield from read(Ask("POST", f"{_ALL}/{source_id}/pause"), WatchedSourceOut))


def resume_source(source_id: str) -> Flow[WatchedSourceOut]:
    """List a source again, starting now."""
    return (yield from read(Ask("POST", f"{_ALL}/{source_id}/resume"), WatchedSourceOut))


def check_source(source_id: str) -> Flow[WatchedSourceOut]:
    """List a source now."""
    return (yield from read(Ask("POST", f"{_ALL}/{source_id}/check"), WatchedSourceOut))


def remove_source(source_id: str) -> Flow[None]:
    """Stop watching; its jobs are kept."""
    yield from answer(Ask("DELETE", f"{_ALL}/{source_id}"))


def source_item_page(
    source_id: str, *, state: str | None = None, limit: int = LONGEST_PAGE, cursor: str | None = None
) -> Flow[Page[SourceItemOut]]:
    """One page of the versions of files that it found, newest first."""
    query: Query = {"state": state, "cursor": cursor, "limit": limit}
    return (yield from read(Ask("GET", f"{_ALL}/{source_id}/items", query), Page[SourceItemOut]))


source_items = all_pages(source_item_page)
