"""The HTTP client of the `spool` command: one method a route, typed answers, two kinds of failure.

Knows the wire and nothing of terminals. A transport error on a submission is tried again under the same
`Idempotency-Key`, so that an answer lost on the way makes no second job.
"""

import json
import mimetypes
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx
from pydantic import BaseModel

from spool.wire.costs import CostReportOut
from spool.wire.jobs import JobDetail, JobOut, JobPage, Readiness, WorkerList

Answer = TypeVar("Answer", bound=BaseModel)
Query = Mapping[str, str | int | None]

_SUBMIT_TRIES = 3
_BUSY_TRIES = 10
_BUSY_WAIT_S = 30.0
_TIMEOUT = httpx.Timeout(30.0, connect=5.0)
# An answer to an upload waits until the server has stored the file.
_UPLOAD_TIMEOUT = httpx.Timeout(600.0, connect=5.0)


class ServerUnreachable(Exception):
    """No Spool server answers at this address."""

    def __init__(self, url: str, cause: Exception) -> None:
        super().__init__(f"No answer from {url} ({cause or type(cause).__name__}).")


class Refused(Exception):
    """The server answered with a problem document."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail


class Client:
    """A connection to one server; use it as a context manager."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.url = url.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(base_url=self.url, headers=headers, timeout=_TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def submit_source(self, source: str, request: Mapping[str, Any]) -> JobDetail:
        """A job whose recording the worker fetches."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        response = self._send_again("POST", "/v1/jobs", json={"source": source, **request}, headers=key)
        return _read(response, JobDetail)

    def submit_file(self, path: Path, request: Mapping[str, Any]) -> JobDetail:
        """A job whose recording is uploaded now, as a stream."""
        key = {"Idempotency-Key": uuid.uuid4().hex}
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        for left in reversed(range(_SUBMIT_TRIES)):
            with path.open("rb") as file:
                form = {
                    "request": (None, json.dumps(request, ensure_ascii=False), "application/json"),
                    "file": (path.name, file, kind),
                }
                try:
                    response = self._send(
                        "POST", "/v1/jobs", files=form, headers=key, timeout=_UPLOAD_TIMEOUT
                    )
                    return _read(response, JobDetail)
                except ServerUnreachable:
                    if not left:
                        raise
        raise AssertionError("the last try returns or raises")

    def job(self, job_id: str) -> JobDetail:
        """One job, with its cost."""
        return _read(self._send("GET", f"/v1/jobs/{job_id}"), JobDetail)

    def jobs(self, query: Query | None = None) -> JobPage:
        """One page of jobs, newest first."""
        return _read(self._send("GET", "/v1/jobs", params=_given(query)), JobPage)

    def all_jobs(self, query: Query | None = None) -> Iterator[JobOut]:
        """Every job that fits, page after page."""
        cursor: str | None = None
        while True:
            page = self.jobs({**(query or {}), "cursor": cursor, "limit": 200})
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def transcript(self, job_id: str, form: str) -> str:
        """The transcript as text in the format `form`: one of `spool.formats.FORMATS`."""
        return self._send("GET", f"/v1/jobs/{job_id}/transcript", params={"format": form}).text

    def cancel(self, job_id: str) -> JobDetail:
        """Cancel a job; a running one stops at its next chunk."""
        return _read(self._send("DELETE", f"/v1/jobs/{job_id}"), JobDetail)

    def retry(self, job_id: str) -> JobDetail:
        """Queue a failed or cancelled job again."""
        return _read(self._send("POST", f"/v1/jobs/{job_id}/retry"), JobDetail)

    def costs(self, query: Query) -> CostReportOut:
        """The cost report of a period."""
        return _read(self._send("GET", "/v1/costs", params=_given(query)), CostReportOut)

    def workers(self) -> WorkerList:
        """Every worker that registered."""
        return _read(self._send("GET", "/v1/workers"), WorkerList)

    def readiness(self) -> Readiness:
        """What `/readyz` says, also when it says no."""
        try:
            response = self._http.get("/readyz")
        except httpx.TransportError as error:
            raise ServerUnreachable(self.url, error) from error
        return _read(response, Readiness)

    def request(
        self,
        method: str,
        path: str,
        *,
        long: bool = False,
        **parts: Any,  # noqa: ANN401 (httpx's own)
    ) -> httpx.Response:
        """One request of a kind of its own; `long` waits as long as an upload may take."""
        return self._send(method, path, **parts, **({"timeout": _UPLOAD_TIMEOUT} if long else {}))

    def lines(self, path: str, query: Query) -> Iterator[str]:
        """The lines of a long answer, as they arrive. A transfer that breaks off raises."""
        try:
            with self._http.stream("GET", path, params=_given(query), timeout=_UPLOAD_TIMEOUT) as response:
                if not response.is_success:
                    response.read()
                    raise _refusal(response)
                yield from response.iter_lines()
        except httpx.TransportError as error:
            raise ServerUnreachable(self.url, error) from error

    def _send_again(self, method: str, path: str, **parts: Any) -> httpx.Response:  # noqa: ANN401 (httpx's own)
        for _ in range(_SUBMIT_TRIES - 1):
            try:
                return self._send(method, path, **parts)
            except ServerUnreachable:
                continue
        return self._send(method, path, **parts)

    def _send(self, method: str, path: str, **parts: Any) -> httpx.Response:  # noqa: ANN401 (httpx's own)
        for wait_is_left in reversed(range(_BUSY_TRIES)):
            try:
                response = self._http.request(method, path, **parts)
            except httpx.TransportError as error:
                raise ServerUnreachable(self.url, error) from error
            if response.is_success:
                return response
            # Asked too often: nothing was done yet. A body that was an iterator cannot be sent again.
            if (
                response.status_code != httpx.codes.TOO_MANY_REQUESTS
                or "content" in parts
                or not wait_is_left
            ):
                break
            time.sleep(_wait_seconds(response))
        raise _refusal(response)


def _wait_seconds(response: httpx.Response) -> float:
    told = response.headers.get("retry-after", "")
    return min(float(told), _BUSY_WAIT_S) if told.isdecimal() else 1.0


def _refusal(response: httpx.Response) -> Refused:
    try:
        problem = response.json()
        return Refused(response.status_code, str(problem["code"]), str(problem["detail"]))
    except (ValueError, KeyError, TypeError):
        return Refused(response.status_code, "http", f"The server answered {response.status_code}.")


def _read(response: httpx.Response, kind: type[Answer]) -> Answer:
    return kind.model_validate_json(response.content)


def _given(query: Query | None) -> dict[str, str | int]:
    return {name: value for name, value in (query or {}).items() if value is not None}
