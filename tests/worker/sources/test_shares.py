"""A share whose server is gone: calls to it return only when it is back."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spool.domain.jobs import Source
from spool.errors import ShareMissing
from spool.objects import FolderStore
from worker.sources.fetch import Sources
from worker.sources.shares import Shares


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While the event is clear no call to the folder returns, as with an NFS server that is gone: none can be
    mounted here."""
    (tmp_path / "a.wav").touch()
    there = threading.Event()
    there.set()

    def hang(call: Callable[..., Any]) -> Callable[..., Any]:
        def wait_for_server(place: Any, *rest: Any, **named: Any) -> Any:
            if str(place).startswith(str(tmp_path)):
                there.wait()
            return call(place, *rest, **named)

        return wait_for_server

    for name in ("scandir", "lstat", "stat"):
        monkeypatch.setattr(os, name, hang(getattr(os, name)))
    yield there
    there.set()


def _checks() -> int:
    return sum(thread.name == "share-check" for thread in threading.enumerate())


def test_a_dead_share_blocks_no_caller_and_holds_one_thread(server: threading.Event, tmp_path: Path) -> None:
    shares = Shares((tmp_path,), answer_seconds=0.05)
    server.clear()
    shares.remember_mounts()
    for _ in range(3):
        with pytest.raises(ShareMissing, match="does not answer"):
            shares.require_root(tmp_path / "a.wav", tmp_path / "a.wav", "a.wav")
    assert _checks() == 1


def test_a_recording_on_a_dead_share_waits_and_holds_no_thread(
    server: threading.Event, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, make_settings: Any
) -> None:
    own = tmp_path_factory.mktemp("own")
    settings = make_settings(source_roots=(tmp_path,))
    sources = Sources(settings, FolderStore(own / "objects"), own / "tmp")
    sources.shares = Shares((tmp_path,), answer_seconds=0.05)
    server.clear()
    source = Source("file", (tmp_path / "a.wav").as_uri(), None)
    with pytest.raises(ShareMissing, match="does not answer"), sources.fetch(source, "a.wav"):
        pass
    assert isinstance(sources.find_missing_share(source, "a.wav"), ShareMissing)


def test_a_share_that_is_back_is_well(server: threading.Event, tmp_path: Path) -> None:
    shares = Shares((tmp_path,), answer_seconds=0.05)
    server.clear()
    assert shares.root_problem(tmp_path) is not None
    server.set()
    patient = Shares((tmp_path,))
    assert patient.root_problem(tmp_path) is None
    assert patient.require_root(tmp_path / "a.wav", tmp_path / "a.wav", "a.wav") == tmp_path
