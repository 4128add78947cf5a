"""The documented fleet: compose's servers, a Mac by the installer, and a job as the README submits it.

Docker and macOS are stood in for, the rest is real: the environment of docker-compose.yml with the secrets
that the script writes, two APIs behind Caddy with compose's Caddyfile, the daily audit, a worker by
ops/mac/install.sh with the settings that the script prints for it, PostgreSQL, Valkey with the written
configuration, and S3 over HTTP.
"""

import hashlib
import json
import os
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
import soundfile
from sqlalchemy import make_url

from ops.testbed.compose import COMPOSE, SERVICES, read_env, write_secrets
from ops.testbed.ports import free_port
from ops.testbed.postgres import PostgresServer, find_binaries
from ops.testbed.processes import ROOT
from ops.testbed.s3 import S3Server
from ops.testbed.waiting import until
from spool.broker import find_server
from tests.live.guarded_s3 import Account, GuardedS3
from tests.ops.a_mac import DEMO, Mac

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

S3_KEYS = ("access_key_id", "secret_access_key")
SAMPLES = ROOT / "samples/demo-tdt/digits"


@dataclass
class Servers:
    """What `docker compose up` starts, as processes of this machine."""

    folder: Path
    postgres: PostgresServer
    objects: str
    """The address of the S3 server."""
    ports: dict[str, int] = field(
        default_factory=lambda: {
            name: free_port() for name in ("api", "api-2", "broker", "http", "tls", "proxy")
        }
    )
    processes: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    database_url: str = ""

    @property
    def url(self) -> str:
        """The proxy, without TLS."""
        return f"http://127.0.0.1:{self.ports['proxy']}"

    @property
    def tls_url(self) -> str:
        return f"https://localhost:{self.ports['tls']}"

    @property
    def authority(self) -> Path:
        """The certificate of the proxy's own CA."""
        return self.folder / "proxy/caddy/pki/authorities/local/root.crt"

    @property
    def token(self) -> str:
        return self.secret("api_token").read_text()

    def secret(self, name: str) -> Path:
        return self.folder / COMPOSE["secrets"][name]["file"]

    def environment(self, name: str) -> dict[str, str]:
        """What compose gives the service: the lines of .env, its own, and here other addresses."""
        told = read_env((self.folder / ".env").read_text()) | SERVICES[name].get("environment", {})
        for variable, value in told.items():
            if value.startswith("/run/secrets/"):
                told[variable] = str(self.secret(value.removeprefix("/run/secrets/")))
        told["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        told |= {"SPOOL_HOME": str(self.folder / name), "SPOOL_S3_ENDPOINT_URL": self.objects}
        if name in self.ports:
            told["SPOOL_API_PORT"] = str(self.ports[name])
        return plain_environment() | told

    def prepare(self) -> None:
        """Secrets, the database and the broker."""
        write_secrets(self.folder)
        self.database_url = self.postgres.create_database("fleet")
        self.secret("database_url").write_text(self.database_url)
        redis_url = self.secret("redis_url")
        port = self.ports["broker"]
        redis_url.write_text(redis_url.read_text().replace("broker:6379", f"127.0.0.1:{port}"))
        conf, data = self.secret("broker_conf"), self.folder / "broker"
        data.mkdir()
        conf.write_text(conf.read_text().replace("dir /data", f"dir {data}"))
        self._run("broker", [find_server(), str(conf), "--port", str(port)], plain_environment())
        until(lambda: b"Ready to accept" in (self.folder / "broker.log").read_bytes(), "the broker is ready")
        subprocess.run(SERVICES["migrate"]["command"], env=self.environment("migrate"), cwd=ROOT, check=True)

    def start(self, name: str) -> None:
        self._run(name, SERVICES[name]["command"], self.environment(name))

    def start_proxy(self) -> None:
        command = list(SERVICES["proxy"]["command"])
        (volume,) = [volume for volume in SERVICES["proxy"]["volumes"] if volume.endswith(":ro")]
        source, target, _ = volume.split(":")
        command[command.index(target)] = str(ROOT / source)
        addresses = {
            "SITE": "localhost",
            "XDG_DATA_HOME": str(self.folder / "proxy"),
            "OBJECTS": self.objects.removeprefix("http://"),
            "APIS": f"127.0.0.1:{self.ports['api']} 127.0.0.1:{self.ports['api-2']}",
            "HTTP_PORT": str(self.ports["http"]),
            "HTTPS_PORT": str(self.ports["tls"]),
            "PORT": str(self.ports["proxy"]),
        }
        self._run("proxy", command, plain_environment() | addresses)

    def _run(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )
        self.processes[name] = process

    def is_healthy(self, name: str) -> bool:
        return _answers(f"http://127.0.0.1:{self.ports[name]}/healthz")

    def stop(self, name: str) -> None:
        """As `docker compose stop` does; with a service that has `init` its children end, too."""
        process = self.processes.pop(name)
        if SERVICES[name].get("init"):
            os.killpg(process.pid, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        process.wait(90)


def plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("SPOOL_")}


@pytest.fixture(scope="module")
def objects(s3_server: S3Server) -> Iterator[GuardedS3]:
    """An S3 server that verifies signatures, as compose's does."""
    s3_server.client().create_bucket(Bucket="spool")
    with GuardedS3(s3_server.endpoint) as guarded:
        yield guarded


@pytest.fixture(scope="module")
def servers(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, objects: GuardedS3
) -> Iterator[Servers]:
    """Two APIs behind the proxy, migrated and healthy; where compose says a service's name, its address."""
    if shutil.which("caddy") is None and not os.environ.get("CI"):
        pytest.skip("caddy is not installed")
    servers = Servers(tmp_path_factory.mktemp("fleet") / "checkout", postgres, objects.url)
    try:
        servers.prepare()
        key_id, secret = (servers.secret(f"s3_{name}").read_text() for name in S3_KEYS)
        account = Account(key_id, secret, frozenset({"spool"}))
        objects.accounts[account.key_id] = account
        with (servers.folder / ".env").open("a") as env:
            env.write(f"SPOOL_S3_PUBLIC_ENDPOINT_URL={servers.tls_url}\n")
        for name in ("api", "api-2"):
            servers.start(name)
        servers.start_proxy()
        until(lambda: all(servers.is_healthy(name) for name in ("api", "api-2")), "both APIs are healthy")
        until(lambda: _answers(f"{servers.url}/readyz"), "the proxy reaches an API that is ready")
        until(servers.authority.exists, "the proxy has a CA")
        yield servers
    finally:
        for name in reversed(list(servers.processes)):
            servers.stop(name)


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
    environment = servers.environment("api")
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


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def mac_settings(servers: Servers, file: Path) -> Path:
    """What `secrets.sh --for-a-mac` prints, with this test's addresses; Linux has no Metal."""
    printed = write_secrets(servers.folder, "--for-a-mac", "127.0.0.1")
    lines = dict(line.split("=", 1) for line in printed.splitlines())
    assert lines.pop("SPOOL_POOL") == "metal"
    lines |= {"SPOOL_DATABASE_URL": servers.secret("database_url").read_text(), "SPOOL_POOL": "studio"}
    lines["SPOOL_REDIS_URL"] = lines["SPOOL_REDIS_URL"].replace(":6379", f":{servers.ports['broker']}")
    lines["SPOOL_S3_ENDPOINT_URL"] = servers.objects
    file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    return file


# The first, while no audit has run.
def test_the_audit_runs_at_once_and_its_age_is_in_the_metrics(servers: Servers) -> None:
    def metrics() -> str:
        headers = {"Authorization": f"Bearer {servers.token}"}
        return httpx.get(f"{servers.url}/metrics", headers=headers, timeout=60).raise_for_status().text

    assert "\nspool_audit_age_seconds " not in metrics()
    servers.start("audit")
    answers = [""]

    def is_reported() -> bool:
        answers.append(metrics())  # of one of two processes, which do not learn of it at the same time
        return "\nspool_audit_age_seconds " in answers[-1]

    until(is_reported, "an audit is reported")
    assert servers.processes["audit"].poll() is None, "it waits for the next day"
    breaches = [line for line in answers[-1].splitlines() if line.startswith("spool_audit_breaches")]
    assert breaches
    assert all(line.endswith(" 0.0") for line in breaches)


def test_a_job_as_the_readme_submits_it_comes_to_words(
    servers: Servers, mac: Mac, hub: Path, tmp_path: Path
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
    settings = mac_settings(servers, tmp_path / "mac.env")
    done = mac.script("install", "--settings", str(settings), *model, HF_ENDPOINT=hub.as_uri())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no setting of Spool" not in (mac.app / "log/worker.log").read_text()

    assert spool("models", "default").stdout != "parakeet\n", "a worker that joins changes no default"
    until(lambda: spool("models", "default", "parakeet").returncode == 0, "an administrator's choice is kept")
    submitted = spool("submit", str(recording), "--wait", "--json")
    assert submitted.returncode == 0, submitted.stdout + submitted.stderr
    (job,) = json.loads(submitted.stdout)
    assert (job["state"], job["options"]["model"], job["pool"]) == ("done", "parakeet", "studio")
    assert len(spool("transcript", job["id"]).stdout.split()) == job["words"] > 0

    def worker() -> dict[str, Any]:
        (only,) = json.loads(spool("workers", "--json").stdout)["items"]
        return dict(only)

    def facts() -> tuple[str, str]:
        (model,) = [model for model in worker()["model_facts"] if model["name"] == "parakeet"]
        return model["sha256"], model["family"]

    until(lambda: facts() == (sha256, "nemo"), "a heartbeat has said what the model is")
    until(lambda: (worker()["rtfx"] or 0) > 0, "a heartbeat has said how fast it is")
    assert worker()["backend"] == "cpu"

    authority, keys, default, audited, dumped, copied = recipes()
    assert authority[3] == f"proxy:/data/{servers.authority.relative_to(servers.folder / 'proxy')}"
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


def test_recordings_go_past_the_api_through_the_proxy(
    servers: Servers, objects: GuardedS3, tmp_path: Path
) -> None:
    recording = tmp_path / "tape.wav"
    with soundfile.SoundFile(recording, "w", 16_000, 1, "PCM_16") as file:
        file.write(np.zeros(16_000 * 600, np.int16))
    client = plain_environment() | {
        "SPOOL_URL": servers.tls_url,
        "SPOOL_API_TOKEN_FILE": str(servers.secret("api_token")),
        "SPOOL_HOME": str(tmp_path / "client"),
        "SSL_CERT_FILE": str(servers.authority),
    }
    command = [sys.executable, "-m", "api.cli.main", "submit", str(recording), "--json"]
    done = subprocess.run(command, env=client, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (job,) = json.loads(done.stdout)
    assert job["source"]["size"] == recording.stat().st_size
    assert len(objects.addresses) > 1, "its parts went to signed addresses"


def wait_for_more(answered: list[str]) -> None:
    before = len(answered)
    until(lambda: len(answered) > before + 20, "more requests are answered")


def _is_used(servers: Servers, name: str) -> bool:
    """Whether the API has answered a submission since it was started last."""
    log = (servers.folder / f"{name}.log").read_text()
    return '"method": "POST"' in log.rpartition('"event": "listening"')[2]


def test_a_restart_of_either_api_loses_no_request(servers: Servers) -> None:
    """While clients read and submit over TLS, one API after the other is replaced."""
    verify = ssl.create_default_context(cafile=str(servers.authority))
    stopping = threading.Event()
    read: list[int] = []
    posted: list[str] = []
    lost: list[str] = []

    def ask(reads: bool) -> None:
        headers = {"Authorization": f"Bearer {servers.token}"}
        with httpx.Client(base_url=servers.tls_url, verify=verify, headers=headers, timeout=120) as http:
            while not stopping.wait(0.2):  # the requests of a fleet, not an attack
                try:
                    if reads:
                        read.append(http.get("/v1/jobs").raise_for_status().status_code)
                    else:
                        answer = http.post("/v1/jobs", files={"file": ("a.wav", bytes(2**17))})
                        posted.append(answer.raise_for_status().json()["id"])
                except httpx.HTTPError as error:
                    lost.append(repr(error))

    clients = [threading.Thread(target=ask, args=(number % 2 == 0,)) for number in range(6)]
    for client in clients:
        client.start()
    try:
        for name in ("api", "api-2"):
            wait_for_more(posted)
            servers.stop(name)
            wait_for_more(posted)
            servers.start(name)
            until(partial(servers.is_healthy, name), "it is back")
            until(partial(_is_used, servers, name), "the proxy sends requests there again")
    finally:
        stopping.set()
        for client in clients:
            client.join()
    assert lost == []
    assert read
    with psycopg.connect(
        make_url(servers.database_url).set(drivername="postgresql").render_as_string(False)
    ) as sql:
        (jobs,) = [row[0] for row in sql.execute("SELECT count(*) FROM jobs WHERE name = 'a.wav'")]
    assert len(set(posted)) == len(posted) == jobs
