"""The catalogue that comes with Spool, and what a catalogue may not say."""

import re
from pathlib import Path

import pytest

from spool.catalogue import load_catalogue, loadable_models, read_catalogue
from spool.catalogue.entries import HubSource, PackageSource
from spool.catalogue.packages import matches
from spool.errors import ModelError, UnknownModel
from spool.settings import load_settings
from tests.spool.catalogue.models import catalogue, entry, on_hub

ROOT = Path(__file__).parents[3]


def test_the_whisper_models_come_from_pinned_packages_before_the_hub() -> None:
    weights = {
        "whisper-tiny.en": "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
        "whisper-base": "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
    }
    for name, expected in weights.items():
        first, second = load_catalogue().find(name).sources
        assert isinstance(first, PackageSource)
        assert isinstance(second, HubSource)
        files = {file.path: file for file in first.files}
        assert files["model.bin"].sha256 == expected
        assert {"config.json", "tokenizer.json", "vocabulary.txt"} <= set(files)


def test_the_bundled_model_is_the_one_of_the_repository() -> None:
    bundled = load_catalogue().find("demo-tdt").bundled
    assert bundled is not None
    for file in bundled.files:
        assert matches(ROOT / bundled.folder / file.path, file), f"{file.path}: update models.toml"


def test_languages_are_codes_and_the_large_sets_complete() -> None:
    languages = {each.name: each.languages for each in load_catalogue().models}
    assert all(re.fullmatch("[a-z]{2,3}", code) for codes in languages.values() for code in codes)
    assert all(len(codes) == len(set(codes)) for codes in languages.values())
    assert len(languages["whisper-base"]) == 99
    assert set(languages["whisper-large-v3"]) == {*languages["whisper-base"], "yue"}
    assert len(languages["canary-1b-v2"]) == 25


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        UnknownModel, match=r"whisper-tiny is not in the model catalogue. Did you mean whisper-"
    ):
        load_catalogue().find("whisper-tiny")
    with pytest.raises(UnknownModel, match=r"It has whisper-tiny\.en, "):
        load_catalogue().find("zzz")


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", ".locks/x", "a\\b"])
def test_a_path_outside_the_models_folder_is_refused(path: str) -> None:
    source: dict[str, object] = {
        "kind": "package",
        "packages": [{"name": "p", "version": "1", "sha256": "0" * 64, "bytes": 1}],
        "files": [{"path": path, "sha256": "0" * 64, "bytes": 1, "parts": [{"package": "p", "member": "m"}]}],
    }
    with pytest.raises(ValueError, match="not a plain path"):
        catalogue(entry("bad", source))


def test_a_file_made_of_an_unlisted_package_is_refused() -> None:
    source: dict[str, object] = {
        "kind": "package",
        "packages": [{"name": "p", "version": "1", "sha256": "0" * 64, "bytes": 1}],
        "files": [{"path": "x", "sha256": "0" * 64, "bytes": 1, "parts": [{"package": "q", "member": "m"}]}],
    }
    with pytest.raises(ValueError, match="x must be made of members of p"):
        catalogue(entry("bad", source))


def test_a_name_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="occurs twice"):
        catalogue(on_hub("same", "a"), on_hub("same", "b"))


def test_an_unreadable_catalogue_says_where(tmp_path: Path) -> None:
    path = tmp_path / "models.toml"
    path.write_text("[[models]\n")
    with pytest.raises(ModelError, match=r"models\.toml: the model catalogue cannot be read"):
        read_catalogue(path)
    path.write_text('[[models]]\nname = "x"\nfamily = 3\n')
    with pytest.raises(ModelError, match=r"models\.toml: models\.0\.family"):
        read_catalogue(path)


def test_a_worker_offers_what_is_installed_and_if_it_fetches_everything(tmp_path: Path) -> None:
    environ = {"SPOOL_MODELS": f"mine={tmp_path}", "SPOOL_MODEL_STORE": str(tmp_path / "store")}
    here = loadable_models(load_settings(environ))
    fetched = loadable_models(load_settings(environ | {"SPOOL_FETCH_MODELS": "true"}))

    assert here == {"mine": str(tmp_path), "demo-tdt": "demo-tdt"}
    assert here.items() < fetched.items()
    assert {"whisper-tiny.en", "parakeet-tdt-0.6b-v3"} <= fetched.keys()
    assert not any("sortformer" in name for name in fetched)
