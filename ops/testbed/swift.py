"""OpenStack Swift with its S3 face: a real S3 server for acceptance by hand, made of Python packages alone.

    python -m venv swift-env && swift-env/bin/pip install swift
    python -m ops.testbed.swift swift-env/bin        prints what to export, runs until Enter

then, with those variables exported, `pytest tests/live/test_objects.py tests/page/test_uploads.py`. It is one
replica on one device in a temporary folder, whose file system needs extended attributes; it lets in the pages
of every origin.
"""

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ops.testbed.ports import free_port

BACKENDS = ("account", "container", "object")
START_SECONDS = 60.0

SWIFT = """
[swift-hash]
swift_hash_path_suffix = spool
[storage-policy:0]
name = one
default = yes
"""

COMMON = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
workers = 0
"""

BACKEND = """
[pipeline:main]
pipeline = {kind}-server
[app:{kind}-server]
use = egg:swift#{kind}
"""

PROXY = """
[pipeline:main]
pipeline = catch_errors gatekeeper cache listing_formats s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
cors_allow_origin = *
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:gatekeeper]
use = egg:swift#gatekeeper
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:listing_formats]
use = egg:swift#listing_formats
[filter:s3api]
use = egg:swift#s3api
location = us-east-1
cors_preflight_allow_origin = *
[filter:tempauth]
use = egg:swift#tempauth
user_spool_tester = testing .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
"""


class SwiftServer:
    """Four processes from `start` to `stop`."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs.absolute()
        self._folder = Path(tempfile.mkdtemp(prefix="spool-swift-"))
        self._ports = {kind: free_port() for kind in (*BACKENDS, "proxy")}
        self._processes: list[subprocess.Popen[bytes]] = []
        self.endpoint = f"http://127.0.0.1:{self._ports['proxy']}"

    def start(self) -> None:
        (self._folder / "swift.conf").write_text(SWIFT)
        (self._folder / "devices" / "one").mkdir(parents=True)
        for kind in BACKENDS:
            self._make_ring(kind)
        for kind, port in self._ports.items():
            self._configure(kind, port)
            with (self._folder / f"{kind}.log").open("wb") as log:
                program = self._programs / f"swift-{kind}-server"
                command = [str(program), str(self._folder / f"{kind}.conf"), "-v"]
                environ = {**os.environ, "SWIFT_DIR": str(self._folder)}
                self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environ))
        self._wait_until_it_answers()

    def stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(30)
        shutil.rmtree(self._folder)

    def _make_ring(self, kind: str) -> None:
        ring = [self._programs / "swift-ring-builder", self._folder / f"{kind}.builder"]
        device = f"r1z1-127.0.0.1:{self._ports[kind]}/one"
        for arguments in (["create", "4", "1", "1"], ["add", device, "1"], ["rebalance"]):
            subprocess.run([*ring, *arguments], check=True, stdout=subprocess.DEVNULL)

    def _configure(self, kind: str, port: int) -> None:
        user = pwd.getpwuid(os.getuid()).pw_name
        text = COMMON.format(port=port, user=user, folder=self._folder)
        text += PROXY if kind == "proxy" else BACKEND.format(kind=kind)
        (self._folder / f"{kind}.conf").write_text(text)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        for port in self._ports.values():
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"Swift did not start; see {self._folder}") from None
                    time.sleep(0.1)


if __name__ == "__main__":
    server = SwiftServer(Path(sys.argv[1]))
    try:
        server.start()
        print(f"export SPOOL_TEST_S3_ENDPOINT={server.endpoint}")
        print("export SPOOL_TEST_S3_ACCESS_KEY=spool:tester SPOOL_TEST_S3_SECRET_KEY=testing", flush=True)
        sys.stdin.readline()
    finally:
        server.stop()
