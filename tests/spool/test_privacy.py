"""What Spool writes on this machine is its user's alone, whatever the umask was."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from spool.objects import FolderStore
from spool.settings import (
    SecretUnreadable,
    keep_private,
    load_settings,
    make_private,
    make_private_file,
    secret_box,
)
from spool.store import Database


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> list[str]:
    return [
        f"{path} {stat.S_IMODE(path.stat().st_mode):o}"
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & 0o077
    ]


def test_objects_are_private(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "objects")
    store.put_bytes("jobs/job_01/attempt-1/transcript.json", b"{}")
    (tmp_path / "tape").write_bytes(b"RIFF")
    store.put_file("jobs/job_01/source", tmp_path / "tape")
    store.check()
    assert open_to_others(store.root) == []


def test_the_key_of_webhook_secrets_is_private_and_stays(tmp_path: Path) -> None:
    settings = load_settings({}, home=tmp_path / "home")
    token = secret_box(settings).encrypt("whsec_1")

    assert secret_box(settings).decrypt(token) == "whsec_1"
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["secret-key"]
    assert open_to_others(tmp_path / "home") == []
    with pytest.raises(SecretUnreadable):
        secret_box(load_settings({}, home=tmp_path / "other")).decrypt(token)


def test_the_database_is_private(tmp_path: Path) -> None:
    db = Database(f"sqlite:///{tmp_path / 'home' / 'spool.db'}")
    with db.begin() as tx:
        tx.exec_driver_sql("CREATE TABLE a (b)")
        assert (tmp_path / "home" / "spool.db-wal").exists()
        assert open_to_others(tmp_path / "home") == []
    db.close()


def test_a_home_that_others_could_read_is_closed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(mode=0o755)
    make_private(tmp_path / "home")
    make_private_file(tmp_path / "home" / "api.log")
    assert open_to_others(tmp_path / "home") == []
    (tmp_path / "home" / "api.log").write_text("kept")
    make_private_file(tmp_path / "home" / "api.log")
    assert (tmp_path / "home" / "api.log").read_text() == "kept"


def test_a_server_writes_for_its_user_alone(tmp_path: Path) -> None:
    keep_private(tmp_path / "home")
    (tmp_path / "home" / "uploads").mkdir()
    (tmp_path / "home" / "uploads" / "part").write_bytes(b"x")
    assert open_to_others(tmp_path / "home") == []
