"""Two processes at once, and downloads that end in the middle."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ops.testbed.waiting import until
from spool.catalogue import ModelStore, Progress
from spool.errors import ModelUnavailable
from tests.spool.catalogue.index import Server
from tests.spool.catalogue.models import WEIGHTS, catalogue, two

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
SECOND = "two_b-1.0-py3-none-any.whl"
FETCH = """
import pathlib, sys
from spool.catalogue import Catalogue, ModelStore
described = Catalogue.model_validate_json(pathlib.Path(sys.argv[1]).read_text())
print(ModelStore(pathlib.Path(sys.argv[2]), described).get("two"))
"""


def start(store: ModelStore, tmp_path: Path) -> subprocess.Popen[str]:
    description = tmp_path / "catalogue.json"
    description.write_text(store.catalogue.model_dump_json())
    return subprocess.Popen(
        [sys.executable, "-c", FETCH, str(description), str(store.folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_download_it_once(store: ModelStore, index: Server, tmp_path: Path) -> None:
    index.block_seconds = 0.1
    children = [start(store, tmp_path) for _ in range(2)]
    answers = [child.communicate(timeout=60)[0].strip() for child in children]
    assert answers == [str(store.folder / "two")] * 2
    assert [child.returncode for child in children] == [0, 0]
    assert index.downloads(SECOND) == 1
    assert (store.path_of("two") / "model.bin").read_bytes() == WEIGHTS


def test_a_killed_process_leaves_no_model_and_the_next_one_goes_on(
    store: ModelStore, index: Server, tmp_path: Path
) -> None:
    index.block_seconds = 0.2
    child = start(store, tmp_path)
    until(lambda: index.downloads(SECOND) == 1)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    assert not (store.folder / "two").exists()
    index.block_seconds = 0.0
    assert (store.get("two") / "model.bin").read_bytes() == WEIGHTS
    assert index.downloads("two_a-1.0-py3-none-any.whl") == 1


class Stop(Exception):
    pass


def test_an_error_of_the_progress_ends_the_download_at_once(
    wheels: Path, index: Server, tmp_path: Path
) -> None:
    store = ModelStore(tmp_path / "store", catalogue(two(wheels)))
    index.block_seconds = 5.0

    def stop(progress: Progress) -> None:
        if index.downloads(SECOND.replace("_b", "_a")):
            raise Stop

    started = time.monotonic()
    with pytest.raises(Stop):
        store.get("two", stop)
    assert time.monotonic() - started < 20
    index.block_seconds = 0.0
    assert store.get("two").is_dir()


def test_a_download_without_an_end_is_ended(wheels: Path, index: Server, tmp_path: Path) -> None:
    index.block_seconds = 60.0
    store = ModelStore(tmp_path / "store", catalogue(two(wheels)), fetch_seconds=3)
    with pytest.raises(ModelUnavailable, match=r"the download of two-a==1\.0 did not end in time"):
        store.get("two")
