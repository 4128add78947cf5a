"""The messages between the worker's process and its engine child, and the interface of recognizers.

Plain data, pickled over one pipe; audio is passed by slot number through `worker.engine.audio_slots`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spool.domain.priority import NORMAL
from spool.domain.recognition import Recognition
from spool.errors import SpoolError
from worker.engine.scheduler import BatchLimits
from worker.live.feed import LiveFeed
from worker.models.base import MAX_UTTERANCE_SECONDS, Ahead, BatchCost, ModelInfo
from worker.models.requests import DecodeRequest, SearchOptions

DEFAULT_LOADER = "worker.engine.recognizer:load_recognizer"
SAMPLE_RATE = 16_000
NOTHING = DecodeRequest()


@dataclass(frozen=True, slots=True)
class ModelCacheOptions:
    """Limits of `worker.engine.model_cache`: at most `most` models, whose weights take at most
    `budget_bytes`; `pinned` paths are never evicted, and a loaded model stays at least `stay_seconds`."""

    most: int = 2
    budget_bytes: float = float("inf")
    stay_seconds: float = 20.0
    pinned: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options of the engine. `loader` names the function ("module:name") that the child calls with a model's
    path or hub id to get a `Recognizer`; `slot_samples` is the longest utterance, in 16 kHz samples; `share`
    is the share of time that the device may be busy, 0 to 1. `device` ("gpu", "cpu") is passed to
    `use_device` of the loader's module; empty: MLX's default. `measured`: the paths of models whose quality
    was measured here and is good enough, with the bits of their weights; other quantised models are refused.
    None: none is refused.
    `handover`: the folder for answers that outlive the parent, the worker `worker_id`; None: none does."""

    slots: int = 96
    slot_samples: int = int(MAX_UTTERANCE_SECONDS * SAMPLE_RATE)
    limits: BatchLimits = field(default_factory=BatchLimits)
    model_cache: ModelCacheOptions = field(default_factory=ModelCacheOptions)
    loader: str = DEFAULT_LOADER
    start_seconds: float = 120.0
    share: float = 1.0
    device: str = ""
    measured: Mapping[str, int | None] | None = None
    handover: Path | None = None
    worker_id: str = ""


class Failure(NamedTuple):
    """The error of one utterance of a batch, and its encoder frames."""

    error: SpoolError
    frames: int


class Recognizer(Protocol):
    """A loaded model together with its search. Used from one thread only."""

    @property
    def info(self) -> ModelInfo:
        """The model's weights and properties."""

    def prepare(self, request: DecodeRequest) -> ModelInfo:
        """Load what the search needs, and return the digests of the files used. Raises InvalidRequest if the
        request cannot be served: no such head, a broken language model, a phrase without tokens."""

    def read_by(self, reader: "Recognizer") -> "Recognizer":
        """This model with its hypotheses ordered by the attention decoder of `reader`. Raises
        InvalidRequest."""

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:
        """The cost of an utterance of `samples` 16 kHz samples in a batch."""

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
    ) -> list[Recognition | Failure]:
        """Transcribe a batch of 16 kHz mono utterances, one answer each, in order. Their requests have
        equal `search`. All device work is done when it returns. An exception applies to the whole
        batch, which is then run one by one."""


@runtime_checkable
class WorksAhead(Recognizer, Protocol):
    """A recognizer with a part that needs no device."""

    @property
    def front(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32] | None] | None: ...

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
        ahead: Ahead | None = None,
    ) -> list[Recognition | Failure]:
        """As `Recognizer.recognize`, with the outputs of `front` where already computed."""


# --- parent to child ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Utterance:
    """Transcribe the audio in `slot`. `alone`: it was in a batch that ended an earlier child, so it runs by
    itself. `control`: a control sound that tests the engine; its time is not billed. `mark`: what its answer
    is known by if it is handed over (`worker.engine.handover`); empty: it is not. `priority`: the job's."""

    ticket: int
    job: str
    slot: int
    samples: int
    model: str
    request: DecodeRequest = NOTHING
    alone: bool = False
    control: bool = False
    mark: str = ""
    priority: int = NORMAL

    @property
    def search(self) -> SearchOptions:
        """How it is searched."""
        return self.request.search

    @property
    def is_live(self) -> bool:
        """Whether it is a step of a live session."""
        return isinstance(self.request.step, LiveFeed)


@dataclass(frozen=True, slots=True)
class Settled:
    """The answer to the utterance of `job` with this `mark` is saved, or will be billed as wasted."""

    job: str
    mark: str


@dataclass(frozen=True, slots=True)
class Describe:
    """Load `model` and report its weights; with a request, prepare what it needs."""

    ticket: int
    model: str
    request: DecodeRequest | None = None

    @property
    def search(self) -> SearchOptions | None:
        """The search to prepare, if any."""
        return None if self.request is None else self.request.search

    @property
    def is_live(self) -> bool:
        """Whether it is for a live session."""
        return self.request is not None and isinstance(self.request.step, LiveFeed)


def models_of(model: str, search: SearchOptions | None) -> tuple[str, ...]:
    """The models that a search needs: its own, and the one that rescores."""
    reader = None if search is None else search.reader
    return (model,) if reader is None else (model, reader)


@dataclass(frozen=True, slots=True)
class DropJob:
    """Drop the waiting utterances of `job`."""

    job: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End now, without finishing the current batch."""


# --- child to parent ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The child is ready."""

    pid: int


@dataclass(frozen=True, slots=True)
class CannotStart:
    """The child cannot work on this machine, nor could another one; it ends."""

    reason: str


@dataclass(frozen=True, slots=True)
class Loading:
    """The child is about to load `model`; if it dies before its next report, loading was the cause."""

    model: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Loading ended after `load_ns`, which is not billed; `info` is None if it failed."""

    model: str
    load_ns: int
    info: ModelInfo | None


@dataclass(frozen=True, slots=True)
class Unloaded:
    """These models were evicted."""

    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """A batch of these utterances started on the device. Steps of live sessions may interrupt another batch,
    which continues afterwards."""

    tickets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch of the tickets `batch` ended (empty if it never started). `busy_ns` is the time of `results`,
    exactly the sum of their `engine_ns`; `lost_ns` is that of a batch that raised and of utterances that
    failed."""

    results: tuple[tuple[int, Recognition | SpoolError], ...]
    busy_ns: int
    lost_ns: int
    batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """The answer to `Describe`."""

    ticket: int
    answer: ModelInfo | SpoolError


@dataclass(frozen=True, slots=True)
class Dropped:
    """These utterances were dropped before they ran."""

    tickets: tuple[int, ...]


Request = Utterance | Settled | Describe | DropJob | Stop
Report = Ready | CannotStart | Loading | Loaded | Unloaded | Started | Finished | Described | Dropped
