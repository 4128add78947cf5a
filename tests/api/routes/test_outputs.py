"""Transcripts reach the folders and buckets that jobs name, whole and once, and again when they change."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ops.testbed.running_api import FakeWorker, Live, file_job, problem, transcript_of
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.audit import audit
from spool.domain import Content
from spool.formats import render
from spool.ids import new_id
from spool.settings import SecretBox, Settings
from spool.store import get_connection, mark_deleted, read_events, reencrypt_connections
from spool.tables import exports, jobs
from tests.api.auth.keys import post

pytestmark = pytest.mark.integration
SECRET = "their-secret-access-key"


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spool.background.exporter.LOOK_S", 0.02)
    monkeypatch.setattr("spool.background.exporter._SILENT_S", 0.05)
    monkeypatch.setattr("spool.domain.webhooks.RETRY_SECONDS", (0.05,) * 7)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    folder = (tmp_path / "theirs").resolve()
    folder.mkdir()
    return folder


@pytest.fixture
def live(
    request: pytest.FixtureRequest,
    settings: Settings,
    theirs: Path,
    start_api: Callable[[Settings], Live],
) -> Iterator[Live]:
    changed: dict[str, Any] = {"output_prefixes": (f"{theirs.as_uri()}/{{project}}/",)}
    if getattr(request, "param", "") == "postgresql":
        changed["database_url"] = request.getfixturevalue("postgres_url")
    return start_api(settings.model_copy(update=changed))  # type: ignore[return-value]


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    name = new_id("out").lower().replace("_", "-")
    s3_server.client().create_bucket(Bucket=name)
    return name


def submitted(live: Live, recordings: Path, output: dict[str, Any], **request: Any) -> str:
    answer = post(f"{live.url}/v1/jobs", json=file_job(recordings, output=output, **request))
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def shown(http: httpx.Client, job_id: str) -> dict[str, dict[str, Any]]:
    return {each["format"]: each for each in http.get(f"/v1/jobs/{job_id}").json()["exports"]}


def settled(http: httpx.Client, job_id: str) -> dict[str, dict[str, Any]]:
    until(lambda: (files := shown(http, job_id)) and all(f["state"] != "pending" for f in files.values()))
    return shown(http, job_id)


def clean(live: Live) -> bool:
    return not audit(live.services.database, None).counts["exported"]


def test_files_are_written_below_an_allowed_folder_and_again_when_names_change(
    live: Live, http: httpx.Client, recordings: Path, theirs: Path
) -> None:
    output = {"prefix": f"{theirs.as_uri()}/default/run 1/".replace(" ", "%20"), "formats": ["srt", "docx"]}
    job = submitted(live, recordings, output)
    assert http.get(f"/v1/jobs/{job}").json()["output"]["layout"] == "mirror"
    assert shown(http, job) == {}
    live.work().finish(job)
    files = settled(http, job)

    written = theirs / "default" / "run 1" / "reel 1.wav.srt"
    assert files["srt"]["state"] == files["docx"]["state"] == "written", files
    assert files["srt"]["uri"] == written.as_uri()
    assert written.read_text() == render(transcript_of(job, ("keep", "the", "light")), "srt")
    assert written.stat().st_mode & 0o044 == written.parent.stat().st_mode & 0o044
    assert sorted(path.name for path in written.parent.iterdir()) == ["reel 1.wav.docx", "reel 1.wav.srt"]
    assert clean(live)

    def reports() -> list[dict[str, int]]:
        with live.services.database.read() as tx:
            log = read_events(tx, 0, 100, job_id=job)
        return [event.data["files"] for event in log if event.type == "job.exported"]

    until(lambda: reports() == [{"written": 2}])

    # A person asks for them again: the same bytes under the next revision
    written.unlink()
    answer = http.post(f"/v1/jobs/{job}/exports", headers={"Idempotency-Key": "again"})
    assert answer.status_code == 202
    assert {each["revision"] for each in answer.json()["items"]} == {2}
    assert {each["state"] for each in settled(http, job).values()} == {"written"}
    assert written.exists()

    # A correction is written too
    words = {"first_word": 2, "last_word": 2, "text": "lamp"}
    http.post(f"/v1/jobs/{job}/edits", json=words).raise_for_status()
    assert {each["revision"] for each in settled(http, job).values()} == {3}
    assert "keep the lamp" in written.read_text()
    assert clean(live)


both = pytest.mark.parametrize("live", ["sqlite", "postgresql"], indirect=True)


@both
def test_two_recordings_of_one_name_never_share_a_file_and_a_newer_job_replaces_its_own(
    live: Live, http: httpx.Client, recordings: Path, theirs: Path
) -> None:
    output = {"prefix": f"{theirs.as_uri()}/default/", "formats": ["txt"], "layout": "flat"}
    (recordings / "b").mkdir()
    (recordings / "b" / "REEL 1.wav").write_bytes((recordings / "reel 1.wav").read_bytes())
    first = submitted(live, recordings, output)
    other = submitted(live, recordings, output, source=(recordings / "b" / "REEL 1.wav").as_uri())
    again = submitted(live, recordings, output)
    worker = live.work()
    worker.finish(other, ("other",))
    assert settled(http, other)["txt"]["uri"] == (theirs / "default" / "REEL 1.wav.txt").as_uri()
    worker.finish(again, ("newer",))
    second = theirs / "default" / f"{again} reel 1.wav.txt"
    assert settled(http, again)["txt"]["uri"] == second.as_uri()
    assert second.read_text() == "newer\n"

    # The first job of that recording ends last: its own name was never taken by the newer one
    worker.finish(first, ("older",))
    assert settled(http, first)["txt"]["state"] in {"written", "replaced"}
    assert second.read_text() == "newer\n"
    assert (theirs / "default" / "REEL 1.wav.txt").read_text() == "other\n"
    assert clean(live)


def test_an_older_job_of_a_recording_does_not_overwrite_a_newer_one(
    live: Live, http: httpx.Client, recordings: Path, theirs: Path
) -> None:
    output = {"prefix": f"{theirs.as_uri()}/default/", "formats": ["txt"]}
    old, new = (submitted(live, recordings, output) for _ in range(2))
    worker = live.work()
    worker.finish(new, ("new",))
    settled(http, new)
    worker.finish(old, ("old",))
    file = settled(http, old)["txt"]
    assert (file["state"], file["error"]) == (
        "replaced",
        "A newer job of the same recording writes this file.",
    )
    assert (theirs / "default" / "reel 1.wav.txt").read_text() == "new\n"


def test_a_connection_writes_to_their_bucket_and_its_secret_is_never_shown(
    live: Live, http: httpx.Client, recordings: Path, s3_server: S3Server, bucket: str
) -> None:
    request = {
        "name": "theirs",
        "endpoint": s3_server.endpoint,
        "prefix": f"s3://{bucket}/in",
        "key_id": s3_server.access_key,
        "secret": SECRET,
    }
    answer = post(f"{live.url}/v1/connections", json=request)
    assert answer.status_code == 201, answer.text
    assert SECRET not in answer.text + http.get("/v1/connections").text
    problem(post(f"{live.url}/v1/connections", json=request), 409, "conflict")
    with live.services.database.read() as tx:
        row = get_connection(tx, "default", "theirs")
    assert SECRET not in row.secret
    assert SECRET not in repr(row)
    assert live.services.secret_box.decrypt(row.secret) == SECRET

    output = {"prefix": f"s3://{bucket}/in/été (1)/", "formats": ["vtt", "json"], "connection": "theirs"}
    job = submitted(live, recordings, output)
    assert SECRET not in http.get(f"/v1/jobs/{job}").text
    live.work().finish(job)
    files = settled(http, job)
    assert {each["state"] for each in files.values()} == {"written"}, files
    body = s3_server.client().get_object(Bucket=bucket, Key="in/été (1)/reel 1.wav.vtt")["Body"].read()
    assert body.decode() == render(transcript_of(job, ("keep", "the", "light")), "vtt")

    other = SecretBox(("another key of more than 32 characters", "x"))
    with live.services.database.begin() as tx:
        assert reencrypt_connections(tx, other) == 0, "what no key reads stays"
    assert http.delete("/v1/connections/theirs").status_code == 204
    problem(http.delete("/v1/connections/theirs"), 404, "not_found")


def test_a_bucket_that_is_missing_is_tried_again_until_it_is_there(
    live: Live, http: httpx.Client, recordings: Path, s3_server: S3Server
) -> None:
    bucket = new_id("late").lower().replace("_", "-")
    keys = {"key_id": s3_server.access_key, "secret": SECRET, "endpoint": s3_server.endpoint}
    post(f"{live.url}/v1/connections", json={"name": "late", "prefix": f"s3://{bucket}/", **keys})
    output = {"prefix": f"s3://{bucket}/", "formats": ["txt"], "connection": "late"}
    job = submitted(live, recordings, output)
    live.work().finish(job)
    until(lambda: shown(http, job)["txt"]["error"])
    where = f"s3://{bucket}/ (connection late)"
    why = f"There is no bucket for s3://{bucket}/reel 1.wav.txt"
    assert http.get(f"/v1/jobs/{job}").json()["undelivered"] == (
        f"txt could not be written below {where}: {why}; it will be tried again."
    )
    assert clean(live)
    s3_server.client().create_bucket(Bucket=bucket)
    until(lambda: settled(http, job)["txt"]["state"] == "written" or http.post(f"/v1/jobs/{job}/exports"))
    until(lambda: shown(http, job)["txt"]["state"] == "written")
    detail = http.get(f"/v1/jobs/{job}").json()
    assert (detail["exports"][0]["error"], detail["undelivered"]) == (None, None)

    # Its connection is removed: the earlier file stays there, and the job says so
    assert http.delete("/v1/connections/late").status_code == 204
    assert http.post(f"/v1/jobs/{job}/exports").status_code == 202
    until(lambda: http.get(f"/v1/jobs/{job}").json()["undelivered"])
    said = http.get(f"/v1/jobs/{job}").json()["undelivered"]
    why = "Project default has no connection late; an earlier file is still there"
    assert said.startswith(f"txt could not be written below {where}: {why}; ")


def test_nothing_is_written_where_a_share_would_be_mounted_until_it_is(
    live: Live, http: httpx.Client, recordings: Path, theirs: Path
) -> None:
    output = {"prefix": f"{theirs.as_uri()}/default/box%204/", "formats": ["txt"]}
    job = submitted(live, recordings, output)
    theirs.rmdir()
    live.work().finish(job)
    until(lambda: shown(http, job).get("txt", {}).get("error"))
    assert http.get(f"/v1/jobs/{job}").json()["undelivered"] == (
        f"txt could not be written below {output['prefix']}: There is no folder {theirs}: mount its disk or "
        "share, or create the folder if it is new; it will be tried again."
    )
    assert not theirs.exists()
    theirs.mkdir()
    until(lambda: settled(http, job)["txt"]["state"] == "written" or http.post(f"/v1/jobs/{job}/exports"))
    until(lambda: shown(http, job)["txt"]["state"] == "written")
    assert (theirs / "default" / "box 4" / "reel 1.wav.txt").read_text() == "keep the light\n"
    assert http.get(f"/v1/jobs/{job}").json()["undelivered"] is None
    assert clean(live)


def test_what_is_not_allowed_is_refused_by_name_before_there_is_a_job(
    live: Live, http: httpx.Client, recordings: Path, theirs: Path, settings: Settings
) -> None:
    def refused(prefix: str, status: int, code: str, **output: Any) -> str:
        body = file_job(recordings, output={"prefix": prefix, "formats": ["txt"], **output})
        return str(problem(post(f"{live.url}/v1/jobs", json=body), status, code)["detail"])

    assert "SPOOL_OUTPUT_PREFIXES" in refused("file:///etc/", 403, "source_forbidden")
    assert "SPOOL_OUTPUT_PREFIXES" in refused(f"{theirs.as_uri()}/other/", 403, "source_forbidden")
    refused(f"{theirs.as_uri()}/default/../other/", 403, "source_forbidden")
    refused("s3://somebody/", 403, "source_forbidden")
    assert "own data" in refused(f"{settings.objects}/jobs/", 403, "source_forbidden")
    refused("https://example.org/", 422, "invalid_request")
    assert "no connection" in refused("s3://somebody/", 422, "invalid_request", connection="nobody")
    assert "layout" in refused(f"{theirs.as_uri()}/default/", 422, "invalid_request", layout="tree")
    assert "formats" in refused(f"{theirs.as_uri()}/default/", 422, "invalid_request", formats=["pdf"])
    assert http.get("/v1/jobs").json()["items"] == []

    # The batch's output is checked once, and mirrors the folder
    (recordings / "1974").mkdir()
    (recordings / "1974" / "b.wav").write_bytes((recordings / "reel 1.wav").read_bytes())
    body = {
        "source": f"{recordings.as_uri()}/",
        "output": {"prefix": f"{theirs.as_uri()}/default/", "formats": ["txt"]},
    }
    assert post(f"{live.url}/v1/batches", json=body).status_code == 202
    worker = live.work()
    for job in http.get("/v1/jobs").json()["items"]:
        worker.finish(job["id"])
    until(lambda: (theirs / "default" / "1974" / "b.wav.txt").exists())


@both
def test_a_link_out_of_the_folder_and_a_deleted_transcript_are_said_not_written(
    live: Live, http: httpx.Client, recordings: Path, theirs: Path, tmp_path: Path
) -> None:
    output = {"prefix": f"{theirs.as_uri()}/default/run/", "formats": ["txt"]}
    linked, deleted = (submitted(live, recordings, output, name=name) for name in "ab")
    (tmp_path / "elsewhere").mkdir()
    (theirs / "default").mkdir(parents=True)
    worker = FakeWorker(live.services)
    live.services.exporter.stop()
    worker.finish(linked)
    worker.finish(deleted)
    with live.services.database.begin() as tx:
        mark_deleted(tx, [deleted], Content.TRANSCRIPT, "retention")
    (theirs / "default" / "run").symlink_to(tmp_path / "elsewhere")
    exporter = type(live.services.exporter)(
        live.services.database, live.services.objects, live.settings, live.services.secret_box
    )
    exporter.run_once()
    assert "leads out of" in str(shown(http, linked)["txt"]["error"])
    assert shown(http, deleted)["txt"]["error"] == "The transcript was deleted."
    assert shown(http, deleted)["txt"]["state"] == "failed"
    assert not list((tmp_path / "elsewhere").iterdir())
    problem(post(f"{live.url}/v1/jobs/{deleted}/exports"), 410, "deleted")
    assert clean(live)

    # The audit misses a file that nobody would write
    with live.services.database.begin() as tx:
        tx.execute(exports.delete().where(exports.c.job_id == linked))
        assert tx.scalar(jobs.select().with_only_columns(jobs.c.output).where(jobs.c.id == linked))
    assert not clean(live)
