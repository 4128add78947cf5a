"""Streams of events over a real socket: followed to the end, cut and resumed, bounded."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.auth.principal import OPERATOR
from api.delivery.sse import Progress, Stream, StreamStart, stream_text
from ops.testbed.running_api import Live, file_job, problem
from ops.testbed.waiting import until
from spool.domain import JobState, key_id_of
from spool.domain.events import BATCH_DONE, JOB_EXPORTED, Event
from spool.schemas import BatchEvent, BatchProgress, JobEvent, JobProgress
from spool.settings import Settings
from spool.store import batch_jobs, fail_job, read_events, revoke_key
from tests.api.auth.keys import BOTH, bearer, get, new_key, post


@dataclass(frozen=True)
class Told:
    """One message of a stream."""

    kind: str
    number: int | None
    data: dict[str, Any]


@contextmanager
def opened(live: Live, path: str, **asked: Any) -> Iterator[Iterator[Told]]:
    """The messages of a stream as they come, until the server ends it."""
    with (
        httpx.Client(timeout=60, verify=False) as client,
        client.stream("GET", f"{live.url}{path}", **asked) as response,
    ):
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield messages(response.iter_lines())


def messages(lines: Iterator[str]) -> Iterator[Told]:
    fields: dict[str, str] = {}
    for line in lines:
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "event" in fields:
            number = int(fields["id"]) if "id" in fields else None
            yield Told(fields["event"], number, json.loads(fields["data"]))
            fields = {}


def job_of(live: Live, recordings: Path) -> str:
    made = post(f"{live.url}/v1/jobs", json=file_job(recordings))
    return str(made.json()["id"])


def batch_of(live: Live, recordings: Path, lines: int) -> tuple[str, list[str]]:
    text = "\n".join(json.dumps(file_job(recordings, custom_id=f"reel-{n}")) for n in range(lines))
    kind = {"Content-Type": "application/x-ndjson"}
    made = post(f"{live.url}/v1/batches", content=text, headers=kind).json()
    with live.services.database.read() as tx:
        return made["id"], [job.id for job in batch_jobs(tx, made["id"], None, 1000)]


def numbered(told: list[Told]) -> list[tuple[int | None, str, Any]]:
    return [
        (one.number, one.kind, one.data.get("job"))
        for one in told
        if one.number and "progress" not in one.kind
    ]


def in_log(live: Live, **which: Any) -> list[tuple[int, str, str | None]]:
    with live.services.database.read() as tx:
        return [(event.id, event.type, event.job_id) for event in read_events(tx, 0, 1000, **which)]


def test_a_job_is_followed_to_its_end(live: Live, recordings: Path) -> None:
    job_id = job_of(live, recordings)
    path = f"/v1/jobs/{job_id}/events"
    with opened(live, path) as told:
        first = next(told)
        assert (first.kind, first.data["state"]) == ("job.progress", "queued")
        assert first.number is not None
        worker = live.work()
        claim = worker.claim(job_id)
        seen = [next(told)]
        while seen[-1].kind != "job.started":  # the event of its queueing may not have had its number yet
            seen.append(next(told))
        worker.progress(claim, 30.0, 90.0)
        while seen[-1].data.get("done_seconds") != 30.0:
            seen.append(next(told))
        assert seen[-1] == Told(
            "job.progress", None, {"state": "running", "done_seconds": 30.0, "audio_seconds": 90.0}
        )
        with live.services.database.begin() as tx:
            fail_job(tx, claim, "audio_unreadable", "no")
        rest = list(told)
    assert [one.kind for one in rest if one.kind != "job.progress"] == ["job.failed", "end"]
    failed = rest[-2]
    assert failed.data["error"]["code"] == "audio_unreadable"
    assert failed.data["project"] == "default"
    JobEvent.model_validate(failed.data)
    JobProgress.model_validate(first.data)

    # What is resumed goes on there; after the end there is nothing to come again for
    with opened(live, path, headers={"Last-Event-ID": "0"}, params={"after": 10**9}) as told:
        everything = list(told)
    assert numbered(everything) == in_log(live, job_id=job_id)
    assert [one.kind for one in everything] == ["job.queued", "job.started", "job.failed", "end"]
    with opened(live, path, params={"after": everything[1].number}) as told:
        assert [one.kind for one in told] == ["job.failed", "end"]
    ended = get(f"{live.url}{path}", headers={"Last-Event-ID": str(failed.number)})
    assert (ended.status_code, ended.content) == (204, b"")
    with opened(live, path) as told:
        ending = list(told)
    assert [(one.kind, one.number) for one in ending] == [("job.failed", failed.number), ("end", None)]
    assert ending[0].data == failed.data


def test_a_stream_that_is_cut_goes_on_with_nothing_lost_or_doubled(
    settings: Settings,
    start_api: Callable[[Settings], Live],
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch is worked on while its reader leaves in the middle and comes again, to another process."""
    monkeypatch.setattr("api.delivery.sse.PAGE", 4)
    monkeypatch.setattr("api.delivery.sse._HELD", 6)
    apis = [start_api(settings), start_api(settings)]
    batch_id, jobs = batch_of(apis[0], recordings, 15)
    path = f"/v1/batches/{batch_id}/events"
    worker = apis[0].work()
    working = threading.Thread(target=lambda: deque(map(worker.finish, jobs), 0))
    working.start()
    heard: list[Told] = []
    last = 0
    for number in range(40):
        with opened(apis[number % 2], path, headers={"Last-Event-ID": str(last)}) as told:
            for one in told:
                heard.append(one)
                last = one.number or last
                # After the batch's last event there is nothing to come back for: the answer would be 204.
                if len(heard) % 7 == 0 and one.kind != "batch.done":
                    break
        if heard[-1].kind == "end":
            break
    working.join()
    assert heard[-1].kind == "end"
    assert numbered(heard) == in_log(apis[0], batch_id=batch_id)
    for one in heard:
        if one.number and not one.kind.endswith(".progress"):
            (BatchEvent if one.kind.startswith("batch.") else JobEvent).model_validate(one.data)
    kinds = [one.kind for one in heard if one.number]
    assert kinds.count("job.done") == 15
    assert kinds.count("batch.done") == 1


