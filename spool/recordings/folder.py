"""What a folder holds: its recordings, and every other file with the reason why it is none.

Symbolic links to folders are not followed, so there are no loops; a link to a file counts as the file it
leads to. Reads a file's first kilobytes only where its name does not decide.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from spool.errors import SourceForbidden
from spool.recordings.probe import HIDDEN, PROBE_BYTES, is_hidden, reason_to_skip


def walk(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """Every file below `folder` in order of names, folder by folder, with the reason to skip it, None for a
    recording. Folders that are hidden or cannot be listed come once, with what is in them left unread.

    Raises SourceForbidden where `folder` itself cannot be listed.
    """
    for path, unread in walk_files(folder):
        yield path, unread or skip_reason(path)


def walk_files(folder: Path) -> Iterator[tuple[Path, str | None]]:
    """The same without a look at any file: None for each of them, and for a folder why it is left unread."""
    waiting = [folder]
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                ordered = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if directory == folder:
                raise SourceForbidden(f"{directory} cannot be listed: {error.strerror}.") from None
            yield directory, f"this folder cannot be listed: {error.strerror}"
            continue
        folders = [entry for entry in ordered if entry.is_dir(follow_symlinks=False)]
        waiting += [directory / entry.name for entry in reversed(folders) if not is_hidden(entry.name)]
        for entry in ordered:
            if not _leads_to_folder(entry):
                yield directory / entry.name, None
            elif is_hidden(entry.name) and entry.is_dir(follow_symlinks=False):
                yield directory / entry.name, HIDDEN


def _leads_to_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # links in a circle: what opens it says so
        return False


def skip_reason(path: Path) -> str | None:
    """Why the file makes no job, or None if it does."""
    try:
        return reason_to_skip(path.name, lambda: _first_bytes(path))
    except OSError as error:
        return f"its first bytes cannot be read: {error.strerror}"


def _first_bytes(path: Path) -> bytes:
    # A pipe or a device would make the caller wait for a writer that may never come.
    if not path.is_file():
        raise OSError(0, "it is not a regular file")
    with path.open("rb") as file:
        return file.read(PROBE_BYTES)
