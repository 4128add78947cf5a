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
            r"The broker of SPOOL_REDIS_URL does not answer\. .* `spool up` then starts a broker\.$",
        ),
        (
            "SPOOL_S3_ENDPOINT_URL",
            "http://127.0.0.1:{port}",
            r"SPOOL_OBJECTS s3://archive cannot be used: The object store does not answer for s3://archive\.$",
        ),
        (
            "SPOOL_OBJECTS",
            "file:///proc/archive",
            r"SPOOL_OBJECTS file:///proc/archive cannot be used: .+",
        ),
        (
            "SPOOL_DEFAULT_MODEL",
            "wisper",
            r"SPOOL_DEFAULT_MODEL names wisper, which is neither in SPOOL_MODELS nor in the catalogue",
        ),
    ],
)
def test_a_stack_that_cannot_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    port = str(free_port())
    monkeypatch.setenv(variable, value.replace("{port}", port))
    if variable == "SPOOL_S3_ENDPOINT_URL":
        monkeypatch.setenv("SPOOL_OBJECTS", "s3://archive")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    environ = {**os.environ, "SPOOL_HOME": str(tmp_path), "SPOOL_API_PORT": "0"}
    steps: list[str] = []

    with pytest.raises(StackError, match=reason.replace("{port}", port)), Stack(environ, steps.append):
        pass

    assert "starting the API and the worker" not in steps
