"""A share whose server is gone: calls to it return only when it is back."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spool.errors import ShareMissing
from worker.sources.shares import Shares

SCANDIR = os.scandir


@pytest.fixture
def dead_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until the event is set no call to the folder returns, as with an NFS server that is gone: none can be
    mounted here."""
    (tmp_path / "a.wav").touch()
    back = threading.Event()

    def wait_for_server(folder: Path) -> Any:
        back.wait()
        return SCANDIR(folder)

    monkeypatch.setattr(os, "scandir", wait_for_server)
    yield back
    back.set()


def _checks() -> int:
    return sum(thread.name == "share-check" for thread in threading.enumerate())


def test_a_dead_share_blocks_no_caller_and_holds_one_thread(
    dead_share: threading.Event, tmp_path: Path
) -> None:
    shares = Shares((tmp_path,), answer_seconds=0.05)
    shares.remember_mounts()
    for _ in range(3):
        with pytest.raises(ShareMissing, match="does not answer"):
            shares.require_root(tmp_path / "a.wav", tmp_path / "a.wav", "a.wav")
    assert _checks() == 1


def test_a_share_that_is_back_is_well(dead_share: threading.Event, tmp_path: Path) -> None:
    shares = Shares((tmp_path,), answer_seconds=0.05)
    assert shares.root_problem(tmp_path) is not None
    dead_share.set()
    patient = Shares((tmp_path,))
    assert patient.root_problem(tmp_path) is None
    assert patient.require_root(tmp_path / "a.wav", tmp_path / "a.wav", "a.wav") == tmp_path
