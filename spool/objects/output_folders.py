"""The folders that transcripts may be written below: whether each is there, with its disk.

A share that is not mounted leaves no folder, or the one it is mounted on. What was written there would lie on
another disk, hidden as soon as the share is back.
"""

from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spool.errors import OutputMissing
from spool.objects.local import storage_errors


class OutputFolders:
    """The folders of the allowed addresses."""

    def __init__(self, allowed: Iterable[str]) -> None:
        self._allowed = tuple(allowed)
        self._mounted: set[Path] = set()

    def check(self, prefix: str) -> None:
        """Raise OutputMissing if the folder that outputs below `prefix` need is not there, or is no longer
        the mount point that it was at an earlier check; StorageError if it cannot be looked at."""
        root = output_root(prefix, self._allowed)
        with storage_errors(str(root)):
            if not root.is_dir():
                raise OutputMissing(
                    f"There is no folder {root}: mount its disk or share, or create the folder if it is new."
                )
            if root.is_mount():
                self._mounted.add(root)
            elif root in self._mounted:
                raise OutputMissing(f"The folder {root} is no longer mounted: mount its disk or share.")


def output_root(prefix: str, allowed: Iterable[str]) -> Path:
    """The folder that somebody made for outputs below `prefix`: of the `allowed` addresses the innermost one
    above it, up to a `{project}` in it; the folder at `prefix` if none is."""
    folder = folder_at(prefix)
    roots = []
    for address in allowed:
        stem, placeholder, _ = address.partition("{project}")
        if address.startswith("file://"):
            roots.append(folder_at(stem.rpartition("/")[0] if placeholder else stem).resolve())
    above = [root for root in roots if folder.is_relative_to(root)]
    return max(above, key=lambda root: len(root.parts), default=folder)


def folder_at(uri: str) -> Path:
    """The path of a `file://` address."""
    return Path(unquote(urlsplit(uri).path, errors="surrogateescape"))
