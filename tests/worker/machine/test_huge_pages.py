"""Processes that ask for large pages get them where the system gives them."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from worker.machine import start_with_huge_pages, with_huge_pages
from worker.machine.huge_pages import TUNABLE, VARIABLE

SYSTEM = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CHILD = """
import pathlib
memory = bytearray(64 << 20)
memory[::4096] = b"x" * len(memory[::4096])
lines = pathlib.Path("/proc/self/smaps_rollup").read_text().splitlines()
print(next(line.split()[1] for line in lines if line.startswith("AnonHugePages")))
"""


def test_what_is_said_already_stays() -> None:
    assert with_huge_pages({"A": "b"}) == {"A": "b", VARIABLE: f"{TUNABLE}=1"}
    other = {VARIABLE: "glibc.malloc.check=3"}
    assert with_huge_pages(other) == {VARIABLE: f"glibc.malloc.check=3:{TUNABLE}=1"}
    refused = {VARIABLE: f"{TUNABLE}=0"}
    assert with_huge_pages(refused) == refused


@pytest.mark.parametrize("before", [None, "glibc.malloc.check=3"])
def test_only_processes_started_in_the_block_ask(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if before is not None:
        monkeypatch.setenv(VARIABLE, before)
    with start_with_huge_pages():
        assert os.environ == with_huge_pages(os.environ)
        assert f"{TUNABLE}=1" in os.environ[VARIABLE]
    assert os.environ.get(VARIABLE) == before


def _glibc() -> tuple[int, ...]:
    name, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) if name == "glibc" else (0,)


@pytest.mark.integration
@pytest.mark.skipif(
    not SYSTEM.is_file() or "[madvise]" not in SYSTEM.read_text() or _glibc() < (2, 35),
    reason="needs a Linux that gives large pages to whoever asks, and glibc 2.35",
)
def test_a_child_that_asks_has_them() -> None:
    plain = {name: value for name, value in os.environ.items() if name != VARIABLE}
    kilobytes = [
        int(subprocess.run([sys.executable, "-c", CHILD], env=each, capture_output=True, check=True).stdout)
        for each in (plain, with_huge_pages(plain))
    ]
    assert kilobytes[0] < 8192 <= 32768 <= kilobytes[1]
