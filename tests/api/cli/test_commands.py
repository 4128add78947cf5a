"""The commands end to end, through the real API, broker, worker and demo model, each a process of its own."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from api.local.instance import find_running
from ops.testbed.jobs import speechlike, write_wav
from ops.testbed.waiting import PATIENCE, until
from tests.api.cli.commands import SAMPLES, Commands, processes_of

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A stack left running by `spool up --detach`; the word samples are its one root."""
    folder = tmp_path_factory.mktemp("up")
    commands = Commands(folder / "home", {"SPOOL_API_PORT": "0"})
    try:
        home, words = str(commands.home), str(SAMPLES / "words")
        started = commands.run("up", "--detach", "--home", home, "--sources", words).stdout
        stop = re.search(r"^stop +(.*)$", started, re.MULTILINE)
        assert stop is not None
        yield commands
        # What it says stops it, typed where it was said.
        typed = subprocess.run(
            stop[1], shell=True, env=commands.environ, cwd=folder, check=False, timeout=150
        )
        assert typed.returncode == 0
        assert find_running(commands.home) is None
    finally:
        commands.run("down")
    assert processes_of(commands.home) == []
    assert not (commands.home / "api.json").exists()
    assert find_running(commands.home) is None


def test_a_folder_and_a_file_are_submitted_and_followed_to_their_words(up: Commands) -> None:
    # When a folder under the root and a file outside it are handed in
    sources = (str(SAMPLES / "words"), str(SAMPLES / "digits" / "string-1.flac"))
    jobs = json.loads(up.run("submit", *sources, "--project", "radio", "--wait", "--json").stdout)

    # Then those the server can see went by address and the other as an upload, and all are done
    assert [job["source"]["kind"] for job in jobs] == ["file"] * 6 + ["upload"]
    assert {job["state"] for job in jobs} == {"done"}
    assert {job["project"] for job in jobs} == {"radio"}
    assert all(job["coverage"] == 1.0 for job in jobs)

    # And each has words and a price
    last = jobs[-1]
    assert up.run("transcript", last["id"]).stdout.strip()
    assert up.run("transcript", last["id"], "--format", "vtt").stdout.startswith("WEBVTT\n")
    record = json.loads(up.run("transcript", last["id"], "--format", "json").stdout)
    assert record["job"] == last["id"]
    assert float(last["cost"]["billable"]) > 0

    # And the bill of the project is the sum of its jobs'
    report = json.loads(up.run("costs", "--group-by", "project", "--json").stdout)
    (row,) = [row for row in report["rows"] if row["key"] == "radio"]
    assert row["engine_seconds"] == pytest.approx(sum(job["cost"]["engine_seconds"] for job in jobs))
    assert "radio" in up.run("costs", "--group-by", "project").stdout


def test_two_recordings_of_one_name_are_told_apart_by_their_folders(up: Commands, tmp_path: Path) -> None:
    for tape in ("tape 1", "tape 2"):
        (tmp_path / tape).mkdir()
        shutil.copy(SAMPLES / "words" / "bed-1.flac", tmp_path / tape / "side a.flac")
    jobs = json.loads(up.run("submit", str(tmp_path), "--json").stdout)
    assert [job["name"] for job in jobs] == ["tape 1/side a.flac", "tape 2/side a.flac"]
    assert "tape 2/side a.flac" in up.run("status").stdout

    # And their address does as well: what the settings do not let the server read there is uploaded
    again = json.loads(up.run("submit", f"{tmp_path.as_uri()}/", "--json").stdout)
    assert [job["id"] for job in again] == [job["id"] for job in jobs]
    batch = up.run("batch", "submit", f"{tmp_path.as_uri()}/", "--json")
    assert "uploaded as separate jobs" in batch.stderr
    assert len(json.loads(batch.stdout)) == 2
    up.run("follow")


