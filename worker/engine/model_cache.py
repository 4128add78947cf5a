"""The cache of loaded models: which stay, which are evicted, and when another one may be loaded.

The least recently used model is evicted first, pinned ones never. A requested model is always admitted, so a
single one may be larger than the budget. A model that was just loaded stays for a while; otherwise jobs of
two models that do not fit together would have each of them reloaded for every batch. Loads nothing itself.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from spool import clock
from spool.catalogue import installed_path
from worker.engine.protocol import ModelCacheOptions

Held = TypeVar("Held")
WEIGHTS = ("*.safetensors", "*.nemo", "weights.npz", "model.bin")


@dataclass(slots=True)
class _Place(Generic[Held]):
    model: Held
    size: int


class ModelCache(Generic[Held]):
    """Models by path. Used from one thread, except `may_serve`, which only reads."""

    def __init__(self, options: ModelCacheOptions, read_clock: Callable[[], float] = clock.monotonic) -> None:
        self._options = options
        self._clock = read_clock
        self._places: OrderedDict[str, _Place[Held]] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._loaded_at = -float("inf")

    @property
    def held(self) -> tuple[str, ...]:
        """The models in memory, the most recently used last."""
        return tuple(self._places)

    def get(self, path: str) -> Held | None:
        """The model, marked as the most recently used; None if it is not in memory."""
        place = self._places.get(path)
        if place is None:
            return None
        self._places.move_to_end(path)
        return place.model

    def peek(self, path: str) -> Held | None:
        """The model, without marking it as used; None if it is not in memory."""
        place = self._places.get(path)
        return None if place is None else place.model

    def may_serve(self, path: str) -> bool:
        """Whether work for this model may run first now: it is loaded, or there is room for it, or the last
        model loaded has stayed long enough."""
        if path in self._places or not self._leaving(path):
            return True
        return self._clock() - self._loaded_at >= self._options.stay_seconds

    def make_room(self, path: str, beside: str | None = None) -> tuple[str, ...]:
        """Evict what must leave before `path` is loaded; returns the evicted models. `beside` stays, since
        the work needs both."""
        leaving = self._leaving(path, beside)
        for each in leaving:
            del self._places[each]
        return leaving

    def take_in(self, path: str, model: Held, size: int, beside: str | None = None) -> tuple[str, ...]:
        """Add a loaded model of `size` bytes (0: unknown); returns the models evicted because it is larger
        than its files."""
        self._sizes[path] = size or self._estimate_size(path)
        self._places[path] = _Place(model, self._sizes[path])
        self._loaded_at = self._clock()
        return self.make_room(path, beside)

    def _leaving(self, path: str, beside: str | None = None) -> tuple[str, ...]:
        others = {each: place.size for each, place in self._places.items() if each != path}
        count, held = len(others) + 1, sum(others.values()) + self._estimate_size(path)
        leaving = []
        for each, size in others.items():  # the least recently used comes first
            if count <= self._options.most and held <= self._options.budget_bytes:
                break
            if each in self._options.pinned or each == beside:
                continue
            leaving.append(each)
            count, held = count - 1, held - size
        return tuple(leaving)

    def _estimate_size(self, path: str) -> int:
        """The model's size when last loaded, else that of its files."""
        known = self._sizes.get(path)
        return file_size(path) if known is None else known


def file_size(path: str) -> int:
    """Bytes of a model's weights on disk; 0 if they are not downloaded yet."""
    return sum(file.stat().st_size for file in weights_of(installed_path(path)))


def weights_of(place: Path) -> list[Path]:
    """The weight files of the model at `place`, a folder or a file; none if it does not exist."""
    if place.is_file():
        return [place]
    return [file for kind in WEIGHTS for file in sorted(place.glob(kind))] if place.is_dir() else []
