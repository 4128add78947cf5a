"""What `spool up` says if it cannot start."""

import os
from pathlib import Path

import pytest

from api.local.stack import Stack, StackError
from ops.testbed.ports import free_port

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        (
            "SPOOL_DATABASE_URL",
            "postgresql://127.0.0.1:{port}/spool",
            r"The database could not be brought up to date:\n.*port {port} failed: Connection refused$",
        ),
        (
            "SPOOL_REDIS_URL",
            "redis://:secret@127.0.0.1:{port}/0",
            r"The broker of SPOOL_REDIS_URL does not answer\. .* `spool up` then starts one\.$",
        ),
        (
            "SPOOL_DEFAULT_MODEL",
            "wisper",
            r"SPOOL_DEFAULT_MODEL names wisper, which is neither in SPOOL_MODELS nor in the catalogue",
        ),
    ],
)
def test_a_stack_that_cannot_start_says_why(tmp_path: Path, variable: str, value: str, reason: str) -> None:
    port = str(free_port())
    environ = {
        **os.environ,
        "SPOOL_HOME": str(tmp_path),
        "SPOOL_API_PORT": "0",
        variable: value.replace("{port}", port),
    }
    steps: list[str] = []

    with pytest.raises(StackError, match=reason.replace("{port}", port)), Stack(environ, steps.append):
        pass

    assert "starting the API and the worker" not in steps