def test_status_watch_and_workers_read_well(up: Commands) -> None:
    submitted = up.run("submit", str(SAMPLES / "words" / "bed-1.flac")).stdout
    job_id, name = submitted.split()
    assert name == "bed-1.flac"
    up.run("follow", job_id)
    sheet = up.run("status", job_id).stdout
    assert "done" in sheet
    assert "RTFx" in sheet
    assert job_id in up.run("status", "--limit", "1").stdout
    assert "no job is waiting or running" in up.run("follow").stdout
    assert "ready" in up.run("workers").stdout


def test_what_cannot_be_done_ends_in_one_sentence_and_a_code(up: Commands) -> None:
    job_id = up.run("submit", str(SAMPLES / "words" / "bed-1.flac"), "--wait", "--json").stdout
    job_id = json.loads(job_id)[0]["id"]

    refused = up.run("cancel", job_id, code=4)
    assert refused.stderr == f"spool: Job {job_id} is done and cannot be cancelled.\n"
    assert up.run("status", "job_x", code=4).stderr == "spool: There is no job job_x.\n"
    assert "There is no file" in up.run("submit", "gone.wav", code=2).stderr
    manifest = up.home.parent / "reels.csv"
    manifest.write_text("source\n")
    assert f"spool batch submit {manifest}" in up.run("submit", str(manifest), code=2).stderr
    assert "decoder" in up.run("submit", "gone.wav", "--decoder", "magic", code=2).stderr
    assert "no model 'x'" in up.run("submit", str(SAMPLES / "words"), "--model", "x", code=4).stderr
    assert "No answer" in up.run("status", "--url", "http://127.0.0.1:9", code=3).stderr


def test_a_recording_that_fails_fails_alone(up: Commands) -> None:
    text = up.home.parent / "text.wav"
    text.write_text("this is not audio")

    done = up.run("submit", str(text), str(SAMPLES / "words" / "cat-1.flac"), "--wait", "--json", code=1)

    failed, other = json.loads(done.stdout)
    assert (failed["state"], other["state"]) == ("failed", "done")
    assert failed["error"]["message"]
    assert "text.wav" in done.stderr
    again = json.loads(up.run("retry", failed["id"], "--json").stdout)
    assert again["state"] == "queued"
    up.run("follow", failed["id"], code=1)
    version = json.loads(up.run("rerun", other["id"], "--wait", "--json").stdout)[0]
    assert (version["rerun_of"], version["state"]) == (other["id"], "done")


def test_a_file_that_cannot_be_read_keeps_no_other_from_being_submitted(up: Commands, tmp_path: Path) -> None:
    tapes = tmp_path / "tapes"
    tapes.mkdir()
    for name in ("a.wav", "c.wav"):
        write_wav(tapes / name, speechlike(1.0))
    (tapes / "b.wav").symlink_to(tmp_path / "gone.wav")
    (tapes / "b2.wav").symlink_to("b2.wav")
    done = up.run("submit", str(tapes), "--json", code=1)
    assert [job["name"] for job in json.loads(done.stdout)] == ["a.wav", "c.wav"]
    assert f"{tapes / 'b.wav'}: cannot be read: No such file or directory" in done.stderr
    assert f"{tapes / 'b2.wav'}: cannot be read: Too many levels of symbolic links" in done.stderr


