"""The diarization models there are, by the names that jobs use.

A name is one of `MODELS`, whose two sides are as `worker.diarization.base` describes them, or names a file of
a Sortformer: a `.nemo`, or a model of the catalogue (`spool models list`).
"""

from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from spool.catalogue import installed_path, load_catalogue
from spool.errors import UnknownModel
from worker.diarization.base import DiarizationModel, Network
from worker.diarization.diarizer import DefaultDiarizer, VoiceNetwork
from worker.diarization.sortformer import Sortformer

_PREFIX = "diarization:"


class _Sides(NamedTuple):
    model: Callable[[str], DiarizationModel]
    """Takes the path that the engine loads the network by."""
    network: Callable[[], Network]


MODELS: dict[str, _Sides] = {"default": _Sides(DefaultDiarizer, VoiceNetwork)}


def load_diarization(name: str) -> DiarizationModel:
    """The side of a model that follows the recording; imports no MLX and downloads nothing. `name` is one of
    `MODELS`, a `.nemo` file, or a model of the catalogue. Raises ModelError."""
    return _built_in(name) if name in MODELS else load_sortformer_model(sortformer_file(name), _PREFIX + name)


@cache
def _built_in(name: str) -> DiarizationModel:
    return MODELS[name].model(_PREFIX + name)


def load_sortformer_model(archive: Path, path: str = "") -> Sortformer:
    """The side of a Sortformer that follows the recording. `path` is what the engine loads the network by, by
    default that of the file. Raises ModelUnreadable."""
    try:
        facts = archive.stat()
    except OSError as cause:
        raise UnknownModel(f"{archive}: the diarization model cannot be read: {cause.strerror}") from cause
    return _kept_sortformer(path or f"{_PREFIX}{archive}", archive, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=8)
def _kept_sortformer(path: str, archive: Path, _changed: int, _size: int) -> Sortformer:
    return Sortformer(path, archive)


def sortformer_file(name: str) -> Path:
    """The file that a path or a name of the catalogue names. Raises UnknownModel where it is not here."""
    place = installed_path(name)
    if place.is_file():
        return place
    if load_catalogue().has(name):
        raise UnknownModel(f"{name} is not on this machine; `spool models get {name}` fetches it.")
    if place.exists() or place.suffix == ".nemo":
        raise UnknownModel(f"{name}: no .nemo file is there, as a Sortformer's would be.")
    raise UnknownModel(f"There is no diarization model {name!r} here; known are {', '.join(MODELS)}.")


def is_diarization(path: str) -> bool:
    """Whether this is what the engine loads a diarization model's network by."""
    return path.startswith(_PREFIX)


def load_network(path: str) -> Network:
    """The model's side that runs on the device, downloaded where need be. Raises ModelError."""
    name = path.removeprefix(_PREFIX)
    if not is_diarization(path):
        raise UnknownModel(f"{path}: no such diarization model")
    if name in MODELS:
        return MODELS[name].network()
    # Not above: the process that follows recordings has no MLX.
    from worker.models.load import model_files
    from worker.models.sortformer.load import load_sortformer

    return load_sortformer(model_files(name).path)
