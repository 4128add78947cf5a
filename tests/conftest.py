"""What every test may ask for: the real servers of `tests.live.fixtures`, started only when first used."""

import pytest

from tests.kernels.needs import left_out
from tests.live.fixtures import (  # noqa: F401 - fixtures are found by name here
    _migrated_postgres,
    _migrated_sqlite,
    celery,
    database_url,
    db,
    make_settings,
    postgres,
    postgres_url,
    redis_server,
    redis_url,
    s3_server,
    sqlite_url,
)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what this machine could not test."""
    if left_out:
        files = ", ".join(sorted(left_out))
        terminalreporter.write_line(
            f"not tested here, for want of g++ and clang-19 (Debian: apt install g++ clang-19): {files}",
            yellow=True,
        )
