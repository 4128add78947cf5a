"""Whether this worker can reach the folder that a `file://` recording lies in.

A recording fails only if this worker reads its folder and the file is not in it. Whatever else keeps the
worker from the file is the worker's: a root that its settings do not name, or a disk or share that is not
mounted. A mount point without its disk is an empty folder, and some systems leave hidden files in one.
"""

import os
from collections.abc import Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import NoReturn

from spool import clock
from spool.answering import ANSWER_SECONDS
from spool.errors import FolderMissing, ShareForbidden, ShareMissing, SourceMissing, StorageError


class Shares:
    """The source roots of this worker. Thread-safe."""

    def __init__(self, roots: tuple[Path, ...], answer_seconds: float = ANSWER_SECONDS) -> None:
        self._roots = roots
        self._answer_seconds = answer_seconds
        self._mounted: set[Path] = set()
        self._lock = clock.Lock()
        self._checks: dict[Path, Future[str | None]] = {}

    def find_root(self, path: Path) -> Path | None:
        """The root that `path` lies under."""
        return next((root for root in self._roots if path.is_relative_to(root)), None)

    def remember_mounts(self) -> None:
        """Note which roots have a file system of their own now. One that loses it is no longer mounted, even
        if the folder below it has files."""
        for root in self._roots:
            self.root_problem(root)

    def root_problem(self, root: Path) -> str | None:
        """Why recordings below `root` cannot be read; None if they can."""
        try:
            return self._check(root).result(self._answer_seconds)
        except NotYet:
            return f"the disk or share of the source root {root} does not answer"

    def _check(self, root: Path) -> "Future[str | None]":
        """The check that is in progress, so that a dead share holds one thread, or a new one."""
        with self._lock:
            check = self._checks.get(root)
            if check is None or check.done():
                check = self._checks[root] = clock.Future()
                arguments = (root, check)
                clock.Thread(target=self._answer, args=arguments, name="share-check", daemon=True).start()
            return check

    def _answer(self, root: Path, check: "Future[str | None]") -> None:
        try:
            check.set_result(self._find_problem(root))
        except BaseException as error:  # noqa: BLE001 - whoever waits has to know
            check.set_exception(error)

    def _find_problem(self, root: Path) -> str | None:
        try:
            own_device = root.stat().st_dev
            is_mount = own_device != root.parent.stat().st_dev
            is_empty = next(_visible(root), None) is None
        except OSError as error:
            return f"the source root {root} cannot be read: {error.strerror}"
        if is_empty:
            return f"the source root {root} is empty; its disk or share may not be mounted"
        if is_mount:
            self._mounted.add(root)
        elif root in self._mounted:
            return f"the disk or share of the source root {root} is no longer mounted"
        return None

    def require_root(self, path: Path, shown: Path, name: str) -> Path:
        """The root of `path`, which is there. Raises ShareForbidden and ShareMissing, which speak of the
        recording `name` as `shown`."""
        root = self.find_root(path)
        if root is None:
            raise ShareForbidden(
                f"{name}: {shown} is outside the folders that SPOOL_SOURCE_ROOTS of this worker allows."
            )
        if (problem := self.root_problem(root)) is not None:
            raise ShareMissing(f"{name}: {shown} cannot be read: {problem}.", root)
        return root

    def raise_missing(self, path: Path, shown: Path, name: str) -> NoReturn:
        """Raise what it means that there is no file at `path`: SourceMissing only if its folder is there and
        has other files, else FolderMissing, ShareMissing or ShareForbidden. Raises StorageError if the folder
        lists the file."""
        self.require_root(path, shown, name)
        folder = path.parent
        try:
            entries = set(_visible(folder))
        except OSError as error:
            reason = error.strerror
            raise FolderMissing(f"{name}: the folder {folder} cannot be read here: {reason}.") from None
        if not entries:
            raise FolderMissing(f"{name}: the folder {folder} is empty here.")
        if path.name in entries:  # what a network share has cached of it may be out of date
            raise StorageError(f"{name}: {shown} is listed by its folder, but cannot be opened.")
        raise SourceMissing(f"{name}: {shown} does not exist.")


def _visible(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from (entry.name for entry in entries if not entry.name.startswith("."))
