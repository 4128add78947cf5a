"""The documented fleet: compose's servers, a Mac by the installer, and a job as the README submits it.

Docker and macOS are stood in for, the rest is real: the environment of docker-compose.yml with the secrets
that the script writes, a worker by ops/mac/install.sh with the settings that the script prints for it,
PostgreSQL, Valkey with the written configuration, and S3 over HTTP.
"""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy import make_url

from ops.testbed.ports import free_port
from ops.testbed.postgres import PostgresServer, find_binaries
from ops.testbed.processes import ROOT
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.broker.embedded_redis import find_server
from tests.ops.a_mac import DEMO, Mac

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SAMPLES = ROOT / "samples/demo-tdt/digits"


@dataclass
class Servers:
    """What `docker compose up` starts, as processes of this machine."""

    folder: Path
    api_port: int = field(default_factory=free_port)
    broker_port: int = field(default_factory=free_port)
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)
    """Of the service `api`."""
    database_url: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.api_port}"

    def secret(self, name: str) -> Path:
        return self.folder / COMPOSE["secrets"][name]["file"]

    def write_secrets(self, *arguments: str) -> str:
        script = self.folder / "ops/images/secrets.sh"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes((ROOT / "ops/images/secrets.sh").read_bytes())
        return subprocess.run(["sh", script, *arguments], check=True, capture_output=True, text=True).stdout

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        log = (self.folder / f"{len(self.processes)}.log").open("wb")
        with log:
            self.processes.append(
                subprocess.Popen(command, env=environment, cwd=ROOT, stdout=log, stderr=log)
            )

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}


@pytest.fixture
def servers(tmp_path: Path, postgres: PostgresServer, s3_server: S3Server) -> Iterator[Servers]:
    """The API, migrated and healthy, over real servers; where compose says a service's name, its address."""
    servers = Servers(tmp_path / "checkout")
    servers.write_secrets()
    s3_server.client().create_bucket(Bucket="spool")
    conf = servers.secret("broker_conf")
    data = tmp_path / "broker"
    data.mkdir()
    conf.write_text(conf.read_text().replace("dir /data", f"dir {data}"))
    servers.start([find_server(), str(conf), "--port", str(servers.broker_port)], plain_environment())
    redis_url = servers.secret("redis_url").read_text()
    addresses = {
        "database_url": postgres.create_database("fleet"),
        "redis_url": redis_url.replace("broker:6379", f"127.0.0.1:{servers.broker_port}"),
    }
    environment = {
        name: value.replace("http://objects:7070", s3_server.endpoint)
        for name, value in COMPOSE["services"]["api"]["environment"].items()
    }
    for name, value in environment.items():
        if value.startswith("/run/secrets/"):
            secret = servers.secret(value.removeprefix("/run/secrets/"))
            secret.write_text(addresses.get(secret.name, secret.read_text()))
            environment[name] = str(secret)
    environment |= {"SPOOL_HOME": str(tmp_path / "api"), "SPOOL_API_PORT": str(servers.api_port)}
    environment = servers.environment = plain_environment() | environment
    servers.database_url = addresses["database_url"]
    for name in ("migrate", "api"):
        command = [sys.executable, *COMPOSE["services"][name]["command"][1:]]
        if name == "migrate":
            subprocess.run(command, env=environment, cwd=ROOT, check=True)
        else:
            servers.start(command, environment)
    try:
        until(lambda: _is_ready(servers.url), "the API is ready")
        yield servers
    finally:
        servers.stop()


def recipes() -> list[list[str]]:
    """What docs/operations.md says to type where compose runs, each as its words up to a redirection."""
    text = (ROOT / "docs/operations.md").read_text()
    block = text.partition("### Commands inside the stack")[2].partition("\n##")[0]
    typed = [shlex.split(line, comments=True) for line in block.splitlines() if line.startswith("    docker")]
    return [words[: words.index(">")] if ">" in words else words for words in typed]


