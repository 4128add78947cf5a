"""Watched folders and buckets: every recording is submitted once, also after a kill, and nothing is lost."""

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import func, select, update

from api.cli.main import main
from api.watching.watcher import SourceWatcher
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, problem
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.domain import Scope
from spool.ids import new_id
from spool.settings import Settings
from spool.store import SourceChange, change_source, get_source, mark_places, seconds_from_now, take_turn
from spool.tables import jobs, source_items, source_marks, sources
from tests.api.auth.keys import new_key, post

pytestmark = pytest.mark.integration
AUDIO = b"RIFF" + bytes(4) + b"WAVE" + bytes(32)
OLD = 1_700_000_000


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.watching.watcher.LOOK_S", 0.02)


@pytest.fixture
def live(request: pytest.FixtureRequest, settings: Settings, start_api: Callable[[Settings], Live]) -> Live:
    changed: dict[str, Any] = {}
    if getattr(request, "param", "") == "postgresql":
        changed["database_url"] = request.getfixturevalue("postgres_url")
    if "bucket" in request.fixturenames:
        server: S3Server = request.getfixturevalue("s3_server")
        keys = {"s3_access_key_id": server.access_key, "s3_secret_access_key": server.secret_key}
        changed |= {"s3_endpoint_url": server.endpoint} | {k: SecretStr(v) for k, v in keys.items()}
    return start_api(settings.model_copy(update=changed))


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    name = new_id("in").lower().replace("_", "-")
    s3_server.client().create_bucket(Bucket=name)
    return name


@pytest.fixture
def clock(http: httpx.Client, live: Live) -> Callable[[str], dict[str, Any]]:
    """Has a source listed to its end, and returns it."""

    def listed(source_id: str) -> dict[str, Any]:
        def shown() -> dict[str, Any]:
            answer = http.get(f"/v1/sources/{source_id}")
            while answer.status_code == 503:  # a process that stands still for long loses its transaction
                answer = http.get(f"/v1/sources/{source_id}")
            return dict(answer.json())

        until(lambda: _idle(live, source_id))
        before = shown()
        assert post(f"{live.url}/v1/sources/{source_id}/check").status_code == 200
        until(lambda: (shown()["listed_at"], shown()["error"]) != (before["listed_at"], before["error"]))
        until(lambda: _idle(live, source_id))
        return shown()

    return listed


def _idle(live: Live, source_id: str) -> bool:
    with live.services.database.read() as tx:
        source = get_source(tx, source_id)
    return source.lease_owner is None and (source.listed_at is not None or source.error is not None)


