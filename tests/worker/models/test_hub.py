"""A model by its hub id, from a real HTTP server that answers as the hub does, and from the cache without
one."""

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.worker.models.golden import FOLDER

pytestmark = pytest.mark.integration

REPO = "someone/tiny-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {path.name: path.read_bytes() for path in (FOLDER / "hybrid").iterdir()}
LOAD = """
import sys
from spool.errors import SpoolError
from worker.models.load import load_model
try:
    model = load_model(sys.argv[1])
    print(model.info.name, model.info.sha256, sorted(model.heads))
except SpoolError as error:
    print(type(error).__name__, error.message)
"""


class Hub(BaseHTTPRequestHandler):
    """One repository of three files, and one that is not wanted."""

    asked: list[str]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)  # type: ignore[attr-defined]
        name = path.rpartition("/")[2]
        if path.startswith(f"/api/models/{REPO}/revision/"):
            siblings = [{"rfilename": file} for file in (*FILES, "README.md", "training.bin")]
            self.send(json.dumps({"id": REPO, "sha": COMMIT, "siblings": siblings}).encode(), body)
        elif path.startswith(f"/api/models/{REPO}/tree/"):
            tree = [
                {"type": "file", "path": file, "size": len(raw), "oid": "0"} for file, raw in FILES.items()
            ]
            self.send(json.dumps(tree).encode(), body)
        elif path.startswith(f"/{REPO}/resolve/") and name in FILES:
            self.send(FILES[name], body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def send(self, raw: bytes, body: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("ETag", f'"{hashlib.sha256(raw).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def load(model: str, endpoint: str, home: Path, **environment: str) -> str:
    """Loads in a process of its own: the hub's client reads its environment when it is imported."""
    run = subprocess.run(
        [sys.executable, "-c", LOAD, model],
        env=os.environ
        | {
            "HF_ENDPOINT": endpoint,
            "HF_HOME": str(home),
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
        }
        | environment,
        cwd=FOLDER.parents[1],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_a_hub_id_is_downloaded_once_and_then_served_from_the_cache(
    hub: ThreadingHTTPServer, tmp_path: Path
) -> None:
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    digest = hashlib.sha256(FILES["model.safetensors"]).hexdigest()
    # When the model is asked for by its id, then it is that model
    assert load(REPO, endpoint, tmp_path) == f"{REPO} {digest} ['ctc', 'tdt']"
    asked = " ".join(hub.asked)  # type: ignore[attr-defined]
    assert "training.bin" not in asked
    # And when the hub is out of reach, the cache answers
    assert load(REPO, endpoint, tmp_path, HF_HUB_OFFLINE="1") == f"{REPO} {digest} ['ctc', 'tdt']"


def test_a_model_that_the_hub_does_not_have_is_unknown(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    said = load("someone/nothing", f"http://127.0.0.1:{hub.server_port}", tmp_path)
    assert said.startswith("UnknownModel someone/nothing")


def test_without_hub_or_cache_the_model_is_unknown(tmp_path: Path) -> None:
    said = load(REPO, "http://127.0.0.1:9", tmp_path, HF_HUB_OFFLINE="1")
    assert said.startswith(f"UnknownModel {REPO}")
