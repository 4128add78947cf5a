"""The diarization models, by the names that jobs use.

A name is one of `MODELS` or names a Sortformer in the catalogue (`spool models list`) or in the settings.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from spool.catalogue import diarization_places, installed_path, load_catalogue
from spool.errors import UnknownModel
from worker.diarization.base import DiarizationModel, Network
from worker.diarization.diarizer import DefaultDiarizer, VoiceNetwork
from worker.diarization.sortformer import Sortformer

_PREFIX = "diarization:"


class _Sides(NamedTuple):
    model: Callable[[str], DiarizationModel]
    """Takes the path by which the engine loads the network."""
    network: Callable[[], Network]


DEFAULT = "default"
MODELS: dict[str, _Sides] = {DEFAULT: _Sides(DefaultDiarizer, VoiceNetwork)}


def place_of(name: str, places: Mapping[str, str]) -> str:
    """Resolve the name that a job uses: one of `MODELS`, a Sortformer's place in `places` (of the settings),
    or a name in the catalogue. Raises UnknownModel; jobs cannot name other files."""
    if name in MODELS:
        return name
    known = diarization_places(places)
    if name in known:
        return known[name]
    names = ", ".join([*MODELS, *known])
    raise UnknownModel(f"There is no diarization model {name!r} here; this worker knows {names}.")


def path_of(place: str) -> str:
    """The path by which the engine loads the network at a place."""
    return _PREFIX + place


def load_diarization(name: str) -> DiarizationModel:
    """Load the part of a model that follows the recording; imports no MLX and downloads nothing. `name` is
    one of `MODELS`, a `.nemo` file, or a model in the catalogue. Raises ModelError."""
    return _built_in(name) if name in MODELS else load_sortformer_model(sortformer_file(name), path_of(name))


@cache
def _built_in(name: str) -> DiarizationModel:
    return MODELS[name].model(_PREFIX + name)


def load_sortformer_model(archive: Path, path: str = "") -> Sortformer:
    """Load the part of a Sortformer that follows the recording. `path` is the one by which the engine loads
    the network, by default that of the file. Raises ModelUnreadable."""
    try:
        facts = archive.stat()
    except OSError as cause:
        raise UnknownModel(f"{archive}: the diarization model cannot be read: {cause.strerror}") from cause
    return _load_sortformer(path or f"{_PREFIX}{archive}", archive, facts.st_mtime_ns, facts.st_size)


@lru_cache(maxsize=8)
def _load_sortformer(path: str, archive: Path, _changed: int, _size: int) -> Sortformer:
    return Sortformer(path, archive)


def sortformer_file(name: str) -> Path:
    """The file of a path or a catalogue name. Raises UnknownModel if it is not on this machine."""
    place = installed_path(name)
    if place.is_file():
        return place
    if load_catalogue().has(name):
        raise UnknownModel(f"{name} is not on this machine; `spool models get {name}` fetches it.")
    if place.exists() or place.suffix == ".nemo":
        raise UnknownModel(f"{name}: no .nemo file is there, as a Sortformer's would be.")
    raise UnknownModel(f"There is no diarization model {name!r} here; known are {', '.join(MODELS)}.")


def is_diarization(path: str) -> bool:
    """Whether the path is that of a diarization model's network."""
    return path.startswith(_PREFIX)


def load_network(path: str) -> Network:
    """Load the part of a model that runs on the device, downloading it if needed. Raises ModelError."""
    name = path.removeprefix(_PREFIX)
    if not is_diarization(path):
        raise UnknownModel(f"{path}: no such diarization model")
    if name in MODELS:
        return MODELS[name].network()
    # Not above: the process that follows recordings has no MLX.
    from worker.models.load import model_files
    from worker.models.sortformer.load import load_sortformer

    return load_sortformer(model_files(name).path)