def run_recipe(servers: Servers, words: list[str]) -> bytes:
    """What a command prints that a recipe runs in the container of a service."""
    assert words[:3] == ["docker", "compose", "exec"]
    service, *command = words[4:] if words[3] == "-T" else words[3:]
    environment = servers.environment
    if service == "database":
        # The container's own server, at the address and with the name that it has in this test.
        url = make_url(servers.database_url)
        environment = environment | {"PATH": f"{find_binaries()}:{environment['PATH']}"}
        command[-1] = (
            command[-1]
            .replace("/run/secrets/database_password", str(servers.secret("database_password")))
            .replace("127.0.0.1", str(url.query["host"]))
            .replace("-Fc spool", f"-Fc {url.database}")
        )
    else:
        assert (service, command[0]) == ("api", "spool")
        command = [sys.executable, "-m", "api.cli.main", *command[1:]]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=False, timeout=200)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr)
    return done.stdout


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz", timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def mac_settings(servers: Servers, s3: S3Server, file: Path) -> Path:
    """What `secrets.sh --for-a-mac` prints, with this test's addresses; Linux has no Metal."""
    printed = servers.write_secrets("--for-a-mac", "127.0.0.1")
    lines = dict(line.split("=", 1) for line in printed.splitlines())
    assert lines.pop("SPOOL_POOL") == "metal"
    lines |= {"SPOOL_DATABASE_URL": servers.secret("database_url").read_text(), "SPOOL_POOL": "studio"}
    lines["SPOOL_REDIS_URL"] = lines["SPOOL_REDIS_URL"].replace(":6379", f":{servers.broker_port}")
    lines["SPOOL_S3_ENDPOINT_URL"] = s3.endpoint
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return file


def test_a_job_as_the_readme_submits_it_comes_to_words(
    servers: Servers, s3_server: S3Server, mac: Mac, hub: Path, tmp_path: Path
) -> None:
    client = plain_environment() | {
        "SPOOL_URL": servers.url,
        "SPOOL_API_TOKEN_FILE": str(servers.secret("api_token")),
        "SPOOL_HOME": str(tmp_path / "client"),
    }

    def spool(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "api.cli.main", *arguments]
        return subprocess.run(
            command, env=client, cwd=ROOT, capture_output=True, text=True, check=False, timeout=200
        )

    recording = tmp_path / "reel.flac"
    recording.write_bytes(min(SAMPLES.glob("*.flac")).read_bytes())
    early = spool("submit", str(recording), "--json")
    assert early.returncode == 0, early.stderr
    (waiting,) = json.loads(early.stdout)
    assert (
        waiting["waiting_for"] == f"a worker with model {waiting['options']['model']}; no worker is running"
    )

    sha256 = hashlib.sha256((DEMO / "model.safetensors").read_bytes()).hexdigest()
    model = ("--model", "parakeet=owner/demo@v1", "--sha256", sha256, "--environment", sys.prefix)
    settings = mac_settings(servers, s3_server, tmp_path / "mac.env")
    done = mac.script("install", "--settings", str(settings), *model, HF_ENDPOINT=hub.as_uri())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no setting of Spool" not in (mac.app / "log/worker.log").read_text()

    until(lambda: spool("models", "default").stdout == "parakeet\n", "the installer's model is the default")
    submitted = spool("submit", str(recording), "--wait", "--json")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    (job,) = json.loads(submitted.stdout)
    assert (job["state"], job["options"]["model"], job["pool"]) == ("done", "parakeet", "studio")
    assert len(spool("transcript", job["id"]).stdout.split()) == job["words"] > 0

    def worker() -> dict[str, Any]:
        (only,) = json.loads(spool("workers", "--json").stdout)["items"]
        return dict(only)

    def facts() -> tuple[str, str, str]:
        (model,) = worker()["model_facts"]
        return model["name"], model["sha256"], model["family"]

    until(lambda: facts() == ("parakeet", sha256, "nemo"), "a heartbeat has said what the model is")
    assert (worker()["backend"], worker()["rtfx"] > 0) == ("cpu", True)

    keys, default, audited, dumped, copied = recipes()
    key = run_recipe(servers, keys).decode().strip()
    answer = httpx.get(f"{servers.url}/v1/jobs", headers={"Authorization": f"Bearer {key}"})
    assert (answer.status_code, len(answer.json()["items"])) == (200, 2)
    run_recipe(servers, default)
    assert b"no breaches" in run_recipe(servers, audited)
    dump = tmp_path / "spool.dump"
    dump.write_bytes(run_recipe(servers, dumped))
    listed = subprocess.run([find_binaries() / "pg_restore", "--list", dump], capture_output=True, check=True)
    assert b"TABLE DATA public jobs" in listed.stdout
    (volume,) = [word.partition(":")[0] for word in copied if word.endswith(":/objects:ro")]
    assert volume.removeprefix(f"{COMPOSE['name']}_") in COMPOSE["volumes"]

    removed = mac.script("uninstall")
    assert removed.returncode == 0, removed.stderr
