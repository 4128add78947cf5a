"""Fixtures of the tests of a fleet's machines."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.testbed.processes import alive
from tests.ops.a_mac import DEMO, Mac


@pytest.fixture
def mac(tmp_path: Path) -> Iterator[Mac]:
    mac = Mac(tmp_path)
    yield mac
    if (mac.standin / "running.json").exists() and alive(mac.pid):
        os.killpg(mac.pid, signal.SIGKILL)


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """The model hub, as a folder."""
    place = tmp_path / "hub/owner/demo/resolve/v1"
    place.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.model"):
        shutil.copy(DEMO / name, place)
    return tmp_path / "hub"