def watched(live: Live, address: str, **more: Any) -> str:
    """A new source whose files settle at once, unless `more` says otherwise."""
    answer = post(f"{live.url}/v1/sources", json={"source": address, "settle_seconds": 0, **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def items(http: httpx.Client, source_id: str, state: str) -> list[str]:
    page = http.get(f"/v1/sources/{source_id}/items", params={"state": state}).json()
    return sorted(item["path"] for item in page["items"])


def names(http: httpx.Client) -> list[str]:
    return sorted(job["name"] for job in http.get("/v1/jobs").json()["items"])


def write(path: Path, data: bytes = AUDIO, modified: float = OLD) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (modified, modified))


both = pytest.mark.parametrize("live", ["sqlite", "postgresql"], indirect=True)


@both
def test_a_folder_is_submitted_once_and_what_changes_again(
    live: Live, http: httpx.Client, recordings: Path, clock: Callable[[str], dict[str, Any]]
) -> None:
    (recordings / "reel 1.wav").unlink()
    write(recordings / "a.wav")
    write(recordings / "1974" / "b.flac")
    write(recordings / "notes.txt", b"not audio")
    write(recordings / "._a.wav")
    source = watched(live, f"{recordings.as_uri()}/", tags={"box": "7"}, options={"decoder": "beam"})
    until(lambda: _idle(live, source))
    shown = http.get(f"/v1/sources/{source}").json()
    assert shown["state"] == "watching"
    assert shown["counts"] == {"taken": 2, "skipped": 2, "settling": 0, "refused": 0}
    assert shown["files"] == 4
    assert items(http, source, "taken") == ["1974/b.flac", "a.wav"]
    assert items(http, source, "skipped") == ["._a.wav", "notes.txt"]
    assert names(http) == ["a.wav", "b.flac"]
    job = http.get("/v1/jobs", params={"name": "b.flac"}).json()["items"][0]
    assert (job["custom_id"], job["tags"], job["batch"]) == ("1974/b.flac", {"box": "7"}, None)
    assert job["options"]["decoder"] == "beam"
    taken = http.get(f"/v1/sources/{source}/items", params={"state": "taken"}).json()["items"]
    assert job["id"] in [item["job"] for item in taken]
    until(lambda: live.waiting() == 2, "the hints, which are sent after the commit")

    # Nothing new, however often; a file that changed is a new version
    assert clock(source)["counts"] == shown["counts"]
    write(recordings / "a.wav", AUDIO + b"more")
    assert clock(source)["counts"] == {"taken": 3, "skipped": 2, "settling": 0, "refused": 0}
    assert names(http) == ["a.wav", "a.wav", "b.flac"]

    # The folder goes away: said, nothing lost, and taken up again by itself
    gone = recordings.with_name("away")
    recordings.rename(gone)
    failing = clock(source)
    assert failing["state"] == "failing"
    assert "There is no folder" in failing["error"]
    assert failing["counts"]["taken"] == 3
    write(gone / "late.wav")
    gone.rename(recordings)
    back = clock(source)
    assert (back["state"], back["error"], back["failing_since"]) == ("watching", None, None)
    assert names(http) == ["a.wav", "a.wav", "b.flac", "late.wav"]


@pytest.mark.parametrize("ahead", [-OLD, -300.0, 7200.0], ids=["kept", "behind", "ahead"])
def test_a_file_settles_by_when_it_was_seen_whatever_time_it_has(
    live: Live, http: httpx.Client, recordings: Path, clock: Callable[[str], dict[str, Any]], ahead: float
) -> None:
    modified = OLD if ahead == -OLD else time.time() + ahead
    write(recordings / "reel 1.wav", modified=modified)
    source = watched(live, f"{recordings.as_uri()}/", settle_seconds=None)
    until(lambda: _idle(live, source))
    assert items(http, source, "settling") == ["reel 1.wav"]
    assert clock(source)["counts"]["taken"] == 0
    wait_unchanged(live)
    # It has grown meanwhile, and waits anew; of one that grows there is one row
    write(recordings / "reel 1.wav", AUDIO * 2, modified)
    assert clock(source)["counts"] == {"taken": 0, "settling": 1, "skipped": 0, "refused": 0}
    # Another process goes on where the first one was
    wait_unchanged(live)
    post(f"{live.url}/v1/sources/{source}/pause")
    with live.services.database.begin() as tx:
        change_source(tx, source, SourceChange(paused=False))
    watcher = SourceWatcher(live.services)
    watcher.start()
    until(lambda: items(http, source, "taken") == ["reel 1.wav"])
    watcher.stop()
    assert names(http) == ["reel 1.wav"]


def wait_unchanged(live: Live, seconds: float = 31) -> None:
    """Let the clock go on for the files that were seen."""
    with live.services.database.begin() as tx:
        tx.execute(update(source_items).values(created_at=seconds_from_now(-seconds)))


def test_a_source_is_listed_again_as_soon_as_its_files_can_have_settled(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    write(recordings / "reel 1.wav")
    source = watched(live, f"{recordings.as_uri()}/", every_seconds=86400, settle_seconds=2)
    until(lambda: items(http, source, "taken") == ["reel 1.wav"])
    until(lambda: _idle(live, source))
    shown = http.get(f"/v1/sources/{source}").json()
    assert datetime.fromisoformat(shown["next_listing_at"]) - datetime.now(UTC) > timedelta(hours=23)


def test_an_object_settles_by_when_it_was_listed(
    live: Live, http: httpx.Client, s3_server: S3Server, bucket: str, clock: Callable[[str], dict[str, Any]]
) -> None:
    s3_server.client().put_object(Bucket=bucket, Key="in/a.wav", Body=AUDIO)
    source = watched(live, f"s3://{bucket}/in", settle_seconds=30)
    until(lambda: _idle(live, source))
    with live.services.database.begin() as tx:  # a notification brings no file forward that has not settled
        mark_places(tx, source, ["a.wav"])
    until(lambda: not _marked(live, source))
    assert items(http, source, "settling") == ["a.wav"]
    assert get_due(live, source) - datetime.now(UTC) < timedelta(seconds=31)
    wait_unchanged(live)
    assert clock(source)["counts"] == {"taken": 1, "settling": 0, "skipped": 0, "refused": 0}


def _marked(live: Live, source_id: str) -> int:
    with live.services.database.read() as tx:
        count = select(func.count()).select_from(source_marks).where(source_marks.c.source_id == source_id)
        return tx.scalar(count) or 0


@both
def test_a_bucket_and_its_notifications_never_submit_twice(
    live: Live,
    http: httpx.Client,
    s3_server: S3Server,
    bucket: str,
    clock: Callable[[str], dict[str, Any]],
) -> None:
    client = s3_server.client()
    client.put_object(Bucket=bucket, Key="in/a b.wav", Body=AUDIO)
    client.put_object(Bucket=bucket, Key="in/unnamed", Body=AUDIO)
    client.put_object(Bucket=bucket, Key="in/list.csv", Body=b"a,b")
    client.put_object(Bucket=bucket, Key="other/c.wav", Body=AUDIO)
    source = watched(live, f"s3://{bucket}/in")
    until(lambda: _idle(live, source))
    assert items(http, source, "taken") == ["a b.wav", "unnamed"]
    assert items(http, source, "skipped") == ["list.csv"]

    client.put_object(Bucket=bucket, Key="in/new one.wav", Body=AUDIO)

    def notify(*keys: str, event: str = "s3:ObjectCreated:Put") -> int:
        records = [
            {"eventName": event, "s3": {"bucket": {"name": bucket}, "object": {"key": key, "size": 44}}}
            for key in keys
        ]
        answer = post(
            f"{live.url}/v1/sources/notifications",
            json={"EventName": event, "Key": f"{bucket}/{keys[0]}", "Records": records},
        )
        assert answer.status_code == 202, answer.text
        return int(answer.json()["marked"])

    listed_at = http.get(f"/v1/sources/{source}").json()["listed_at"]
    assert notify("in/new+one.wav", "in/a+b.wav", "in/nothing.wav", "other/c.wav") == 3
    until(lambda: "new one.wav" in items(http, source, "taken"))
    assert http.get(f"/v1/sources/{source}").json()["listed_at"] == listed_at, (
        "only the marked were looked at"
    )
    assert notify("in/a+b.wav", event="s3:ObjectRemoved:Delete") == 0
    assert clock(source)["counts"] == {"taken": 3, "skipped": 1, "settling": 0, "refused": 0}
    client.put_object(Bucket=bucket, Key="in/a b.wav", Body=AUDIO + b"corrected")
    assert clock(source)["counts"]["taken"] == 4
    problem(post(f"{live.url}/v1/sources/notifications", json={"Records": [{}]}), 422, "invalid_request")


def test_sns_shows_its_key_as_a_password_and_confirms_nothing_by_itself(
    live: Live, http: httpx.Client
) -> None:
    text = new_key(live.services.database, "default", (Scope.SUBMIT,))
    url = f"{live.url}/v1/sources/notifications"
    until(lambda: httpx.post(url, json={"Records": []}).status_code == 401)
    refused = httpx.post(url, json={"Records": []})
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="spool"')
    assert httpx.post(url, json={"Records": []}, auth=("spool", f"{text}x")).status_code == 401
    assert httpx.get(f"{live.url}/v1/sources", auth=("spool", text)).status_code == 401
    topic = "arn:aws:sns:eu-central-1:123456789012:incoming"
    body = {
        "Type": "SubscriptionConfirmation",
        "TopicArn": topic,
        "Token": "2336412f37",
        "SubscribeURL": f"{live.url}/healthz",
    }
    headers = {"Content-Type": "text/plain; charset=UTF-8"}
    answer = httpx.post(url, content=json.dumps(body), headers=headers, auth=("spool", text))
    assert (answer.status_code, answer.json()) == (202, {"marked": 0, "to_confirm": [topic]})


@both
def test_two_watchers_and_a_killed_one_submit_each_recording_once(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    live_watchers = [SourceWatcher(live.services) for _ in range(3)]
    write(recordings / "reel 1.wav")
    for number in range(20):
        write(recordings / f"{number:02d}.wav")
    source = watched(live, f"{recordings.as_uri()}/")
    until(lambda: _idle(live, source))
    with live.services.database.begin() as tx:  # a process took it, and died
        tx.execute(update(sources).values(due_at=seconds_from_now(-1)))
        assert take_turn(tx, "wat_dead") is not None
        assert take_turn(tx, "wat_other") is None
        tx.execute(update(sources).values(lease_until=seconds_from_now(-1)))
    write(recordings / "20.wav")
    for watcher in live_watchers:
        watcher.start()
    until(lambda: _idle(live, source) and len(items(http, source, "taken")) == 22)
    for watcher in live_watchers:
        watcher.stop()
    with live.services.database.read() as tx:
        assert tx.scalar(select(func.count()).select_from(jobs)) == 22
        distinct = select(func.count(jobs.c.source_uri.distinct()))
        assert tx.scalar(distinct) == 22


def test_it_is_paused_resumed_and_removed_and_its_jobs_stay(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    write(recordings / "reel 1.wav")
    source = watched(live, f"{recordings.as_uri()}/", name="Incoming")
    until(lambda: _idle(live, source))
    again = post(f"{live.url}/v1/sources", json={"source": recordings.as_uri()})
    assert source in str(problem(again, 409, "conflict")["detail"])
    assert post(f"{live.url}/v1/sources/{source}/pause").json()["state"] == "paused"
    problem(post(f"{live.url}/v1/sources/{source}/check"), 409, "conflict")
    write(recordings / "b.wav")
    assert post(f"{live.url}/v1/sources/{source}/resume").json()["state"] == "watching"
    until(lambda: len(names(http)) == 2)
    assert [each["name"] for each in http.get("/v1/sources").json()["items"]] == ["Incoming"]
    until(lambda: _idle(live, source))
    assert http.delete(f"/v1/sources/{source}").status_code == 204
    problem(http.get(f"/v1/sources/{source}"), 404, "not_found")
    assert len(names(http)) == 2


def test_its_interval_and_model_are_changed_for_what_comes(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    write(recordings / "reel 1.wav")
    source = watched(live, f"{recordings.as_uri()}/", every_seconds=7 * 86400, options={"decoder": "greedy"})
    until(lambda: _idle(live, source))
    later = http.get(f"/v1/sources/{source}").json()["next_listing_at"]
    problem(http.patch(f"/v1/sources/{source}", json={"options": {"beam": 99}}), 422, "invalid_request")
    problem(http.patch(f"/v1/sources/{source}", json={"options": {"model": "absent"}}), 422, "unknown_model")
    problem(http.patch(f"/v1/sources/{source}", json={"every_seconds": 1}), 422, "invalid_request")
    problem(http.patch(f"/v1/sources/{source}", json={"source": "s3://b/"}), 422, "invalid_request")
    unchanged = http.get(f"/v1/sources/{source}").json()
    assert (unchanged["every_seconds"], unchanged["options"]) == (7 * 86400, {"decoder": "greedy"})
    change = ["--every", "10m", "--beam", "2", "--decoder", "beam"]
    assert "every 600 s" in invoke(main, ["sources", "change", source, *change, "--url", live.url]).stdout
    changed = http.patch(f"/v1/sources/{source}", json={"name": "Tapes", "paused": True}).json()
    assert (changed["name"], changed["state"], changed["every_seconds"]) == ("Tapes", "paused", 600)
    assert changed["options"] == {"decoder": "beam", "beam": 2}
    assert get_due(live, source) < datetime.fromisoformat(later)
    write(recordings / "b.wav")
    assert http.patch(f"/v1/sources/{source}", json={"paused": False}).json()["state"] == "watching"
    until(lambda: len(names(http)) == 2)
    options = {job["name"]: job["options"] for job in http.get("/v1/jobs").json()["items"]}
    assert [options[name]["decoder"] for name in ("reel 1.wav", "b.wav")] == ["greedy", "beam"]
    text = http.get("/metrics").text
    assert 'spool_sources{state="watching"} 1.0' in text
    assert 'spool_source_files{state="taken"} 2.0' in text


def get_due(live: Live, source_id: str) -> datetime:
    with live.services.database.read() as tx:
        return get_source(tx, source_id).due_at


def test_what_may_not_be_watched_is_refused_by_name(live: Live, recordings: Path, tmp_path: Path) -> None:
    def refused(status: int, code: str, **body: Any) -> str:
        return str(problem(post(f"{live.url}/v1/sources", json=body), status, code)["detail"])

    assert "SPOOL_SOURCE_ROOTS" in refused(403, "source_forbidden", source=tmp_path.parent.as_uri())
    refused(422, "source_missing", source=f"{recordings.as_uri()}/nothing/")
    refused(422, "invalid_request", source="https://example.org/")
    refused(422, "invalid_request", source="s3://UPPER/")
    here = f"{recordings.as_uri()}/"
    refused(422, "unknown_model", source=here, options={"model": "nobody-has-it"})
    assert "beam" in refused(422, "invalid_request", source=here, options={"beam": 99})
    refused(422, "invalid_request", source=here, every_seconds=1)
    output = {"prefix": "s3://somebody/", "formats": ["txt"]}
    assert "SPOOL_OUTPUT_PREFIXES" in refused(403, "source_forbidden", source=here, output=output)
