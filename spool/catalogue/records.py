"""What the model store records and returns: records, pins, progress, listings, verifications. Pure."""

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel, ConfigDict

from spool.catalogue.entries import Entry, FileHash, RelativePath

RECORD_NAME = "spool-model.json"


class Record(BaseModel):
    """What an installed model is: its files with their hashes, and their source."""

    model_config = ConfigDict(frozen=True)

    name: str
    source: str
    commit: str
    """The hub's commit; empty for packages."""
    files: dict[RelativePath, FileHash]
    fetched_at: datetime

    @property
    def total_bytes(self) -> int:
        """The length of all files."""
        return sum(known.bytes for known in self.files.values())


class Pins(BaseModel):
    """The hashes of a model's first fetch, if the catalogue has none. They outlive its eviction."""

    model_config = ConfigDict(frozen=True)

    hub_id: str
    commit: str
    files: dict[RelativePath, FileHash]


@dataclass(frozen=True)
class Progress:
    """How far a fetch is, in bytes of the download; `total` is None while unknown."""

    name: str
    step: str
    done: int
    total: int | None


@dataclass(frozen=True)
class Installed:
    """A model of the catalogue and what a store holds of it."""

    entry: Entry
    state: str
    """`installed`, `not fetched`, `damaged`, or `bundled` with Spool."""
    bytes: int | None
    source: str = ""
    commit: str = ""
    used_at: datetime | None = None


@dataclass(frozen=True)
class Verification:
    """Every byte of a model compared with the expected hashes."""

    name: str
    problems: tuple[str, ...]
    files: int
    bytes: int
