"""Which tests are integration tests, and a guard that keeps the others to themselves.

An integration test needs a server or another process: it uses a fixture of `FIXTURES`, lies below one of
`PLACES`, or carries the mark `integration`. `make test` runs the others, `make test-all` both. Any other test
that starts a process or listens on a socket fails. A compiler may start: kernels are built on first use.
"""

import multiprocessing.process
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIXTURES = {"postgres", "redis_server", "s3_server", "stack", "embedded", "preloaded"}
PARAMETERS = {"postgresql", "s3"}
PLACES = ("bench", "end_to_end", "faults", "live", "page", "watch")
COMPILERS = {"c++", "g++", "clang", "clang++", "clang-19", "clang++-19"}

_ROOT = Path(__file__).parent
_running_alone: list[str] = []


def is_integration(item: pytest.Item) -> bool:
    """Whether the test needs a server or another process, as far as its fixtures and its place tell."""
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params.values() if callspec else ()
    return (
        item.get_closest_marker("integration") is not None
        or not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        or any(isinstance(value, str) and value in PARAMETERS for value in parameters)
        or item.path.relative_to(_ROOT).parts[0] in PLACES
    )


def mark(items: list[pytest.Item]) -> None:
    """Give every integration test its mark."""
    for item in items:
        if is_integration(item):
            item.add_marker(pytest.mark.integration)


class Guard:
    """A plugin that fails a test without the mark once it starts a process or listens."""

    def __init__(self) -> None:
        self._refuse(subprocess.Popen, "__init__", lambda arguments: f"starts {_program(arguments)}")
        self._refuse(multiprocessing.process.BaseProcess, "start", lambda _: "starts a process")
        self._refuse(socket.socket, "listen", lambda _: "listens on a socket")

    def _refuse(self, owner: type, name: str, describe: Callable[[tuple[Any, ...]], str]) -> None:
        original = getattr(owner, name)

        def guarded(this: object, *arguments: Any, **named: Any) -> Any:
            does = describe(arguments)
            if _running_alone and does.removeprefix("starts ") not in COMPILERS:
                pytest.fail(f"this test {does}: mark it with pytest.mark.integration (tests/integration.py)")
            return original(this, *arguments, **named)

        setattr(owner, name, guarded)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Watch the test and the setup of its fixtures."""
        if item.get_closest_marker("integration") is None:
            _running_alone.append(item.nodeid)
        try:
            return (yield)
        finally:
            _running_alone.clear()


def _program(arguments: tuple[Any, ...]) -> str:
    """The name of the program that `subprocess.Popen` was given."""
    command = arguments[0] if arguments else "a process"
    return Path(str(command if isinstance(command, str) else command[0])).name
