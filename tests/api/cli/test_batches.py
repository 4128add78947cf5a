"""`spool batch`, in this process, against the real server."""

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pydantic import SecretStr

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live
from ops.testbed.s3 import S3Server
from spool.settings import Settings


@pytest.fixture
def spool(
    live: Live, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(live.settings.home))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> tuple[str, str]:
        done = invoke(main, ["batch", *arguments])
        assert done.exit_code == code, done
        return done.stdout, done.stderr

    return run


def test_what_is_below_a_prefix_is_submitted_as_a_batch(
    settings: Settings,
    s3_server: S3Server,
    start_api: Callable[[Settings], Live],
    recordings: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = s3_server.client()
    client.create_bucket(Bucket="archive-of-calls")
    for name in ("calls/1.wav", "calls/2.wav", "calls/notes.txt", "others/3.wav"):
        client.put_object(Bucket="archive-of-calls", Key=name, Body=b"RIFF")
    client.close()
    reached = {
        "s3_endpoint_url": s3_server.endpoint,
        "s3_access_key_id": SecretStr(s3_server.access_key),
        "s3_secret_access_key": SecretStr(s3_server.secret_key),
    }
    live = start_api(settings.model_copy(update=reached))
    monkeypatch.setenv("SPOOL_URL", live.url)
    monkeypatch.setenv("SPOOL_HOME", str(settings.home))

    below = invoke(main, ["submit", "s3://archive-of-calls/calls/", "--tag", "box=7", "--json"])
    assert below.exit_code == 0, below
    assert json.loads(below.stdout)["counts"]["queued"] == 2
    assert "notes.txt: not audio" in below.stderr
    whole = invoke(main, ["submit", "s3://archive-of-calls", "--json"])
    lines = json.loads(whole.stdout)["lines"]
    assert (lines["accepted"], lines["unchanged"]) == (1, 2), whole
    mixed = invoke(main, ["submit", str(recordings), "s3://archive-of-calls/calls/"])
    assert mixed.exit_code == 2
    assert "Submit s3://archive-of-calls/calls/ by itself" in mixed.stderr


@pytest.fixture
def manifest(recordings: Path, tmp_path: Path) -> Path:
    source = (recordings / "reel 1.wav").as_uri()
    lines = [json.dumps({"source": source, "custom_id": f"reel {number}"}) for number in range(3)]
    path = tmp_path / "reels.jsonl"
    path.write_text("\n".join([*lines, "broken"]))
    return path


def test_a_batch_from_first_to_last(spool: Any, live: Live, manifest: Path, tmp_path: Path) -> None:
    asked = ("--json", "--tag", "box=7", "--project", "oral-history")
    out, err = spool("submit", str(manifest), *asked, code=1)
    assert "line 4: The line is not JSON" in err
    batch = json.loads(out)
    assert (batch["name"], batch["lines"]["accepted"]) == ("reels.jsonl", 3)
    jobs = [json.loads(line) for line in spool("results", batch["id"])[0].splitlines()]
    assert jobs[0]["tags"] == {"box": "7"}
    worker = live.work()
    worker.finish(jobs[0]["job"])
    worker.fail(jobs[1]["job"], "audio_empty", "nothing in it")

    assert batch["id"] in spool("status")[0]
    sheet = spool("status", batch["id"])[0]
    assert "1 done, 1 failed" in sheet
    assert "time left" in sheet
    assert "1 queued again" in spool("retry-failed", batch["id"])[0]
    cancelled = json.loads(spool("cancel", batch["id"], "--json")[0])
    assert cancelled["counts"]["cancelled"] == 2

    zipped = tmp_path / "all.zip"
    said = spool("download", batch["id"], "-o", str(zipped), "--format", "srt")
    assert (
        f"1 transcript saved to {zipped}" in said[0],
        "2 of 3 jobs have no transcript (missing.tsv" in said[1],
    ) == (
        True,
        True,
    )
    with ZipFile(zipped) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [f"{jobs[0]['custom_id']}.srt", "missing.tsv"]
        assert b"keep the light" in archive.read(archive.namelist()[0])
        missing = archive.read("missing.tsv").decode().splitlines()
    assert [line.split("\t")[1:3] for line in missing[1:]] == [[jobs[n]["job"], "cancelled"] for n in (1, 2)]
    assert not zipped.with_name("all.zip.part").exists()
    spool("download", batch["id"], "-o", str(zipped), "--format", "docx")
    with ZipFile(zipped) as archive, ZipFile(BytesIO(archive.read(archive.namelist()[0]))) as document:
        assert b"keep the light" in document.read("word/document.xml")

    kept = tmp_path / "results.jsonl"
    spool("results", batch["id"], "-o", str(kept), "--words", "--state", "done")
    (done,) = [json.loads(line) for line in kept.read_text().splitlines()]
    assert done["text"] == "keep the light"
    assert len(done["words"]) == 3
    assert not kept.with_name("results.jsonl.part").exists()
    watched = json.loads(spool("status", batch["id"], "--watch", "--json")[0])
    assert watched["state"] == "ended"
    assert "left" not in spool("status", batch["id"])[0]


def test_lines_without_an_id_of_their_own_give_files_their_recordings_names(
    spool: Any, live: Live, recordings: Path, tmp_path: Path
) -> None:
    source = (recordings / "reel 1.wav").as_uri()
    manifest = tmp_path / "reels.csv"
    manifest.write_text(f"source,name,custom_id\n{source},,\n{source},Interview with Zoë,\n{source},,a7\n")
    batch = json.loads(spool("submit", str(manifest), "--no-reuse", "--json")[0])
    worker = live.work()
    for line in spool("results", batch["id"])[0].splitlines():
        worker.finish(json.loads(line)["job"])
    names = ["reel 1.wav.txt", "Interview with Zoë.txt", "a7.txt"]
    spool("download", batch["id"], "-o", str(tmp_path / "all.zip"))
    with ZipFile(tmp_path / "all.zip") as archive:
        assert archive.namelist() == names
    spool("transcripts", batch["id"], "-o", str(tmp_path / "all"))
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted(names)


def test_what_goes_wrong_has_its_exit_code(spool: Any, manifest: Path, recordings: Path) -> None:
    assert "no file" in spool("submit", "gone.jsonl", code=2)[1]
    submitted, said = spool("submit", str(recordings))
    assert f"The server cannot read {recordings}. Its recordings are uploaded as separate jobs" in said
    assert "reel 1.wav" in submitted
    assert "choose from json, txt" in spool("transcripts", "bat_1", "-o", "x", "--format", "pdf", code=2)[1]
    assert "NAME=VALUE" in spool("submit", str(manifest), "--tag", "box", code=2)[1]
    refused = spool("submit", str(manifest), "--strict", code=4)[1]
    assert "no job was created" in refused
    assert "line 4: The line is not JSON" in refused
    assert "no batch" in spool("status", "bat_01JD5T9Q4X8K2M6N0P3R7S1V5W", code=4)[1]
    assert "no batch" in spool("results", "bat_01JD5T9Q4X8K2M6N0P3R7S1V5W", code=4)[1]


def test_a_folder_under_a_root_of_the_server(spool: Any, recordings: Path) -> None:
    out, _ = spool("submit", recordings.as_uri() + "/", "--json", "--no-reuse", "--name", "all")
    batch = json.loads(out)
    assert (batch["lines"]["accepted"], batch["reuse"], batch["name"]) == (1, False, "all")


def test_transcripts_become_files_below_the_folder_and_nowhere_else(
    spool: Any, live: Live, recordings: Path, tmp_path: Path
) -> None:
    source = (recordings / "reel 1.wav").as_uri()
    names = ["box 7/Grüße.wav", "../../away", "AWAY", "/", "x" * 200]
    manifest = tmp_path / "reels.jsonl"
    manifest.write_text("\n".join(json.dumps({"source": source, "custom_id": name}) for name in names))
    batch = json.loads(spool("submit", str(manifest), "--json")[0])["id"]
    worker = live.work()
    for line in spool("results", batch)[0].splitlines():
        worker.finish(json.loads(line)["job"])
    folder = tmp_path / "out" / "transcripts"
    forms = ("--format", "srt", "--format", "docx")
    assert "10 transcripts written" in spool("transcripts", batch, "-o", str(folder), *forms)[0]
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".srt", ".docx"}
    assert all(ZipFile(path).testzip() is None for path in folder.rglob("*.docx"))
    # Which of the two comes first is open.
    written = sorted(str(path.relative_to(folder)).casefold() for path in folder.rglob("*.srt"))
    assert [name for name in written if not name.startswith("job_")] == [
        "away.srt",
        "box 7/grüsse.wav.srt",
        "transcript.srt",
        f"{'x' * 80}.srt",
    ]
    assert len(written) == 5, "two names that a Mac takes for one are two files"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["transcripts"]
