"""Which files are recordings, and their reference texts where a manifest has them. Opens no audio."""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from spool.domain.manifest import is_recording
from spool.errors import InvalidRequest
from spool.formats import FORMATS, Format

MANIFEST = "manifest.jsonl"
SUFFIXES: dict[Format, str] = {form: f".{form}" for form in FORMATS} | {
    "paragraphs": ".paragraphs.txt",
    "lattice": ".lattice.json",
    "kaldi": ".ark",
}
_LONGEST_NAME = 80
"""Characters; in UTF-8 with a suffix they fit in what file systems take."""


def recordings_under(path: Path) -> list[Path]:
    """The file itself, or every recording below the folder, by name; raises `InvalidRequest` for none."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise InvalidRequest(f"There is no file or folder {path}.")
    recordings = sorted(file for file in path.rglob("*") if is_recording(file.name) and file.is_file())
    if not recordings:
        raise InvalidRequest(f"There are no recordings under {path}.")
    return recordings


def file_name(name: str, suffix: str) -> Path:
    """Where a transcript of this name goes, below a folder and never out of it, whatever the name is."""
    parts = [part for part in PurePosixPath(name.replace("\\", "/")).parts if part not in {"/", "..", "."}]
    *folders, last = [part[:_LONGEST_NAME] for part in parts] or ["transcript"]
    return Path(*folders, f"{last}{suffix}")


def references_of(folder: Path) -> dict[Path, str]:
    """Reference texts by file, from `manifest.jsonl` in the folder; empty without one.

    Raises `InvalidRequest` that names the line which cannot be read.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return {}
    with manifest.open(encoding="utf-8") as lines:
        return dict(_references(folder, lines))


def _references(folder: Path, lines: Iterable[str]) -> Iterable[tuple[Path, str]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            yield folder / str(entry["file"]), str(entry["text"])
        except (ValueError, KeyError, TypeError):
            raise InvalidRequest(f"{folder / MANIFEST}:{number} needs `file` and `text`.") from None
