"""Starts the services of docker-compose.yml without containers, and sends a sample and an alert through them.

The roots are those that ops/images/try.sh has made. Commands, environment, secrets, users, health checks and
volumes are read from the file. Each service runs as its user, without new privileges, on a read-only root.
Needs a network namespace of its own (`unshare --net`), where every service's name is this machine; so one API
runs and no proxy, whose ports would be the same (tests/ops/test_fleet.py has them).
"""

import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import yaml

from ops.images.dockerfile import Image, command_in, run_steps, steps_of
from ops.images.try_checks import SECONDS, WEBHOOK_PORT, check_jobs, check_scraped, check_webhook, step
from ops.testbed.compose import write_secrets
from ops.testbed.swift import SwiftServer

HERE = Path.cwd()
SERVERS = {"database", "broker", "prometheus", "alertmanager"}
S3_KEYS = {"s3_access_key_id": "spool:tester", "s3_secret_access_key": "testing"}


@dataclass
class Service:
    """One service of the file, in the root that stands for its image."""

    name: str
    told: dict[str, Any]
    root: Path
    image: Image
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def environment(self) -> dict[str, str]:
        return {name: str(value) for name, value in self.told.get("environment", {}).items()}

    def command(self, command: list[str]) -> list[str]:
        return [
            "setpriv",
            "--no-new-privs",
            "--",
            *command_in(self.root, self.image, command, **self.environment),
        ]

    def start(self, command: list[str] | None = None) -> None:
        step(f"{self.name}: {shlex.join(command or self.told['command'])}")
        self.process = subprocess.Popen(self.command(command or self.told["command"]))

    def wait_healthy(self) -> None:
        test = self.told["healthcheck"]["test"]
        command = test[1:] if test[0] == "CMD" else ["/bin/sh", "-c", test[1]]
        deadline = time.monotonic() + SECONDS
        while subprocess.run(self.command(command), capture_output=True, check=False).returncode:
            if time.monotonic() > deadline or (self.process and self.process.poll() is not None):
                raise SystemExit(f"{self.name} did not become healthy by {shlex.join(command)}")
            time.sleep(0.5)
        step(f"{self.name} is healthy")

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGINT if self.name == "database" else signal.SIGTERM)
        return self.process.wait(SECONDS)


class Stack:
    """The services of docker-compose.yml."""

    def __init__(self, folder: Path) -> None:
        self.file = yaml.safe_load((HERE / "docker-compose.yml").read_text())
        self.folder = folder
        self.secrets = folder / "stack" / "secrets"
        self._write_secrets()
        self.services = {
            name: self._service(name, told)
            for name, told in self.file["services"].items()
            if self._root(name)
        }

    def _write_secrets(self) -> None:
        """By the script itself, in a tree of its own; the S3 keys are those that the stand-in knows."""
        tree = self.folder / "stack"
        subprocess.run(["rm", "-rf", tree], check=True)
        self.secrets.mkdir(parents=True)
        for name, value in {**S3_KEYS, "alert_url": f"http://127.0.0.1:{WEBHOOK_PORT}/told"}.items():
            (self.secrets / name).write_text(value)
        write_secrets(tree)

    def _root(self, name: str) -> Path | None:
        if name in {"migrate", "api"}:
            return self.folder / "api"
        if name == "worker":
            return self.folder / name
        return self.folder / "servers" if name in SERVERS else None

    def _service(self, name: str, told: dict[str, Any]) -> Service:
        root = self._root(name)
        assert root is not None
        image = Image()
        if target := told.get("build", {}).get("target"):
            built = steps_of((HERE / told["build"]["dockerfile"]).read_text(), target)
            image = run_steps([each for each in built if each.word not in {"RUN", "COPY"}], root, HERE)
        image.user = told.get("user", image.user)
        folder = root / "run/secrets"
        folder.mkdir(parents=True, exist_ok=True)
        for secret in told.get("secrets", []):
            source = (self.folder / "stack" / self.file["secrets"][secret]["file"]).resolve()
            (folder / secret).write_bytes(source.read_bytes())
        names = " ".join(self.file["services"])
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {names}\n")
        return Service(name, told, root, image)


