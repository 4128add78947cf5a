"""The Python client, blocking and awaiting, against the real server."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.testbed.running_api import Live
from spool.client import (
    AsyncSpool,
    Conflict,
    InvalidRequest,
    NotFound,
    Retries,
    Spool,
    TimedOut,
    TooLarge,
    Unreachable,
)
from spool.client import jobs as of_jobs
from spool.domain import JobState
from spool.store import JobFilter, list_jobs
from tests.api.cli.commands import ROOT

ONCE = Retries(tries=1, greetings=1)
NOBODY = "job_01JD5T9Q4X8K2M6N0P3R7S1V5W"


@pytest.fixture
def working(live: Live) -> Iterator[None]:
    """A worker that does every job as soon as it waits; one called `broken` fails."""
    over = threading.Event()

    def work() -> None:
        worker = live.work()
        while not over.wait(0.02):
            with live.services.database.read() as tx:
                waiting = list_jobs(tx, JobFilter(state=JobState.QUEUED)).items
            for job in waiting:
                if "broken" in job.name:
                    worker.fail(job.id, "audio_empty", "There is nothing in it.")
                else:
                    worker.finish(job.id)

    thread = threading.Thread(target=work)
    thread.start()
    yield
    over.set()
    thread.join(60)


@pytest.fixture
def spool(live: Live) -> Iterator[Spool]:
    with Spool(live.url) as client:
        yield client


@pytest.mark.usefixtures("working")
def test_a_recording_from_first_to_last(spool: Spool, recordings: Path) -> None:
    seen, sent = [], []
    job = spool.submit(
        recordings / "reel 1.wav", tags={"box": "7"}, sent=lambda done, total: sent.append((done, total))
    )
    assert (job.source.kind, job.name, job.tags) == ("upload", "reel 1.wav", {"box": "7"})
    assert sent[-1] == (44, 44)

    ended = spool.wait(job.id, progress=lambda job: seen.append(job.state), timeout=60)
    assert ended.state is JobState.DONE
    assert seen[-1] is JobState.DONE
    assert ended.cost.billable > 0
    assert spool.transcript(job.id) == "keep the light\n"
    assert spool.transcript(job.id, "vtt").startswith("WEBVTT")
    assert spool.transcript_file(job.id, "docx").startswith(b"PK")
    assert [word.text for word in spool.words(job.id).words] == ["keep", "the", "light"]
    with pytest.raises(Conflict, match="is done"):
        spool.cancel(job.id)

    broken = spool.submit((recordings / "reel 1.wav").as_uri(), name="broken", project="radio")
    failed = spool.wait(broken.id)
    assert failed.error is not None
    assert failed.error.code == "audio_empty"
    assert spool.wait(spool.retry(broken.id).id).state is JobState.FAILED
    assert [each.id for each in spool.jobs(state="failed", project="radio")] == [broken.id]
    assert {row.key for row in spool.costs(group_by="project").rows} == {"default"}
    assert spool.workers()[0].name == "studio-1"
    assert spool.models()[0].default
    assert spool.readiness().ready


@pytest.mark.usefixtures("working")
def test_an_archive_from_first_to_last(spool: Spool, recordings: Path, tmp_path: Path) -> None:
    source = (recordings / "reel 1.wav").as_uri()
    lines: list[dict[str, Any]] = [
        {"source": source, "custom_id": "ä 1"},
        {"source": source, "name": "broken"},
        {"source": 7},
    ]
    batch = spool.wait_batch(spool.submit_batch(lines, name="reels", tags={"box": "7"}).id, timeout=60)
    assert (batch.lines.accepted, [bad.line for bad in batch.bad_lines]) == (2, [3])
    told = list(spool.results(batch.id, words=True))
    assert [(one.custom_id, one.text) for one in told] == [("ä 1", "keep the light"), ("line-2", None)]
    assert len(told[0].words or []) == 3
    assert len(list(spool.result_lines(batch.id, state="done"))) == 1
    assert [job.name for job in spool.jobs(batch=batch.id, state="failed")] == ["broken"]
    assert spool.retry_failed(batch.id).retried == 1
    spool.wait_batch(batch.id, timeout=60)
    with pytest.raises(Conflict, match="has ended"):
        spool.cancel_batch(batch.id)

    assert spool.submit_batch(recordings).lines.accepted == 1
    manifest = tmp_path / "reels.jsonl"
    manifest.write_text(f'{{"source": "{source}"}}\nbroken\n')
    with pytest.raises(InvalidRequest, match="no job was created") as refused:
        spool.submit_batch(manifest, strict=True)
    assert refused.value.problem["bad_lines"][0]["line"] == 2
    assert spool.submit_batch(manifest).name == "reels.jsonl"
    assert len(list(spool.batches())) == 3


@pytest.mark.usefixtures("working")
def test_it_can_be_awaited(live: Live, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_jobs, "LONGEST_PAGE", 2)

    async def main() -> None:
        async with AsyncSpool(live.url) as spool:
            path = recordings / "reel 1.wav"
            jobs = await asyncio.gather(*(spool.submit(path, name=f"reel {each}") for each in range(3)))
            ended = await asyncio.gather(*(spool.wait(job.id, timeout=60) for job in jobs))
            assert {job.state for job in ended} == {JobState.DONE}
            assert (await spool.words(jobs[0].id)).text == "keep the light"
            assert {job.id async for job in spool.jobs()} == {job.id for job in jobs}
            batch = await spool.submit_batch([{"source": path.as_uri()}])
            await spool.wait_batch(batch.id, timeout=60)
            assert [result.text async for result in spool.results(batch.id)] == ["keep the light"]
            with pytest.raises(NotFound):
                await spool.job(NOBODY)
            with pytest.raises(NotFound):
                [result async for result in spool.results(NOBODY.replace("job", "bat"))]
        async with AsyncSpool("http://127.0.0.1:9", retries=ONCE) as nobody:
            with pytest.raises(Unreachable):
                await nobody.models()

    asyncio.run(main())


def test_every_job_comes_page_after_page(
    spool: Spool, recordings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_jobs, "LONGEST_PAGE", 2)
    source = (recordings / "reel 1.wav").as_uri()
    ids = [spool.submit(source, name=str(number)).id for number in range(3)]
    page = spool.job_page(limit=2)
    assert [job.id for job in page.items] == ids[:0:-1]
    assert [job.id for job in spool.job_page(limit=2, cursor=page.next_cursor).items] == ids[:1]
    assert [job.id for job in spool.jobs()] == ids[::-1]


def test_the_same_call_under_the_same_key_is_one_job(spool: Spool, recordings: Path) -> None:
    source = (recordings / "reel 1.wav").as_uri()
    assert len({spool.submit(source, idempotency_key="reel-1").id for _ in range(2)}) == 1
    with pytest.raises(Conflict):
        spool.submit(source, name="another", idempotency_key="reel-1")


@pytest.mark.parametrize("size", [300_001, 40_000_000])
def test_a_file_that_is_too_large_is_told_as_such_and_not_as_a_broken_line(
    spool: Spool, tmp_path: Path, size: int
) -> None:
    tape = tmp_path / "tape.wav"
    with tape.open("wb") as file:
        file.truncate(size)
    with pytest.raises(TooLarge) as refused:
        spool.submit(tape)
    assert (refused.value.status, refused.value.code) == (413, "too_large")
    assert "300000 bytes" in refused.value.detail


def test_what_is_refused_says_what_and_where(spool: Spool, recordings: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest) as refused:
        spool.submit((recordings / "reel 1.wav").as_uri(), options={"beam": 99})
    assert [fault["where"] for fault in refused.value.errors] == ["options.beam"]
    with pytest.raises(NotFound):
        spool.transcript(NOBODY)
    with pytest.raises(FileNotFoundError):
        spool.submit(tmp_path / "gone.wav")
    waiting = spool.submit((recordings / "reel 1.wav").as_uri())
    with pytest.raises(TimedOut, match="queued"):
        spool.wait(waiting.id, timeout=0.01)
    assert spool.cancel(waiting.id).state is JobState.CANCELLED


def test_a_server_that_is_not_there_is_named() -> None:
    with Spool("http://127.0.0.1:9", retries=ONCE) as nobody:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
            nobody.job_page()
        with pytest.raises(Unreachable):
            nobody.readiness()
        with pytest.raises(Unreachable):
            list(nobody.results("bat_x"))


def test_an_address_as_clients_of_openai_have_it_means_the_same_server(live: Live) -> None:
    with Spool(f"{live.url}/v1/") as spool:
        assert [model.name for model in spool.models()] == ["demo-tdt"]


def test_a_server_that_is_not_spool_is_refused_by_its_status(live: Live) -> None:
    with Spool(f"{live.url}/docs") as other, pytest.raises(NotFound, match="nothing at"):
        other.job_page()


@pytest.mark.usefixtures("working")
def test_the_examples_of_the_manual_run_as_they_stand(
    live: Live,
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    examples = [part.partition("```")[0] for part in text.split("```python\n")[1:]]
    assert len(examples) == 4
    monkeypatch.chdir(recordings.parent)
    monkeypatch.setenv("SPOOL_URL", live.url)
    for name in ("reel-42.flac", "reel-43.flac"):
        (recordings.parent / name).write_bytes(b"fLaC")
    for example in examples:
        exec(compile(example, "docs/client.md", "exec"), {"__name__": "example"})
    printed = capsys.readouterr().out
    assert "keep the light" in printed
    assert "There is no job job_01JD5T9Q4X8K2M6N0P3R7S1V5W" in printed
    assert "keep the light" in (recordings.parent / "transcripts.jsonl").read_text()
