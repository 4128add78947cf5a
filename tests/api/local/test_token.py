"""The local token: in the home, for its owner alone, shared by the servers that run there and no others."""

import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import httpx

import migrations
from api.local.token import FILE, LocalToken, local_token
from tests.api.cli.commands import ROOT


def test_servers_that_run_together_share_it_and_the_next_one_has_another(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert local_token(home) is None
    with LocalToken(home) as first, LocalToken(home) as second:
        assert first == second == local_token(home)
        assert len(first) >= 40
        assert stat.S_IMODE((home / FILE).stat().st_mode) == 0o600
    assert local_token(home) is None, "whoever has the address now is not shown it"
    with LocalToken(home) as third:
        assert third != first
        assert local_token(home) == third


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("known to others")
    (tmp_path / FILE).chmod(0o644)
    with LocalToken(tmp_path) as token:
        assert token != "known to others"
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_server_without_keys_answers_its_owner_alone(tmp_path: Path, redis_url: str) -> None:
    home, announced = tmp_path / "home", tmp_path / "api.json"
    home.mkdir()
    migrations.upgrade(f"sqlite:///{home / 'spool.db'}")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}
    environ = kept | {"SPOOL_HOME": str(home), "SPOOL_REDIS_URL": redis_url, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", "-m", "api", "--port", "0", "--announce", str(announced)]
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not announced.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with httpx.Client(base_url=json.loads(announced.read_text())["url"], timeout=60) as client:
            token = local_token(home)
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/jobs").status_code == 401
            assert client.get("/v1/jobs", headers={"Authorization": "Bearer x"}).status_code == 401
            assert client.get("/v1/jobs", headers={"Authorization": f"Bearer {token}"}).status_code == 200
            assert client.get("/v1/workers", headers={"Authorization": f"Bearer {token}"}).status_code == 200
    finally:
        process.terminate()
        process.wait(60)
