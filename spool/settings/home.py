"""The home folder is its user's alone: it holds recordings, transcripts, keys and logs.

On a shared machine everybody else is nobody: folders are 0700, files 0600. Knows the file system
and no settings.
"""

import os
from contextlib import suppress
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600


def make_private(folder: Path) -> None:
    """Create the folder, or close it to other users where it is this user's own. Raises OSError."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if folder.stat().st_uid == os.getuid():
        with suppress(PermissionError):  # a file system without modes
            folder.chmod(FOLDER_MODE)


def make_private_file(path: Path) -> None:
    """Create the file empty unless it exists; as a new one it is this user's alone. Raises OSError."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE))


def keep_private(home: Path) -> None:
    """Close the home, and whatever this process and its children write from here on, to other users."""
    os.umask(0o777 & ~FOLDER_MODE)
    make_private(home)
