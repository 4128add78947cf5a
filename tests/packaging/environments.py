"""Spool as others get it: its distributions, and environments with some of its extras and nothing else.

The packages that the extras ask for are linked from the environment of the tests, so that no index is needed.
"""

import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NAME = "spool-transcribe"
BUILD = "from setuptools import build_meta; import sys; print(build_meta.build_{kind}(sys.argv[1]))"
# Compiled kernels are kept too: they are named after their source.
KEPT = ("PATH", "TMPDIR", "SPOOL_KERNEL_CACHE")
# What is no source: git's, environments, and what runs and tools leave behind.
LEFT_BEHIND = (
    ".git",
    ".venv*",
    "var",
    "build",
    "dist",
    "*.egg-info",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
)


def build_sdist(folder: Path) -> Path:
    """The source distribution of this tree."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_BEHIND), symlinks=True)
    return _build("sdist", tree, folder)


def unpack(sdist: Path, folder: Path) -> None:
    """By tar: Debian's Python 3.11.2 lacks the filters that later ones ask for."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xzf", str(sdist), "-C", str(folder)], check=True)


def build_wheel(sdist: Path, folder: Path) -> Path:
    """The wheel of a source distribution."""
    unpack(sdist, folder)
    (tree,) = folder.iterdir()
    return _build("wheel", tree, folder)


def _build(kind: str, tree: Path, folder: Path) -> Path:
    command = [sys.executable, "-c", BUILD.format(kind=kind), str(folder)]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.splitlines()[-1]


@dataclass(frozen=True)
class Environment:
    """A Python environment of its own, and a folder to work in."""

    folder: Path

    @property
    def _bin(self) -> Path:
        return self.folder / "bin"

    def run(self, command: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run one of its commands, without what the tests' environment has."""
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return subprocess.run(
            [str(self._bin / command), *arguments],
            cwd=home,
            env={**kept, "HOME": str(home), **variables},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )


def make_environment(folder: Path, source: Path, extras: Iterable[str]) -> Environment:
    """An environment with a wheel, or with a tree of sources to be edited, and with what it and these extras
    depend on."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    if source.is_dir():
        _link(site, distribution("setuptools"))  # which builds it
    what = ["--no-build-isolation", "--editable", str(source)] if source.is_dir() else [str(source)]
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "--quiet"]
    options = ["--no-deps", "--no-index", "--no-compile"]
    done = subprocess.run([*pip, *options, *what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (metadata,) = site.glob("spool_transcribe-*.dist-info")
    for needed in _closure(Distribution.at(metadata), extras):
        _link(site, needed)
    return Environment(folder)


def _link(site: Path, needed: Distribution) -> None:
    for top in {file.parts[0] for file in needed.files or () if file.parts[0] != ".."}:
        link = site / top
        if not link.exists():
            link.symlink_to(Path(str(needed.locate_file(top))))


def _closure(root: Distribution, extras: Iterable[str]) -> list[Distribution]:
    """Everything that the root needs with these extras."""
    seen: set[tuple[str, str]] = set()
    found: dict[str, Distribution] = {}
    waiting = [(root, extra) for extra in ("", *extras)]
    while waiting:
        owner, extra = waiting.pop()
        if (owner.name, extra) in seen:
            continue
        seen.add((owner.name, extra))
        for line in owner.requires or ():
            asked = Requirement(line)
            if asked.marker is not None and not asked.marker.evaluate({"extra": extra}):
                continue
            needed = root if asked.name == NAME else distribution(asked.name)
            if needed is not root:
                found[needed.name] = needed
            waiting += [(needed, each) for each in ("", *asked.extras)]
    return list(found.values())