def make_servers_alike(stack: Stack) -> None:
    """What the images of the servers bring and Debian's packages have elsewhere."""
    root = stack.folder / "servers"
    owners = {
        "/data": "valkey",
        "/prometheus": "nobody",
        "/alertmanager": "nobody",
        "/var/lib/postgresql/data": "postgres",
        "/run/postgresql": "postgres",
    }
    for place, owner in owners.items():
        subprocess.run(["chroot", root, "install", "-d", "-o", owner, "-m", "700", place], check=True)
    for name in ("prometheus", "alertmanager"):
        for volume in stack.file["services"][name]["volumes"]:
            source, _, rest = volume.partition(":")
            if source.startswith("."):
                target = root / rest.partition(":")[0].lstrip("/")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((HERE / source).read_bytes())
    database = stack.services["database"]
    database.image.environment["PATH"] += ":" + next(
        f"/usr/lib/postgresql/{p.name}/bin" for p in (root / "usr/lib/postgresql").iterdir()
    )
    # The image's entry point does this on an empty volume.
    environment = database.environment
    password = environment["POSTGRES_PASSWORD_FILE"]
    arguments = shlex.split(environment["POSTGRES_INITDB_ARGS"])
    begin = [
        "initdb",
        "-D",
        "/var/lib/postgresql/data",
        "-U",
        environment["POSTGRES_USER"],
        f"--pwfile={password}",
        "--encoding=UTF8",
        *arguments,
    ]
    subprocess.run(database.command(begin), check=True, stdout=subprocess.DEVNULL)


def lock_roots(stack: Stack) -> None:
    """read_only, tmpfs and volumes as the file says."""
    for root in {service.root for service in stack.services.values()}:
        services = [service for service in stack.services.values() if service.root == root]
        assert all(service.told.get("read_only") for service in services)
        volumes = {volume for service in services for volume in service.told.get("volumes", [])}
        for place in sorted(volume.split(":")[1] for volume in volumes if volume[0] != "."):
            inside = root / place.lstrip("/")
            subprocess.run(["mount", "--bind", inside, inside], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", root], check=True)
        options = "mode=1777,nosuid,nodev,noexec"
        for place in sorted({place for service in services for place in service.told["tmpfs"]}):
            # A link of the root's, which would be followed out of it.
            inside = root / place.replace("/var/run", "/run").lstrip("/")
            subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", inside], check=True)


def start_objects(stack: Stack) -> SwiftServer:
    """OpenStack Swift at the address where the file's S3 server listens."""
    server = SwiftServer(stack.folder / "swift/bin")
    server._ports["proxy"] = 7070
    server.start()
    keys = {
        "aws_access_key_id": S3_KEYS["s3_access_key_id"],
        "aws_secret_access_key": S3_KEYS["s3_secret_access_key"],
    }
    boto3.client("s3", endpoint_url="http://127.0.0.1:7070", region_name="us-east-1", **keys).create_bucket(
        Bucket="spool"
    )
    step("objects: OpenStack Swift answers S3 on port 7070")
    return server


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    stack = Stack(Path(sys.argv[1]))
    services = stack.services
    make_servers_alike(stack)
    lock_roots(stack)
    objects = start_objects(stack)
    try:
        services["database"].start(["postgres", "-D", "/var/lib/postgresql/data", "-c", "listen_addresses=*"])
        services["broker"].start()
        services["database"].wait_healthy()
        services["broker"].wait_healthy()
        made = ["createdb", "-h", "127.0.0.1", "-U", "spool", "spool"]
        password = (stack.secrets / "database_password").read_text()
        command = command_in(services["database"].root, services["database"].image, made, PGPASSWORD=password)
        subprocess.run(command, check=True)
        services["migrate"].start()
        process = services["migrate"].process
        assert process is not None
        if process.wait(SECONDS):
            raise SystemExit("the migrations failed")
        for name in ("api", "worker"):
            services[name].start()
        for name in ("api", "worker"):
            services[name].wait_healthy()
        services["prometheus"].start(["prometheus", *services["prometheus"].told["command"]])
        services["alertmanager"].start(["prometheus-alertmanager", *services["alertmanager"].told["command"]])
        for name in ("prometheus", "alertmanager"):
            services[name].wait_healthy()
        api = services["api"]
        check_jobs(api.root, api.image, (stack.secrets / "api_token").read_text())
        check_scraped()
        check_webhook()
        order = ("alertmanager", "prometheus", "worker", "api", "broker", "database")
        ended = {name: services[name].stop() for name in order}
        step(f"stopped: {ended}")
    finally:
        objects.stop()


if __name__ == "__main__":
    main()
