"""The diarization models there are, by the names that jobs use.

A new one is a line in `MODELS`: its two sides as `worker.diarization.base` describes them.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from spool.errors import UnknownModel
from worker.diarization.base import DiarizationModel, Network
from worker.diarization.diarizer import DefaultDiarizer, VoiceNetwork

_PREFIX = "diarization:"


class _Sides(NamedTuple):
    model: Callable[[str], DiarizationModel]
    """Takes the path that the engine loads the network by."""
    network: Callable[[], Network]


MODELS: dict[str, _Sides] = {"default": _Sides(DefaultDiarizer, VoiceNetwork)}


@cache
def load_diarization(name: str) -> DiarizationModel:
    """The model's side that follows the recording; imports no MLX. Raises ModelError."""
    if name not in MODELS:
        raise UnknownModel(f"no diarization model {name!r} here; this worker knows {', '.join(MODELS)}.")
    return MODELS[name].model(_PREFIX + name)


def is_diarization(path: str) -> bool:
    """Whether this is what the engine loads a diarization model's network by."""
    return path.startswith(_PREFIX)


def load_network(path: str) -> Network:
    """The model's side that runs on the device. Raises ModelError."""
    name = path.removeprefix(_PREFIX)
    if not is_diarization(path) or name not in MODELS:
        raise UnknownModel(f"{path}: no such diarization model")
    return MODELS[name].network()
