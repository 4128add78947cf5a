"""What every test may ask for: the real servers of `tests.live.fixtures`, started only when first used."""

import gc
import os

from worker.machine import preload_blas

# As in a worker, and before anything here imports MLX; the tests' processes share the cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
preload_blas()

import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402

from tests import integration  # noqa: E402
from tests.kernels.needs import left_out as not_compiled  # noqa: E402
from tests.live.fixtures import (  # noqa: E402, F401 - fixtures are found by name here
    _migrated_postgres,
    _migrated_sqlite,
    celery,
    database_url,
    db,
    make_settings,
    patient_database,
    postgres,
    postgres_url,
    redis_server,
    redis_url,
    s3_server,
    sqlite_url,
)
from tests.live.pgbouncer import left_out as not_pooled  # noqa: E402
from tests.page.needs import left_out as not_looked_at  # noqa: E402
from tests.watch.needs import left_out as not_tried  # noqa: E402

DRAWN = "drawn"
"""The property (`record_property`) of a test that draws by chance: what it drew, for the summary."""

# How long an example takes says more about the machine's load than about the code.
settings.register_profile("any", deadline=None, max_examples=30)
# A fixed set of examples where the answer has to be about the commit alone; elsewhere every run tries others.
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "any")


@pytest.fixture(scope="session", autouse=True)
def _state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands of tests find no stack of the user's, and leave no traces with the user."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests that need no server and no process to themselves."""
    config.pluginmanager.register(integration.Guard())


def pytest_collection_finish() -> None:
    """Let Python's garbage collector leave out what is loaded, and look at the rest less often: it took a
    tenth of the processor time of tests with an API (LOG.md)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by these marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a server or a process of their own; files with such tests, the storms first of
    all, begin before the others, which fill the gaps at the end."""
    integration.mark(items)
    starting = {item.path for item in items if item.get_closest_marker("integration")}
    items.sort(key=lambda item: ("faults" not in item.path.parts, item.path not in starting))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was drawn at random, and what this machine could not test."""
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, value in getattr(report, "user_properties", ()):
                if name == DRAWN and report.when == "call":
                    terminalreporter.write_line(f"{report.nodeid}: {value}")
    for files, missing, package in (
        (not_compiled, "g++ and clang-19", "g++ clang-19"),
        (not_looked_at, "a Chromium", "chromium libatomic1"),
        (not_tried, "promtool or Alertmanager", "--no-install-recommends prometheus prometheus-alertmanager"),
        (not_pooled, "PgBouncer", "--no-install-recommends pgbouncer"),
    ):
        if files:
            terminalreporter.write_line(
                f"not tested here, for want of {missing} (Debian: apt install {package}): "
                + ", ".join(sorted(files)),
                yellow=True,
            )