@pytest.mark.parametrize("pages", [1, 2])
def test_a_stream_ends_where_the_last_event_fills_a_page_of_the_log(
    live: Live, recordings: Path, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    batch_id, jobs = batch_of(live, recordings, 3)
    for job_id in jobs:
        live.work().finish(job_id)
    database = live.services.database

    def written() -> list[Event]:
        with database.read() as tx:
            return read_events(tx, 0, 100, batch_id=batch_id)

    until(lambda: BATCH_DONE in [event.type for event in written()], "the batch's last event")
    log = written()
    rest = len(log) % pages
    after = log[rest - 1].id if rest else 0
    monkeypatch.setattr("api.delivery.sse.PAGE", len(log) // pages)

    async def follow() -> list[str]:
        stream = Stream(OPERATOR, None, batch_id, asyncio.get_running_loop())
        async with asyncio.timeout(60):
            begin = StreamStart(after, None, ended=False)
            return [text async for text in stream_text(database, stream, begin)]

    told = asyncio.run(follow())
    assert [text.count("event: batch.done") for text in told[-2:]] == [1, 0]
    assert told[-1] == "event: end\ndata: {}\n\n"


@pytest.mark.parametrize("placed", [True, False], ids=["in the log", "still to be numbered"])
def test_a_stream_ends_though_something_comes_after_the_ending(
    live: Live, recordings: Path, placed: bool
) -> None:
    """An export may be written once its job has ended, and its event gets its number later still."""
    job_id = job_of(live, recordings)
    live.work().finish(job_id)
    database = live.services.database

    def written() -> list[Event]:
        with database.read() as tx:
            return read_events(tx, 0, 100, job_id=job_id)

    until(lambda: "job.done" in [event.type for event in written()], "the job's last event")
    log = written()
    exported = replace(log[-1], id=log[-1].id + 1, type=JOB_EXPORTED)

    async def follow() -> list[str]:
        stream = Stream(OPERATOR, job_id, None, asyncio.get_running_loop())
        stream.offer([exported] if not placed else [log[-1], exported])
        begin = StreamStart(
            log[-1 if not placed else -2].id, Progress("job.progress", {}), not placed, placed
        )
        async with asyncio.timeout(60):
            return [text async for text in stream_text(database, stream, begin)]

    told = asyncio.run(follow())
    assert told[-2].count("event: job.exported") == 1
    assert told[-1] == "event: end\ndata: {}\n\n"


def test_a_batch_tells_its_counts_while_it_runs(live: Live, recordings: Path) -> None:
    batch_id, (first, second) = batch_of(live, recordings, 2)
    with opened(live, f"/v1/batches/{batch_id}/events") as told:
        first_told = next(told)
        assert BatchProgress.model_validate(first_told.data).jobs[JobState.QUEUED] == 2
        live.work().finish(first)
        seen = [next(told)]
        while seen[-1].kind != "batch.progress" or seen[-1].data["jobs"]["done"] != 1:
            seen.append(next(told))
        live.work().finish(second)
        seen += list(told)
    done = [one for one in seen if one.kind == "batch.done"]
    assert [one.data["jobs"]["done"] for one in done] == [2]
    assert seen[-1].kind == "end"


def test_nobody_waits_in_silence(live: Live, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.delivery.sse.KEEP_ALIVE_S", 0.01)
    path = f"{live.url}/v1/jobs/{job_of(live, recordings)}/events"
    with httpx.Client(timeout=60, verify=False) as client, client.stream("GET", path) as response:
        assert next(line for line in response.iter_lines() if line.startswith(":")) == ": keep-alive"


def test_a_stream_ends_with_its_key(
    settings: Settings,
    start_api: Callable[[Settings], Live],
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("api.delivery.event_broker._KEYS_S", 0.0)
    live = start_api(settings)
    open_job = job_of(live, recordings)
    with opened(live, f"/v1/jobs/{open_job}/events") as before:
        next(before)
        key = new_key(live.services.database, "default", BOTH)
        live.services.key_cache.check_required()
        assert "end" not in [one.kind for one in before], "who came without a key does not stay"
    with opened(live, f"/v1/jobs/{open_job}/events", headers=bearer(key)) as told:
        next(told)
        with live.services.database.begin() as tx:
            revoke_key(tx, key_id_of(key) or "")
        assert "end" not in [one.kind for one in told], "it was closed, and nothing has ended"


def test_streams_are_bounded_and_given_back(
    settings: Settings, start_api: Callable[[Settings], Live], recordings: Path
) -> None:
    live = start_api(settings.model_copy(update={"event_streams": 1}))
    path = f"/v1/jobs/{job_of(live, recordings)}/events"
    with opened(live, path) as told:
        next(told)
        refused = get(f"{live.url}{path}")
        problem(refused, 503, "too_many_streams")
        assert refused.headers["retry-after"] == "10"
    until(lambda: not live.services.feed._open(), "the end of the stream")
    with opened(live, path) as told:
        next(told)


def test_many_streams_wait_on_one_thread(live: Live, recordings: Path) -> None:
    job_id = job_of(live, recordings)
    path = f"{live.url}/v1/jobs/{job_id}/events"

    async def follow(client: httpx.AsyncClient, begun: asyncio.Semaphore) -> list[str]:
        async with client.stream("GET", path) as response:
            kinds = []
            async for line in response.aiter_lines():
                if line.startswith("event: "):
                    kinds.append(line.removeprefix("event: "))
                    begun.release()
            return kinds

    async def all_of_them() -> list[list[str]]:
        begun = asyncio.Semaphore(0)
        limits = httpx.Limits(max_connections=None)
        async with (
            httpx.AsyncClient(timeout=60, verify=False, limits=limits) as client,
            asyncio.TaskGroup() as group,
        ):
            readers = [group.create_task(follow(client, begun)) for _ in range(40)]
            for _ in range(40):
                await begun.acquire()
            await asyncio.to_thread(live.work().finish, job_id)
        return [reader.result() for reader in readers]

    for kinds in asyncio.run(all_of_them()):
        assert kinds[0] == "job.progress"
        assert kinds[-2:] == ["job.done", "end"]
    assert sum(thread.name == "spool-events" for thread in threading.enumerate()) == 1


def test_what_names_no_event_is_refused(live: Live, recordings: Path) -> None:
    path = f"{live.url}/v1/jobs/{job_of(live, recordings)}/events"
    for headers in ({"Last-Event-ID": "x"}, {"Last-Event-ID": "-1"}, {"Last-Event-ID": str(2**70)}):
        problem(get(path, headers=headers), 422, "invalid_request")
    nowhere = f"{live.url}/v1/batches/bat_01JD5T9Q4X8K2M6N0P3R7S1V5W/events"
    problem(get(nowhere), 404, "not_found")


def test_the_end_of_a_job_tells_its_warnings(live: Live, recordings: Path) -> None:
    plain, doubtful = job_of(live, recordings), job_of(live, recordings)
    live.work().finish(plain)
    live.work().finish(doubtful, warnings=["demo-tdt is unsure of most of the words.", "b", "c", "d"])
    told = {}
    for job_id in (plain, doubtful):
        with opened(live, f"/v1/jobs/{job_id}/events") as stream:
            told[job_id] = next(one.data for one in stream if one.kind == "job.done")
    assert "warnings" not in told[plain]
    assert told[doubtful]["warnings"] == ["demo-tdt is unsure of most of the words.", "b", "c"]
    assert JobEvent.model_validate(told[doubtful]).warnings == told[doubtful]["warnings"]
