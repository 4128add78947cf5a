"""The models that Spool can fetch by name, and the store that they are fetched into."""

from spool.catalogue.entries import Catalogue, Entry, load_catalogue, read_catalogue
from spool.catalogue.records import Installed, Progress, Verification
from spool.catalogue.store import ModelStore, fetch_model, installed_path, open_store
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
    "fetch_model",
    "installed_path",
    "load_catalogue",
    "open_store",
    "read_catalogue",
]
