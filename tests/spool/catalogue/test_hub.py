"""Fetches from a hub on this machine, by the hub's own client: first fetches pin, later ones compare."""

import shutil
from pathlib import Path

import pytest

from spool.catalogue import ModelStore
from spool.catalogue.hub import choose_files
from spool.errors import ChecksumMismatch, ModelUnavailable
from tests.spool.catalogue.index import COMMIT, Server
from tests.spool.catalogue.models import CONFIG, WEIGHTS, catalogue, on_hub

pytestmark = pytest.mark.integration


@pytest.fixture
def hub(index: Server) -> Server:
    index.hub |= {"model.safetensors": WEIGHTS, "config.json": CONFIG, "README.md": b"not asked for"}
    return index


@pytest.fixture
def hub_store(hub: Server, tmp_path: Path) -> ModelStore:
    return ModelStore(tmp_path / "store", catalogue(on_hub("turbo", "config.json", "*.safetensors")))


def test_the_first_fetch_pins_commit_and_hashes(hub: Server, hub_store: ModelStore) -> None:
    folder = hub_store.get("turbo")
    assert {path.name for path in folder.iterdir()} == {
        "model.safetensors",
        "config.json",
        "spool-model.json",
    }
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    (row,) = hub_store.entries()
    assert (row.state, row.source, row.commit) == ("installed", "the hub's owner/model", COMMIT)
    assert hub_store.verify("turbo").problems == ()
    shutil.rmtree(folder)
    assert hub_store.get("turbo") == folder
    assert "/api/models/owner/model/revision/main" in hub.requests
    assert hub.requests[-3:][0] == f"/api/models/owner/model/revision/{COMMIT}"


def test_other_bytes_than_those_of_the_first_fetch_are_refused(hub: Server, hub_store: ModelStore) -> None:
    shutil.rmtree(hub_store.get("turbo"))
    hub.hub["model.safetensors"] = WEIGHTS[::-1]
    with pytest.raises(ChecksumMismatch, match=r"model\.safetensors of owner/model is not the file"):
        hub_store.get("turbo")
    assert hub_store.entries()[0].state == "not fetched"
    hub.hub["model.safetensors"] = WEIGHTS
    assert hub_store.get("turbo").is_dir()


def test_other_bytes_than_those_announced_are_refused(hub: Server, hub_store: ModelStore) -> None:
    hub.announced["model.safetensors"] = WEIGHTS[::-1]
    with pytest.raises(ChecksumMismatch):
        hub_store.get("turbo")
    assert not (hub_store.folder / "turbo").exists()
    assert not (hub_store.folder / ".pins").exists()


def test_a_nemo_archive_is_opened_as_a_file(hub: Server, tmp_path: Path) -> None:
    hub.hub["canary.nemo"] = WEIGHTS
    store = ModelStore(tmp_path / "store", catalogue(on_hub("canary", "canary.nemo")))
    assert store.get("canary") == store.folder / "canary" / "canary.nemo"


def test_a_hub_that_cannot_be_reached_is_named(
    hub: Server, hub_store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(
        ModelUnavailable, match=r"turbo cannot be fetched: the hub cannot give owner/model: .*refused"
    ):
        hub_store.get("turbo")


def test_without_the_hubs_client_the_extra_is_named(
    hub: Server, hub_store: ModelStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "shadow").mkdir()
    (tmp_path / "shadow" / "huggingface_hub.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'shadow'}:{Path(__file__).parents[3]}")
    with pytest.raises(ModelUnavailable, match=r"huggingface_hub is not installed: .* worker extra"):
        hub_store.get("turbo")


@pytest.mark.parametrize("name", ["../x.bin", "/x.bin", ".git/x.bin", "a/../../x.bin", "a\\x.bin"])
def test_file_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(LookupError, match="which is refused"):
        choose_files({name: {}, "y.txt": {}}, ("*.bin",))
