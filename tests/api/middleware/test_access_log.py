"""What the log says of who asked for what, and that no secret is in it, in an answer or on a command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from ops.testbed.running_api import Live, file_job
from ops.testbed.waiting import PATIENCE, until
from spool.domain import key_id_of, mint_key
from spool.settings import load_settings
from spool.store import revoke_key
from tests.api.auth.keys import bearer, new_key
from tests.api.cli.commands import ROOT

CANARY = "canary7f3a"


def test_who_did_what_is_in_the_log(live: Live, http: httpx.Client, recordings: Path) -> None:
    key, revoked = (new_key(live.services.database, "reels") for _ in range(2))
    with live.services.database.begin() as tx:
        revoke_key(tx, key_id_of(revoked) or "")
    with capture_logs() as logs:
        job = http.post("/v1/jobs", json=file_job(recordings), headers=bearer(key)).json()
        http.get(f"/v1/jobs/{job['id']}", headers=bearer(key))
        http.get("/v1/workers", headers=bearer(key))
        http.get("/v1/jobs", headers=bearer(mint_key().text))
        http.get("/v1/jobs", headers=bearer(revoked))
        http.get("/healthz")

    told = [line for line in logs if line["event"] in ("answered", "refused")]
    known = {"key": key_id_of(key), "project": "reels", "address": "127.0.0.1"}
    assert [(line["method"], line["path"], line["status"], line["log_level"]) for line in told] == [
        ("POST", "/v1/jobs", 202, "info"),
        ("GET", f"/v1/jobs/{job['id']}", 200, "info"),
        ("GET", "/v1/workers", 403, "warning"),
        ("GET", "/v1/jobs", 401, "warning"),
        ("GET", "/v1/jobs", 401, "warning"),
    ]
    for line in told[:3]:
        assert {name: line[name] for name in known} == known
    assert [line["key"] for line in told[3:]] == [None, key_id_of(revoked)]
    assert key not in str(logs)


def test_without_keys_what_changes_something_is_in_the_log(
    live: Live, http: httpx.Client, recordings: Path
) -> None:
    with capture_logs() as logs:
        http.post("/v1/jobs", json=file_job(recordings))
        http.get("/v1/jobs")
    told = [line for line in logs if line["event"] == "answered"]
    assert [(line["method"], line["key"]) for line in told] == [("POST", "anybody")]


# Secrets

SECRETS = {
    "SPOOL_DATABASE_URL": f"postgresql://spool:{CANARY}-database@127.0.0.1:1/spool",
    "SPOOL_REDIS_URL": f"redis://:{CANARY}-redis@127.0.0.1:1/0",
    "SPOOL_S3_ACCESS_KEY_ID": f"{CANARY}-access-key-id",
    "SPOOL_S3_SECRET_ACCESS_KEY": f"{CANARY}-secret-access-key",
    "SPOOL_API_TOKEN": f"{CANARY}-token-of-the-operator",
    "SPOOL_API_KEY": f"{CANARY}-key-of-the-client",
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Every secret there is, and servers that do not answer: errors on all sides."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    places = {
        "SPOOL_HOME": str(tmp_path / "home"),
        "SPOOL_OBJECTS": "s3://spool",
        "SPOOL_S3_ENDPOINT_URL": "http://127.0.0.1:1",
        "SPOOL_SWEEP_SECONDS": "0.1",
        "PYTHONPATH": str(ROOT),
    }
    return kept | places | SECRETS


def test_no_setting_shows_a_secret(environ: dict[str, str]) -> None:
    settings = load_settings(environ)
    shown = f"{settings!r} {settings} {settings.model_dump()['api_token']} {settings.model_dump()['api_key']}"
    assert CANARY not in shown
    for name, secret in SECRETS.items():
        file = Path(environ["SPOOL_HOME"]).parent / "secret"
        file.write_text(f"{secret}\n")
        from_file = {key: value for key, value in environ.items() if key != name} | {
            f"{name}_FILE": str(file)
        }
        assert CANARY not in repr(load_settings(from_file))


@pytest.mark.integration
@pytest.mark.parametrize("as_json", ["true", "false"])
def test_no_secret_is_logged_answered_or_on_a_command_line(
    environ: dict[str, str], tmp_path: Path, as_json: str
) -> None:
    announced, log = tmp_path / "api.json", tmp_path / "api.log"
    command = [sys.executable, "-m", "api", "--port", "0", "--announce", str(announced)]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env=environ | {"SPOOL_LOG_JSON": as_json},
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )
    try:
        until(lambda: process.poll() is not None or announced.exists(), "the API", PATIENCE)
        assert process.poll() is None, log.read_text()
        answers = asked(json.loads(announced.read_text())["url"])
        arguments = Path(f"/proc/{process.pid}/cmdline")
        shown = arguments.read_text() if arguments.exists() else ""
        until(lambda: b"sweeper" in log.read_bytes(), "a try of database and broker", PATIENCE)
    finally:
        process.terminate()
        process.wait(60)

    assert {answer.status_code for answer in answers} >= {401, 503}
    told = log.read_text() + shown + "".join(f"{each.headers} {each.text}" for each in answers)
    assert "sweeper" in told
    assert CANARY not in told


def asked(url: str) -> list[httpx.Response]:
    """All kinds of requests that go wrong, with secrets in them."""
    known = bearer(SECRETS["SPOOL_API_TOKEN"])
    signed = {"source": f"https://example.org/a.wav?sig={CANARY}"}
    with httpx.Client(base_url=url, timeout=60) as http:
        return [
            http.get("/v1/jobs"),
            http.get("/v1/jobs", headers=bearer(f"{CANARY}-wrong")),
            http.get("/v1/jobs", headers={"Authorization": f"Basic {CANARY}"}),
            http.get("/v1/jobs", headers=bearer(mint_key().text)),
            http.get("/v1/jobs", headers=known),
            http.post("/v1/jobs", json=signed, headers=known),
            http.post("/v1/jobs", json={"source": f"https://u:{CANARY}@example.org/"}, headers=known),
            http.post("/v1/jobs", files={"file": ("a.wav", b"RIFF")}, headers=known),
            http.get("/readyz"),
        ]


@pytest.mark.integration
def test_a_worker_that_reaches_nothing_tells_no_secret(environ: dict[str, str], tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "worker.cli.main", "run"]
        process = subprocess.Popen(command, env=environ, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        until(
            lambda: process.poll() is not None or b"does not answer" in log.read_bytes(),
            "a complaint",
            PATIENCE,
        )
    finally:
        process.terminate()
        process.wait(60)
    assert "does not answer" in log.read_text()
    assert CANARY not in log.read_text()
