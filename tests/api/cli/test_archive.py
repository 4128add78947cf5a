"""`spool watch`, `sources`, `connections` and `export`, in this process, against the real server."""

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live
from ops.testbed.waiting import until
from spool.settings import Settings
from spool.store import JobFilter, list_jobs

OLD = 1_700_000_000


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "theirs").mkdir()
    prefix = f"{(tmp_path / 'theirs').resolve().as_uri()}/"
    return settings.model_copy(update={"output_prefixes": (prefix,)})


@pytest.fixture
def spool(
    live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    monkeypatch.setenv("COLUMNS", "250")

    def run(*arguments: str, code: int = 0) -> str:
        done = invoke(main, arguments)
        assert done.exit_code == code, done
        return done.stdout + done.stderr

    return run


def test_a_folder_is_watched_and_its_transcripts_are_written(
    spool: Callable[..., str], live: Live, recordings: Path, tmp_path: Path
) -> None:
    os.utime(recordings / "reel 1.wav", (OLD, OLD))
    (recordings / "notes.txt").write_text("not audio")
    os.utime(recordings / "notes.txt", (OLD, OLD))
    theirs = (tmp_path / "theirs").resolve()
    assert "no sources" in spool("sources", "list")
    output = ("--output", str(theirs), "--output-format", "vtt", "--output-layout", "flat")
    added = spool("watch", str(recordings), "--every", "10m", "--tag", "box=7", *output)
    source = added.split()[0]
    until(lambda: json.loads(spool("sources", "list", "--json"))[0]["counts"]["taken"] == 1)
    (shown,) = json.loads(spool("sources", "list", "--json"))
    assert (shown["every_seconds"], shown["tags"]) == (600.0, {"box": "7"})
    assert "watching" in spool("sources", "list")
    assert "not audio" in spool("sources", "show", source, "--state", "skipped")
    (item,) = json.loads(spool("sources", "show", source, "--state", "taken", "--json"))["items"]

    live.work().finish(item["job"])
    until(lambda: "reel%201.wav.vtt" in spool("status", item["job"]))
    assert (theirs / "reel 1.wav.vtt").exists()
    assert "1 files" in spool("export", item["job"])

    assert "paused" in spool("sources", "pause", source)
    assert "resume it first" in spool("sources", "check", source, code=4)
    assert "watches again" in spool("sources", "resume", source)
    assert "removed" in spool("sources", "remove", source)
    assert "is not a duration" in spool("watch", str(recordings), "--every", "soon", code=2)
    assert "--output PREFIX" in spool("submit", "x.wav", "--output-format", "srt", code=2)
    assert "no deadline" in spool("watch", str(recordings), "--deadline", "2030-01-01", code=2)


def test_a_secret_is_read_from_standard_input_or_the_environment_and_never_printed(
    spool: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: tuple[Any, ...] = ("--prefix", "s3://theirs/in/", "--key-id", "AKIA")
    monkeypatch.setattr("sys.stdin", io.StringIO("from-standard-input\n"))
    printed = spool("connections", "add", "one", *asked)
    monkeypatch.setenv("SPOOL_CONNECTION_SECRET", "from-the-environment")
    printed += spool("connections", "add", "two", *asked, "--project", "film", "--json")
    printed += spool("connections", "list") + spool("connections", "list", "--json")
    assert "from-" not in printed
    assert "s3://theirs/in/" in printed
    monkeypatch.delenv("SPOOL_CONNECTION_SECRET")
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert "SPOOL_CONNECTION_SECRET" in spool("connections", "add", "three", *asked, code=2)
    spool("connections", "remove", "two", code=4)
    assert "removed" in spool("connections", "remove", "two", "--project", "film")


def test_who_stops_waiting_is_told_what_goes_on(
    spool: Callable[..., str], live: Live, recordings: Path
) -> None:
    # Run in the background, a process is born deaf to Ctrl-C.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)

    def stop_once_submitted() -> None:
        def submitted() -> bool:
            with live.services.database.read() as tx:
                return bool(list_jobs(tx, JobFilter(), limit=1).items)

        until(submitted, "a job")
        time.sleep(2)  # by when its answer has arrived
        os.kill(os.getpid(), signal.SIGINT)

    stopping = threading.Thread(target=stop_once_submitted)
    stopping.start()
    try:
        said = spool("submit", str(recordings), "--wait", code=130)
    finally:
        stopping.join()
        signal.signal(signal.SIGINT, previous)
    assert "1 of 1 recordings were submitted and go on; `spool follow` shows them." in said


def test_a_passage_is_closed_opened_and_what_may_be_private_is_listed(
    spool: Callable[..., str], live: Live, recordings: Path
) -> None:
    job_id = json.loads(spool("submit", str(recordings / "reel 1.wav"), "--json"))[0]["id"]
    live.work().finish(job_id, ("then", "Ada", "Lund", "went", "home"))
    assert "Ada Lund" in spool("embargo", "suggest", job_id)
    time_of = ("--from", "0:00.5", "--to", "1.5")
    closed = spool("embargo", "close", job_id, *time_of, "--until", "2099-01-01", "--reason", "Her wish")
    assert "0.5 to 1.5 s is closed until 2099-01-01" in closed
    closure = closed.partition(":")[0]
    assert {"Her", "wish"} <= set(spool("embargo", "list", job_id).split())
    assert spool("transcript", job_id).strip() == "then [closed] went home"
    assert "never opened" in spool("embargo", "log", job_id)
    assert spool("transcript", job_id, "--closed").strip() == "then Ada Lund went home"
    assert "GET /v1/jobs/{job_id}/transcript" in spool("embargo", "log", job_id)
    refused = spool("embargo", "close", job_id, "--from", "noon", "--to", "1", code=2)
    assert "--from: noon is not a time such as 12:30, 1:02:03 or 750.5." in refused
    refused = spool("embargo", "close", job_id, "--speaker", "speaker_0", code=4)
    assert "there is no speaker_0; the speakers are: none." in refused
    assert "is open" in spool("embargo", "open", job_id, closure)
    assert spool("transcript", job_id).strip() == "then Ada Lund went home"
