"""What is installed is what was locked: every dependency, at the version of constraints.txt, with hashes."""

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
RUN = ("api", "worker", "embedded")
PIN = re.compile(
    r"^([A-Za-z0-9._-]+)==([^\s;]+)([^\\]*)\\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE
)


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(file: str) -> dict[str, set[str]]:
    """Versions by name; a package may have one for each of several Pythons."""
    text = (ROOT / "ops" / "locks" / file).read_text()
    pins = PIN.findall(text)
    assert len(pins) == text.count("==") - text.count("== '")  # none without a hash
    found: dict[str, set[str]] = {}
    for name, version, _, _ in pins:
        found.setdefault(plain(name), set()).add(version)
    return found


LOCKS = {"run.txt": RUN, "dev.txt": (*RUN, "dev"), "api.txt": ("api",), "worker.txt": ("worker",)}


def requirements(extras: Iterable[str]) -> set[str]:
    """The names of what Spool needs with these extras, which may include other extras of its own."""
    names = set()
    for line in [line for extra in extras for line in PROJECT["optional-dependencies"][extra]]:
        name, _, rest = line.partition("[")
        if name == PROJECT["name"]:
            names |= requirements(rest.rstrip("]").split(","))
        else:
            names.add(plain(re.split(r"[\s\[<>=!;~]", line, maxsplit=1)[0]))
    return names


@pytest.mark.parametrize(("file", "extras"), LOCKS.items())
def test_every_dependency_is_locked(file: str, extras: tuple[str, ...]) -> None:
    versions = locked(file)
    base = {plain(re.split(r"[\s\[<>=!;~]", line, maxsplit=1)[0]) for line in PROJECT["dependencies"]}
    names = base | requirements(extras)
    assert names - set(versions) == set(), "run make lock"
    assert "setuptools" in versions  # what builds Spool itself


@pytest.mark.parametrize("file", LOCKS)
def test_the_lock_has_the_versions_that_were_tested(file: str) -> None:
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
    versions = locked(file)
    other = {
        name: versions[plain(name)]
        for name, version in pinned.items()
        if plain(name) in versions and version not in versions[plain(name)]
    }
    assert not other, "run make lock"
