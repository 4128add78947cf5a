"""The routes of batches for the `spool` command, over the same connection as `client`.

A submission is tried again under its `Idempotency-Key`, so that an answer lost on the way makes no second
batch and one that broke off goes on.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import httpx

from api.client import Client, ServerUnreachable
from spool.jobs import JobState
from spool.wire.batches import BatchDetail, BatchPage, BatchRetried

_TRIES = 3
_NDJSON = "application/x-ndjson"
_LONGEST_QUERY = 2000


class BatchClient:
    """Batches of one server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def submit_source(self, source: str, request: Mapping[str, Any]) -> BatchDetail:
        """A batch that the server lists or reads itself."""
        return self._submitted(json={"source": source, **request})

    def submit_manifest(self, path: Path, request: Mapping[str, Any]) -> BatchDetail:
        """A batch whose manifest is sent now, as a stream."""
        return self._submitted(manifest=path, request=json.dumps(request, ensure_ascii=False))

    def one(self, batch_id: str) -> BatchDetail:
        """How a batch stands."""
        return BatchDetail.model_validate_json(self._client.request("GET", f"/v1/batches/{batch_id}").content)

    def page(self) -> BatchPage:
        """The latest batches."""
        answer = self._client.request("GET", "/v1/batches", params={"limit": 20})
        return BatchPage.model_validate_json(answer.content)

    def results(self, batch_id: str, *, words: bool, state: JobState | None) -> Iterator[str]:
        """A line a job, as they arrive."""
        query = {"include": "words" if words else None, "state": state}
        return self._client.lines(f"/v1/batches/{batch_id}/results", query)

    def retry_failed(self, batch_id: str) -> BatchRetried:
        """Queue what failed again."""
        answer = self._client.request("POST", f"/v1/batches/{batch_id}/retry-failed", long=True)
        return BatchRetried.model_validate_json(answer.content)

    def cancel(self, batch_id: str) -> BatchDetail:
        """Cancel what has not ended."""
        answer = self._client.request("DELETE", f"/v1/batches/{batch_id}", long=True)
        return BatchDetail.model_validate_json(answer.content)

    def _submitted(self, *, manifest: Path | None = None, **parts: Any) -> BatchDetail:  # noqa: ANN401 (httpx's own)
        key = {"Idempotency-Key": uuid.uuid4().hex}
        for left in reversed(range(_TRIES)):
            try:
                if manifest is None:
                    answer = self._post(key, **parts)
                else:
                    with manifest.open("rb") as file:
                        answer = self._post(key, **_sent(file, manifest.name, parts["request"]))
                return BatchDetail.model_validate_json(answer.content)
            except ServerUnreachable:
                if not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _post(self, key: Mapping[str, str], **parts: Any) -> httpx.Response:  # noqa: ANN401
        headers = {**key, **parts.pop("headers", {})}
        return self._client.request("POST", "/v1/batches", headers=headers, long=True, **parts)


def _sent(file: BinaryIO, name: str, request: str) -> dict[str, Any]:
    """A manifest as a bare body; as a form where what goes with it is too long for an address."""
    if len(request) > _LONGEST_QUERY:
        return {"files": {"request": (None, request, "application/json"), "file": (name, file, _NDJSON)}}
    return {"params": {"request": request}, "content": file, "headers": {"Content-Type": _NDJSON}}
