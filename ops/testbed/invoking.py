"""Runs a command line in this process, as a person would see it end."""

import io
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch


class Invoked(NamedTuple):
    """The exit code of a command line, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams."""
        return self.stdout + self.stderr


def invoke(
    main: Callable[[list[str]], None], arguments: Iterable[object], env: Mapping[str, str] | None = None
) -> Invoked:
    """Run a command line; `env` is added to the environment."""
    # Some commands write bytes.
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with patch.dict(os.environ, env or {}), redirect_stdout(out), redirect_stderr(err):
        try:
            main([str(each) for each in arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
    texts = (stream.buffer.getvalue().decode() for stream in (out, err))
    return Invoked(code, *texts)
