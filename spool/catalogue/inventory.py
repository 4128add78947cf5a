"""The content of a model store's folder: records, pins, expected hashes, last uses. Reads, and marks uses.

`store` describes the folder's layout, installs and evicts.
"""

import errno
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from spool import clock
from spool.bundled import bundled_folder
from spool.catalogue.entries import Catalogue, Entry, HubSource, PackageSource, RepositorySource
from spool.catalogue.packages import hash_of
from spool.catalogue.records import RECORD_NAME, Installed, Pins, Record, Verification
from spool.errors import ModelUnavailable, ModelUnreadable

_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class Inventory:
    """The installed models of one store."""

    def __init__(self, folder: Path, catalogue: Catalogue) -> None:
        self.folder = folder
        self.catalogue = catalogue

    def record(self, name: str) -> Record | None:
        """The record of an installed model, None without one. Raises ModelUnreadable."""
        path = self.stamp(name)
        try:
            record = Record.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as cause:
            raise ModelUnreadable(
                f"{path}: the record of this model cannot be read. "
                f"`spool models get --force {name}` fetches the model again."
            ) from cause
        if record.name != name:
            raise ModelUnreadable(f"{path} is the record of {record.name}; its folder must have that name.")
        return record

    def entries(self) -> list[Entry]:
        """The catalogue's, and those that were quantised here."""
        names = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        made = (self.catalogue.quantised(name) for name in names if self.stamp(name).is_file())
        return [*self.catalogue.models, *(entry for entry in made if entry is not None)]

    def records(self) -> dict[str, Record]:
        """The readable records of all models, by name."""
        records = {}
        for entry in self.entries():
            try:
                record = self.record(entry.name)
            except ModelUnreadable:
                continue
            if record is not None:
                records[entry.name] = record
        return records

    def is_installed(self, name: str) -> bool:
        """Whether all files exist with their recorded lengths."""
        record = self.record(name)
        return record is not None and not self.damage(name, record)

    def damage(self, name: str, record: Record) -> str:
        """What is wrong with an installed model, by the lengths of its files alone; empty if nothing is."""
        for path, known in record.files.items():
            file = self.folder / name / path
            if not file.is_file():
                return f"{path} is missing"
            if file.stat().st_size != known.bytes:
                return f"{path} has {file.stat().st_size} bytes instead of {known.bytes}"
        return ""

    def path_of(self, name: str) -> Path:
        """`ModelStore.path_of`."""
        entry = self.catalogue.find(name)
        if entry.bundled is not None:
            return _find_bundled_folder(entry, entry.bundled)
        record = self.record(name)
        if record is None:
            raise _not_here(name)
        damage = self.damage(name, record)
        if damage:
            raise ModelUnreadable(
                f"{self.folder / name}: {damage}. `spool models get --force {name}` fetches it again."
            )
        self._mark_used(name)
        return _openable(self.folder / name)

    def state_of(self, entry: Entry) -> Installed:
        """The state of a model in this store."""
        if entry.bundled is not None:
            return Installed(entry, "bundled", entry.known_bytes)
        try:
            record = self.record(entry.name)
        except ModelUnreadable:
            return Installed(entry, "damaged", None)
        if record is None:
            return Installed(entry, "not fetched", entry.known_bytes)
        state = "damaged" if self.damage(entry.name, record) else "installed"
        used = datetime.fromtimestamp(self.last_use(entry.name), UTC)
        return Installed(entry, state, record.total_bytes, record.source, record.commit, used)

    def verify(self, name: str) -> Verification:
        """`ModelStore.verify`, without its lock."""
        entry = self.catalogue.find(name)
        if entry.bundled is not None:
            folder = _find_bundled_folder(entry, entry.bundled)
            bundled = {file.path: (file.sha256, file.bytes) for file in entry.bundled.files}
            return _compare(name, folder, bundled, complete=False)
        record = self.record(name)
        if record is None:
            raise _not_here(name)
        return _compare(name, self.folder / name, self._find_hashes(entry, record), complete=True)

    def _find_hashes(self, entry: Entry, record: Record) -> dict[str, tuple[str, int]]:
        """The hashes to expect: the catalogue's, else those of the first fetch, else the record's."""
        for source in entry.sources:
            if source.describe() != record.source:
                continue
            if isinstance(source, PackageSource):
                return {file.path: (file.sha256, file.bytes) for file in source.files}
            if isinstance(source, HubSource) and (pins := self.pins(entry.name, source)):
                return {path: (known.sha256, known.bytes) for path, known in pins.files.items()}
        return {path: (known.sha256, known.bytes) for path, known in record.files.items()}

    def pins(self, name: str, source: HubSource) -> Pins | None:
        """The pins of the first fetch from this source, if there was one. Raises ModelUnreadable."""
        path = self._pins_path(name)
        try:
            pins = Pins.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as cause:
            raise ModelUnreadable(f"{path}: the hashes of the first fetch cannot be read.") from cause
        return pins if pins.hub_id == source.id else None

    def pin(self, name: str, pins: Pins) -> None:
        """Stores the hashes of a first fetch permanently."""
        path = self._pins_path(name)
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".part").write_text(pins.model_dump_json(indent=2) + "\n")
        path.with_suffix(".part").rename(path)

    def _pins_path(self, name: str) -> Path:
        return self.folder / ".pins" / f"{name}.json"

    def stamp(self, name: str) -> Path:
        """The record's file; its modification time is that of the model's last use."""
        return self.folder / name / RECORD_NAME

    def last_use(self, name: str) -> float:
        """When the model was last requested, in seconds since 1970; 0 if it was just removed."""
        try:
            return self.stamp(name).stat().st_mtime
        except FileNotFoundError:
            return 0.0

    def _mark_used(self, name: str) -> None:
        try:
            os.utime(self.stamp(name))
        except OSError as cause:
            if cause.errno not in _READ_ONLY:
                raise


def record_of(entry: Entry, source: str, commit: str, folder: Path) -> Record:
    """The record of the files in a folder, hashed now."""
    files = {
        path.relative_to(folder).as_posix(): hash_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return Record(name=entry.name, source=source, commit=commit, files=files, fetched_at=clock.now())


def _not_here(name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name} is not on this machine: run `spool models get {name}`.")


def _find_bundled_folder(entry: Entry, source: RepositorySource) -> Path:
    folder = bundled_folder(source.folder)
    if not all((folder / file.path).is_file() for file in source.files):
        raise ModelUnavailable(f"{entry.name} is part of Spool's repository and is not at {folder}.")
    return folder


def _openable(folder: Path) -> Path:
    """The folder itself, or its `.nemo` file if that is its only content."""
    archives = list(folder.glob("*.nemo"))
    return archives[0] if len(archives) == 1 and not (folder / "config.json").exists() else folder


def _compare(
    name: str, folder: Path, expected: Mapping[str, tuple[str, int]], *, complete: bool
) -> Verification:
    """Compares the folder's files with their hashes; `complete`: it may contain no other files."""
    problems, total = [], 0
    for path, (sha256, size) in expected.items():
        file = folder / path
        if not file.is_file():
            problems.append(f"{path} is missing")
            continue
        actual = hash_of(file)
        total += actual.bytes
        if actual.bytes != size:
            problems.append(f"{path} has {actual.bytes} bytes instead of {size}")
        elif actual.sha256 != sha256:
            problems.append(f"{path} has the SHA-256 {actual.sha256} instead of {sha256}")
    if complete:
        present = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        surplus = sorted(present - set(expected) - {RECORD_NAME})
        problems += [f"{path} does not belong to this model" for path in surplus]
    return Verification(name, tuple(problems), len(expected), total)
