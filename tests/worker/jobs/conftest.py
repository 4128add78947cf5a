"""A worker without Celery for tests of one job. A module with other models, settings or another engine has
its own `worker_settings` or `engine`."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from ops.testbed.jobs import WorkerHarness, running_engine
from spool.settings import Settings
from spool.store import Database
from worker.engine import Engine


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with running_engine() as engine:
        yield engine


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Path]:
    """A batch of the model `gated` waits until this exists; it opens at the latest when the test ends."""
    gate = tmp_path / "gate"
    yield gate
    gate.touch()


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Where recordings lie that jobs may name."""
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


@pytest.fixture
def worker_settings(gate: Path) -> dict[str, object]:
    return {"models": {"plain": "plain", "gated": f"gate={gate}"}, "default_model": "plain"}


@pytest.fixture
def make_harness(
    sqlite_url: str,
    archive: Path,
    engine: Engine,
    worker_settings: dict[str, object],
    make_settings: Callable[..., Settings],
) -> Iterator[Callable[..., WorkerHarness]]:
    """A worker over the test's database, by the module's engine unless another one is given."""
    db = Database(sqlite_url)

    def make(own: Engine | None = None, **settings: object) -> WorkerHarness:
        chosen = {"source_roots": (archive,), **deepcopy(worker_settings), **settings}
        return WorkerHarness(make_settings(**chosen), db, own or engine, archive)

    yield make
    db.close()


@pytest.fixture
def harness(make_harness: Callable[..., WorkerHarness]) -> WorkerHarness:
    return make_harness()
