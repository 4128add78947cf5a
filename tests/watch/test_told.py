"""Alertmanager itself tells somebody of an alert, and of its end, by the configuration that the stack has."""

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from typing import Any

import httpx
import pytest
import yaml

from ops.testbed.ports import free_port
from ops.watch.render_dashboard import DASHBOARD
from tests.watch.needs import ALERTMANAGER

WATCH = DASHBOARD.parents[2]
COMPOSE = yaml.safe_load((WATCH.parents[1] / "docker-compose.yml").read_text())


@pytest.fixture
def told() -> Iterator[tuple[str, "Queue[dict[str, Any]]"]]:
    """An address that takes what a chat's incoming webhook takes, and what it was sent."""
    heard: Queue[dict[str, Any]] = Queue()

    class Chat(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Chat) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/services/T/B/x", heard
        server.shutdown()
        thread.join()


@contextmanager
def alertmanager(folder: Path, url: str) -> Iterator[httpx.Client]:
    """With the stack's configuration and flags, but the secret elsewhere and no half minute's patience."""
    config = yaml.safe_load((WATCH / "alertmanager.yml").read_text())
    (slack,) = config["receivers"][0]["slack_configs"]
    assert slack["api_url_file"] == "/run/secrets/alert_url"
    (folder / "alert_url").write_text(url)
    slack["api_url_file"] = str(folder / "alert_url")
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
    flags = {flag.partition("=")[0] for flag in COMPOSE["services"]["alertmanager"]["command"]}
    assert flags == {"--config.file", "--storage.path", "--cluster.listen-address"}
    address = f"127.0.0.1:{free_port()}"
    command = [str(ALERTMANAGER), f"--config.file={folder / 'alertmanager.yml'}", "--cluster.listen-address="]
    command += [f"--storage.path={folder / 'data'}", f"--web.listen-address={address}"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx.Client(base_url=f"http://{address}") as client:
            wait_healthy(client, process)
            yield client
    finally:
        process.terminate()
        process.wait()


def wait_healthy(client: httpx.Client, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 30
    while True:
        assert process.poll() is None
        try:
            client.get("/-/healthy").raise_for_status()
            return
        except httpx.HTTPError:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_an_alert_reaches_somebody_with_its_runbook_and_so_does_its_end(
    tmp_path: Path, told: tuple[str, "Queue[dict[str, Any]]"]
) -> None:
    url, heard = told
    alert: dict[str, Any] = {
        "labels": {"alertname": "SpoolWorkerLost", "severity": "page", "worker": "mini-3", "pool": "metal"},
        "annotations": {
            "summary": "The worker mini-3 did not stop, and is not heard of.",
            "runbook_url": "docs/runbook.md#spoolworkerlost",
        },
    }
    with alertmanager(tmp_path, url) as client:
        client.post("/api/v2/alerts", json=[alert]).raise_for_status()
        (message,) = heard.get(timeout=30)["attachments"]
        assert message["title"] == "SpoolWorkerLost firing"
        assert message["text"].strip() == (
            "The worker mini-3 did not stop, and is not heard of. See docs/runbook.md#spoolworkerlost."
        )
        ended = datetime.now(UTC) - timedelta(seconds=1)
        client.post("/api/v2/alerts", json=[alert | {"endsAt": ended.isoformat()}]).raise_for_status()
        (message,) = heard.get(timeout=30)["attachments"]
        assert message["title"] == "SpoolWorkerLost resolved"


def test_prometheus_and_alertmanager_name_the_same_address() -> None:
    config = yaml.safe_load((WATCH / "prometheus.yml").read_text())
    ((target,),) = [
        each["targets"] for one in config["alerting"]["alertmanagers"] for each in one["static_configs"]
    ]
    service, port = target.split(":")
    assert COMPOSE["services"][service]["ports"] == [f"127.0.0.1:{port}:{port}"]
