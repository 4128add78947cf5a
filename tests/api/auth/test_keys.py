"""Keys as people use them: the first one, one that is revoked, the command that makes them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from api.cli.main import main
from ops.testbed.invoking import invoke
from ops.testbed.running_api import Live, file_job, problem
from ops.testbed.waiting import until
from spool.domain import key_id_of, mint_key
from spool.settings import Settings
from spool.store import Database, find_key, list_keys, revoke_key
from tests.api.auth.keys import admin_key, bearer, get, new_key, post
from tests.api.cli.commands import ROOT, Commands

PATIENCE = 120.0


def test_without_keys_loopback_is_open_and_from_the_first_one_on_it_is_not(
    live: Live, http: httpx.Client
) -> None:
    assert http.get("/v1/jobs").status_code == 200
    assert http.get("/v1/jobs", headers=bearer("anything")).status_code == 200

    key = new_key(live.services.database)

    until(lambda: http.get("/v1/jobs").status_code == 401)
    assert http.get("/v1/jobs", headers=bearer(key)).status_code == 200
    # The name in `Host` is free now, as behind a proxy
    assert http.get("/v1/jobs", headers=bearer(key) | {"Host": "spool.example"}).status_code == 200
    # And revoking the last key does not open the door again
    with live.services.database.begin() as tx:
        revoke_key(tx, key_id_of(key) or "")
    assert http.get("/v1/jobs").status_code == 401


def test_a_key_is_its_projects_from_its_first_moment(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    # Given a server that has not noticed yet that there are keys
    assert http.get("/v1/jobs").status_code == 200
    key = new_key(live.services.database, "reels")
    assert http.post("/v1/jobs", json=file_job(recordings), headers=bearer(key)).json()["project"] == "reels"
    problem(http.get("/v1/jobs", headers=bearer(mint_key().text)), 401, "unauthorized")


def test_a_revoked_key_opens_nothing_within_seconds(live: Live, http: httpx.Client) -> None:
    database = live.services.database
    key = new_key(database)
    assert http.get("/v1/jobs", headers=bearer(key)).status_code == 200

    with database.begin() as tx:
        revoke_key(tx, key_id_of(key) or "")

    until(lambda: http.get("/v1/jobs", headers=bearer(key)).status_code == 401)
    refused = http.get("/v1/jobs", headers=bearer(key))
    assert str(problem(refused, 401, "unauthorized")["detail"]) == f"The key {key_id_of(key)} was revoked."
    assert refused.headers["www-authenticate"] == "Bearer"


def test_its_last_use_is_noted_after_the_answer(live: Live, http: httpx.Client) -> None:
    key = new_key(live.services.database)
    assert http.get("/v1/jobs", headers=bearer(key)).status_code == 200

    def noted() -> bool:
        with live.services.database.read() as tx:
            found = find_key(tx, key_id_of(key) or "")
        return found is not None and found.used_at is not None

    until(noted)


def test_the_operators_token_is_an_admin_beside_the_keys(
    settings: Settings, start_api: Callable[[Settings], Live], recordings: Path
) -> None:
    token = "correct horse battery staple"
    live = start_api(settings.model_validate(settings.model_dump() | {"api_token": token}))
    key = new_key(live.services.database, "reels")
    url = f"{live.url}/v1/jobs"
    job = post(url, json=file_job(recordings), headers=bearer(key)).json()
    assert get(f"{url}/{job['id']}", headers=bearer(token)).status_code == 200
    assert get(f"{live.url}/v1/workers", headers=bearer(token)).status_code == 200
    problem(get(url), 401, "unauthorized")


def test_a_database_that_does_not_answer_lets_nobody_in(
    settings: Settings, start_api: Callable[[Settings], Live], tmp_path: Path
) -> None:
    live = start_api(settings)
    key = new_key(live.services.database)
    key_cache = live.services.key_cache
    until(lambda: key_cache.requires_key)
    key_cache._database = Database(f"sqlite:///{tmp_path / 'nothing' / 'here.db'}")
    problem(get(f"{live.url}/v1/models", headers=bearer(key)), 503, "storage")
    problem(get(f"{live.url}/v1/models"), 401, "unauthorized")


# Sources


def test_a_key_reads_only_where_it_may(live: Live, http: httpx.Client, recordings: Path) -> None:
    (recordings / "mine").mkdir()
    (recordings / "mine" / "a.wav").write_bytes(b"RIFF")
    (recordings / "mine-too.wav").write_bytes(b"RIFF")
    (recordings / "mine" / "out.wav").symlink_to(recordings / "reel 1.wav")
    beginnings = ["s3://archive/mine/", f"{recordings.as_uri()}/mine", "https://example.org/mine/"]
    own = bearer(new_key(live.services.database, sources=beginnings))

    def status(source: str) -> int:
        return http.post("/v1/jobs", json={"source": source}, headers=own).status_code

    taken = [
        "s3://archive/mine/a.wav",
        f"{recordings.as_uri()}/mine/a.wav",
        "https://example.org/mine/a.wav?s=1",
    ]
    assert [status(source) for source in taken] == [202] * 3
    refused = [
        "s3://archive/other/a.wav",
        "s3://archive/mine",
        "s3://archived/mine/a.wav",
        f"{recordings.as_uri()}/reel%201.wav",
        f"{recordings.as_uri()}/mine-too.wav",
        f"{recordings.as_uri()}/mine/../reel%201.wav",
        f"{recordings.as_uri()}/mine/out.wav",
        "https://example.org/other.wav",
        "https://example.org/mine/../other.wav",
        "https://example.org/mine/%2e%2E/other.wav",
        "https://example.org:8443/mine/a.wav",
        "https://example.org.evil.example/mine/a.wav",
    ]
    assert [(source, status(source)) for source in refused] == [(source, 403) for source in refused]
    # A batch too: by line, by folder, by manifest
    lines = f'{{"source": "{taken[1]}"}}\n{{"source": "{refused[3]}"}}\n'
    kind = {"Content-Type": "application/x-ndjson"}
    batch = http.post("/v1/batches", content=lines, headers=own | kind).json()
    assert (batch["lines"]["accepted"], batch["bad_lines"][0]["code"]) == (1, "source_forbidden")
    for place in ("/", "/../recordings/", "/list.jsonl"):
        (recordings / "list.jsonl").write_text(lines)
        asked = http.post("/v1/batches", json={"source": f"{recordings.as_uri()}{place}"}, headers=own)
        problem(asked, 403, "source_forbidden")
    inside = http.post("/v1/batches", json={"source": f"{recordings.as_uri()}/mine/"}, headers=own).json()
    assert inside["lines"]["accepted"] == 1


def test_what_spool_keeps_is_nobodys_source(
    settings: Settings, start_api: Callable[[Settings], Live], recordings: Path
) -> None:
    # Given a root that holds Spool's own folders too
    live = start_api(settings.model_copy(update={"source_roots": (recordings.parent,)}))
    url, other = f"{live.url}/v1/jobs", bearer(new_key(live.services.database, "beta"))
    upload = post(url, files={"file": ("a.wav", b"RIFF")}, headers=other).json()
    kept = live.settings.objects_folder
    assert kept is not None
    own = bearer(new_key(live.services.database, "alpha"))
    (recordings / "link.wav").symlink_to(kept / upload["source"]["uri"])

    for source in ((kept / upload["source"]["uri"]).as_uri(), (recordings / "link.wav").as_uri()):
        problem(post(url, json={"source": source}, headers=own), 403, "source_forbidden")


def test_the_bucket_that_spool_keeps_is_nobodys_source(
    settings: Settings, start_api: Callable[[Settings], Live]
) -> None:
    live = start_api(
        settings.model_copy(update={"objects": "s3://spool/kept", "s3_endpoint_url": "http://[::1]:1"})
    )
    for source, status in (
        ("s3://spool/kept/jobs/job_01JD5T9Q4X8K2M6N0P3R7S1V5W/source", 403),
        ("s3://spool/archive/a.wav", 202),
        ("s3://spool/kept-elsewhere/a.wav", 202),
    ):
        assert post(f"{live.url}/v1/jobs", json={"source": source}).status_code == status, source


# The command


@pytest.fixture
def commands(settings: Settings, live: Live) -> Commands:
    settings.home.mkdir(exist_ok=True)
    return Commands(
        settings.home, {"SPOOL_DATABASE_URL": settings.database_url, "SPOOL_URL": live.url, "COLUMNS": "200"}
    )


def test_the_command_makes_lists_and_revokes_keys(commands: Commands) -> None:
    def listed(*arguments: str) -> str:
        return invoke(main, ["keys", "list", *arguments], env=commands.environ).stdout

    assert "no keys" in listed()
    made = commands.run("keys", "create", "--name", "Zoë", "--project", "reels", "--expires", "90d")
    key = made.stdout.strip()
    key_id = key_id_of(key)
    assert key_id is not None
    assert "not shown again" in made.stderr
    assert key not in made.stderr
    shown = listed()
    assert key_id in shown
    (told,) = json.loads(listed("--json"))
    assert (told["name"], told["scopes"]) == ("Zoë", ["read", "submit"])
    assert (told["id"], told["project"], told["state"], told["sources"]) == (key_id, "reels", "alive", None)
    assert key[33:] not in shown + json.dumps(told)
    assert "sha256" not in told

    assert "revoked" in commands.run("keys", "revoke", key_id).stdout
    assert json.loads(listed("--json"))[0]["state"] == "revoked"
    assert "no key" in commands.run("keys", "revoke", "key_nothing", code=1).stderr


def test_a_command_takes_its_key_from_the_environment_or_a_file(
    commands: Commands, live: Live, recordings: Path
) -> None:
    key = new_key(live.services.database, "reels")
    client = Commands(commands.home, commands.extra | {"SPOOL_API_KEY": key})
    submitted = client.run("submit", str(recordings / "reel 1.wav"), "--json")
    assert json.loads(submitted.stdout)[0]["project"] == "reels"
    assert "needs an API key: export SPOOL_API_KEY=" in commands.run("status", code=4).stderr
    refused = commands.run("submit", str(recordings), code=4).stderr
    assert refused.count("needs an API key: export SPOOL_API_KEY=") == 1
    assert "Bearer" not in refused
    wrong = Commands(commands.home, commands.extra | {"SPOOL_API_KEY": f"{key}x"})
    assert "key is invalid. Set a valid one: export SPOOL_API_KEY=" in wrong.run("status", code=4).stderr
    file = commands.home / "key"
    file.write_text(f"{key}\n")
    by_file = Commands(commands.home, commands.extra | {"SPOOL_API_KEY_FILE": str(file)})
    assert "reel 1.wav" in by_file.run("status").stdout
    assert "scope admin" in client.run("workers", code=4).stderr


def test_what_the_command_does_not_take(commands: Commands, live: Live) -> None:
    create = ["keys", "create", "--name", "a"]
    for arguments, words in (
        (["--scope", "admin", "--project", "reels"], "has no project"),
        (["--scope", "read"], "needs one"),
        (["--project", "a/b"], "--project"),
        (["--project", "reels", "--expires", "soon"], "--expires"),
        (["--project", "reels", "--expires", "2020-01-01"], "past"),
        (["--project", "reels", "--source", "/archive"], "--source"),
    ):
        result = invoke(main, create + arguments, env=commands.environ)
        assert result.exit_code == 2, arguments
        assert words in result.stderr
    with live.services.database.read() as tx:
        assert list_keys(tx) == []


def test_another_address_is_served_once_there_is_a_key(
    commands: Commands, live: Live, tmp_path: Path
) -> None:
    environ = commands.environ | {"SPOOL_API_HOST": "0.0.0.0", "SPOOL_API_PORT": "0"}
    announced = tmp_path / "announced.json"
    command = [sys.executable, "-W", "error", "-m", "api", "--announce", str(announced)]
    refused = subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert refused.returncode == 2
    assert "Create a key first with `spool keys create`" in refused.stderr

    key = admin_key(live.services.database)
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL, cwd=ROOT)
    try:
        until(announced.exists)
        url = json.loads(announced.read_text())["url"]
        assert get(f"{url}/v1/jobs").status_code == 401
        assert get(f"{url}/v1/jobs", headers=bearer(key)).status_code == 200
    finally:
        process.terminate()
        assert process.wait(PATIENCE) == 0
