"""A package index and a hub on a port of this machine, and wheels to put there. Real HTTP, real pip."""

import hashlib
import json
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def make_wheel(folder: Path, name: str, members: Mapping[str, bytes]) -> Path:
    """A wheel of version 1.0 with these members; importing it would leave a file called `imported`."""
    module = name.replace("-", "_")
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{module}/__init__.py", f"open({str(folder / 'imported')!r}, 'w').close()\n")
        for member, data in members.items():
            wheel.writestr(member, data)
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


class Server(ThreadingHTTPServer):
    """`/simple/` is an index of `packages`, everything else a hub with the files of `hub`."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.packages: dict[str, Path] = {}
        self.hub: dict[str, bytes] = {}
        self.announced: dict[str, bytes] = {}
        """What the hub's listing says of a file, where that is not what it serves."""
        self.requests: list[str] = []
        self.cut: set[str] = set()
        """Names of files of which half is sent before the connection ends."""
        self.block_seconds = 0.0
        """The pause after every 1,000 bytes of a wheel."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, wheel: Path) -> None:
        self.packages[wheel.name] = wheel

    def downloads(self, name: str) -> int:
        return sum(path.endswith(name) for path in self.requests)


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self.server.requests.append(self.path.partition("?")[0])
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0]
        name = path.rstrip("/").rpartition("/")[2]
        if path.startswith("/simple/"):
            links = [
                f'<a href="/files/{file}">{file}</a>'
                for file in self.server.packages
                if file.startswith(name.replace("-", "_") + "-1.0")
            ]
            self._send("".join(links).encode(), body, {"Content-Type": "text/html"}, 200 if links else 404)
        elif path.startswith("/files/"):
            self._send(self.server.packages[name].read_bytes(), body, {}, slow=True)
        elif path.startswith("/api/models/"):
            self._send(json.dumps(self._listing()).encode(), body, {"Content-Type": "application/json"})
        elif name in self.server.hub:
            data = self.server.hub[name]
            self._send(data, body, {"ETag": f'"{sha256(data)}"', "X-Repo-Commit": COMMIT})
        else:
            self._send(b"", body, {}, 404)

    def _listing(self) -> dict[str, Any]:
        files = self.server.hub | self.server.announced
        return {
            "id": "owner/model",
            "sha": COMMIT,
            "siblings": [
                {
                    "rfilename": name,
                    "size": len(data),
                    "blobId": "0",
                    "lfs": {"sha256": sha256(data), "size": len(data), "pointerSize": 100},
                }
                for name, data in files.items()
            ],
        }

    def _send(
        self, data: bytes, body: bool, headers: Mapping[str, str], status: int = 200, slow: bool = False
    ) -> None:
        name = self.path.rpartition("/")[2]
        self.send_response(status)
        for header, value in headers.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        if name in self.server.cut:
            data = data[: len(data) // 2]
            self.close_connection = True
        pause = self.server.block_seconds if slow else 0.0
        try:
            for start in range(0, len(data), 1000) if pause else (0,):
                self.wfile.write(data[start : start + 1000] if pause else data)
                time.sleep(pause)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


@contextmanager
def serve() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
