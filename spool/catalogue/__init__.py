"""The models that Spool can fetch by name, and the store that keeps them."""

from spool.catalogue.entries import Catalogue, Entry, load_catalogue, read_catalogue
from spool.catalogue.packages import hash_of
from spool.catalogue.records import Installed, Progress, Verification
from spool.catalogue.store import (
    ModelStore,
    diarization_places,
    fetch_model,
    hold_model,
    installed_path,
    loadable_models,
    open_store,
)
from spool.errors import ChecksumMismatch, ModelUnavailable

__all__ = [
    "Catalogue",
    "ChecksumMismatch",
    "Entry",
    "Installed",
    "ModelStore",
    "ModelUnavailable",
    "Progress",
    "Verification",
    "diarization_places",
    "fetch_model",
    "hash_of",
    "hold_model",
    "installed_path",
    "load_catalogue",
    "loadable_models",
    "open_store",
    "read_catalogue",
]