def test_the_stack_is_found_from_any_folder(up: Commands, tmp_path: Path) -> None:
    environ = {name: value for name, value in up.environ.items() if name != "SPOOL_HOME"}

    def run(*arguments: str, cwd: Path = tmp_path) -> str:
        done = subprocess.run(
            up.command(*arguments), env=environ, cwd=cwd, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    running = find_running(up.home)
    assert running is not None
    assert run("up").startswith(f"already running at {running.url}\n")
    assert run("up", "--detach").startswith(f"already running at {running.url}\n")
    assert run("status", "--json") == up.run("status", "--json").stdout

    # A folder with a home of its own is meant where it is.
    (tmp_path / "own" / "var").mkdir(parents=True)
    (tmp_path / "own" / "var" / "up.lock").touch()
    assert run("down", cwd=tmp_path / "own").startswith("nothing is running in ")


def test_a_stack_of_which_a_part_dies_stops_and_says_why(tmp_path: Path) -> None:
    # Given a stack in the foreground
    commands = Commands(tmp_path / "home", {})
    log = tmp_path / "up.log"
    process = commands.start("up", "--port", "0", log=log)
    try:
        until(lambda: process.poll() is not None or find_running(commands.home), "the stack", PATIENCE)
        running = find_running(commands.home)
        assert running is not None, log.read_text()

        # When its API is killed
        os.kill(json.loads((commands.home / "api.json").read_text())["pid"], signal.SIGKILL)

        # Then everything else is stopped, in order, and the reason is told
        assert process.wait(90) == 1
        assert "The API ended by itself" in log.read_text()
        assert processes_of(commands.home) == []
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{running.url}/healthz")
    finally:
        process.kill()


def test_what_a_killed_stack_left_behind_is_ended_by_the_next(tmp_path: Path) -> None:
    # Given a stack that was killed, so that its parts live on
    commands = Commands(tmp_path / "home", {"SPOOL_API_PORT": "0"})
    commands.run("up", "--detach")
    running = find_running(commands.home)
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: find_running(commands.home) is None, "the end of the stack")
    assert httpx.get(f"{running.url}/healthz").status_code == 200

    # When another is started in the same home
    commands.run("up", "--detach")

    # Then the old parts are gone, and nothing is left after the new one
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{running.url}/healthz")
    commands.run("down")
    assert processes_of(commands.home) == []


# The demo


def test_the_demo_ends_in_the_line_that_was_promised(tmp_path: Path) -> None:
    # Given two recordings, one with a reference
    samples = tmp_path / "samples"
    samples.mkdir()
    for name in ("bed-1.flac", "cat-1.flac"):
        (samples / name).write_bytes((SAMPLES / "words" / name).read_bytes())
    (samples / "manifest.jsonl").write_text('{"file": "bed-1.flac", "text": "bed"}\n')
    commands = Commands(tmp_path / "home", {})

    done = commands.run("demo", str(samples))

    lines = done.stdout.splitlines()
    assert re.fullmatch(r"2 done, 0 failed, WER \d+\.\d %", lines[-1]), done.stdout
    assert any("bed-1.flac" in line and "RTFx" in line and "USD" in line for line in lines)
    assert any("What it cost" in line for line in lines)
    assert "1 by address, 1 uploaded" in done.stdout
    assert processes_of(tmp_path) == []
    assert list((tmp_path / "var" / "demo").iterdir()) == []


@pytest.mark.long
def test_a_demo_with_a_job_that_fails_says_so_and_keeps_its_logs(tmp_path: Path) -> None:
    samples = tmp_path / "samples"
    samples.mkdir()
    (samples / "text.wav").write_text("this is not audio")

    done = Commands(tmp_path / "home", {}).run("demo", str(samples), code=1)

    assert done.stdout.splitlines()[-1] == "0 done, 1 failed, WER n/a"
    (kept,) = (tmp_path / "var" / "demo").iterdir()
    assert (kept / "logs" / "worker.log").exists()
    assert processes_of(tmp_path) == []


@pytest.mark.long
def test_a_demo_that_is_interrupted_stops_what_it_started(tmp_path: Path) -> None:
    commands = Commands(tmp_path / "home", {})
    log = tmp_path / "demo.log"
    samples = tmp_path / "samples"
    samples.mkdir()
    write_wav(samples / "long.wav", speechlike(3000.0))  # not at its end before the signal comes
    process = commands.start("demo", str(samples), log=log)
    try:
        # At work by then: a signal in the middle of an import can be lost.
        until(
            lambda: process.poll() is not None or "submitted" in log.read_text(), "the demo at work", PATIENCE
        )
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 130
        assert processes_of(tmp_path) == []
    finally:
        process.kill()
