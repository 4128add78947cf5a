"""Where the files are that come with Spool: inside the installed package, or in the repository."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def bundled_folder(name: str) -> Path:
    """The folder `name`, relative to the repository. A wheel has it below the package `spool` (setup.py)."""
    inside = _PACKAGE / "bundled_files" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name
