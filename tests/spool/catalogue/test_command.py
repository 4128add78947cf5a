"""`spool models` as a person types it, on a store with the bundled model and a fetched one."""

import json
from pathlib import Path

import pytest

import spool.catalogue.store
from api.cli.main import main
from ops.testbed.invoking import invoke
from spool.catalogue import load_catalogue
from spool.catalogue.records import RECORD_NAME
from tests.spool.catalogue.index import Server
from tests.spool.catalogue.models import WEIGHTS, catalogue, one, two

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The store's folder; its catalogue is the test's, since the real one asks the world."""
    bundled = load_catalogue().find("demo-tdt").model_dump(mode="json")
    described = catalogue(one(wheels), two(wheels), bundled)
    monkeypatch.setattr(spool.catalogue.store, "load_catalogue", lambda: described)
    monkeypatch.setenv("SPOOL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SPOOL_MODEL_STORE", str(tmp_path / "home" / "models"))
    return tmp_path / "home" / "models"


def test_get_prints_the_folder(home: Path) -> None:
    result = invoke(main, ["models", "get", "one", "demo-tdt"])
    assert result.exit_code == 0
    assert result.stdout.split() == [str(home / "one"), str(ROOT / "models" / "demo")]
    assert "one: every byte checked, after " in result.stderr
    assert (home / "one" / "model.bin").read_bytes() == WEIGHTS


def test_list_shows_what_is_here(home: Path) -> None:
    invoke(main, ["models", "get", "one"])
    rows = json.loads(invoke(main, ["models", "list", "--json"]).stdout)
    assert [(row["name"], row["state"], row["bytes"]) for row in rows] == [
        ("one", "installed", 10_260),
        ("two", "not fetched", 10_260),
        ("demo-tdt", "bundled", load_catalogue().find("demo-tdt").known_bytes),
    ]
    assert rows[0]["source"] == "model-one==1.0"
    text = invoke(main, ["models", "list"]).stdout
    assert [line.split()[:2] for line in text.splitlines()[1:]] == [
        ["one", "installed"],
        ["two", "not"],
        ["demo-tdt", "bundled"],
    ]


def test_verify_ends_with_1_when_a_byte_differs(home: Path, index: Server) -> None:
    invoke(main, ["models", "get", "one", "demo-tdt"])
    clean = invoke(main, ["models", "verify"])
    assert (clean.exit_code, clean.stdout.count("all intact")) == (0, 2)
    (home / "one" / "model.bin").write_bytes(WEIGHTS[::-1])
    changed = invoke(main, ["models", "verify"])
    assert changed.exit_code == 1
    assert changed.stdout == "demo-tdt: 3 files, 6.8 MB, all intact\n"
    assert "one: model.bin has the SHA-256 " in changed.stderr


def test_an_unknown_name_is_refused_before_anything_is_fetched(home: Path, index: Server) -> None:
    refused = invoke(main, ["models", "get", "tow"])
    assert refused.exit_code == 1
    assert "Did you mean two" in refused.stderr
    assert not index.requests


def test_get_with_bits_makes_a_model_of_its_own(home: Path) -> None:
    made = invoke(main, ["models", "get", "demo-tdt", "--bits", "8"])
    assert (made.exit_code, made.stdout.strip()) == (0, str(home / "demo-tdt-8bit"))
    stated = json.loads((home / "demo-tdt-8bit" / "config.json").read_text())["quantization"]
    assert stated == {"group_size": 64, "bits": 8}
    rows = json.loads(invoke(main, ["models", "list", "--json"]).stdout)
    (row,) = (row for row in rows if row["name"] == "demo-tdt-8bit")
    size = sum(path.stat().st_size for path in (home / "demo-tdt-8bit").iterdir() if path.name != RECORD_NAME)
    assert (row["state"], row["bits"], row["bytes"]) == ("installed", 8, size)
    assert row["source"] == "demo-tdt with 8 bits a weight"
    assert {each["bits"] for each in rows if each["name"] != "demo-tdt-8bit"} == {None}
    assert "demo-tdt-8bit  installed" in invoke(main, ["models", "list"]).stdout
    assert "all intact" in invoke(main, ["models", "verify", "demo-tdt-8bit"]).stdout


def test_what_cannot_be_quantised_is_said(home: Path) -> None:
    refused = invoke(main, ["models", "get", "one", "--bits", "4"])
    assert refused.exit_code == 1
    assert "one cannot be quantised: " in refused.stderr
    assert not (home / "one-4bit").exists()
    assert "is not in the model catalogue" in invoke(main, ["models", "get", "demo-tdt-3bit"]).stderr
    twice = invoke(main, ["models", "get", "demo-tdt-8bit", "--bits", "4"])
    assert "demo-tdt-8bit-4bit is not in the model catalogue" in twice.stderr
