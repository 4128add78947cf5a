"""Every file of weights names its licence, and the distribution's metadata covers those that it contains."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUNDLED = ROOT / "models" / "demo"  # `setup.py` puts it into the wheel
PACKAGES = ("api", "spool", "worker", "kernels", "migrations")
WEIGHTS = sorted(path for top in (*PACKAGES, "models") for path in (ROOT / top).rglob("*.safetensors"))


@pytest.mark.parametrize("weights", WEIGHTS, ids=lambda path: path.parent.name)
def test_weights_name_their_licence(weights: Path) -> None:
    (licence,) = re.findall(r"^license: (\S+)", (weights.parent / "README.md").read_text(), re.MULTILINE)
    name = str(weights.relative_to(ROOT))
    assert name in (notice := (ROOT / "NOTICE").read_text()) or f"{Path(name).parent}/\n" in notice
    if weights.relative_to(ROOT).parts[0] in PACKAGES or weights.parent == BUNDLED:
        assert licence.lower() in PROJECT["license"].lower().split(" and ")
    if weights.relative_to(ROOT).parts[0] in PACKAGES:
        assert (weights.parent / "LICENSE").is_file()


def test_the_licence_files_exist() -> None:
    assert PROJECT["license-files"] == ["LICENSE", "NOTICE"]
    assert all((ROOT / name).is_file() for name in PROJECT["license-files"])
    mit = (ROOT / "worker/networks/silero-vad/LICENSE").read_text().split()
    assert " ".join(mit[2:]) in " ".join((ROOT / "NOTICE").read_text().split())
