"""What the worker's process and its engine child say to each other, and what a recognizer must offer.

Plain data, pickled over one pipe; audio goes by slot number through `worker.engine.audio_slots`. Knows no
process, no thread and no MLX.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from spool.domain.transcript import Lattice, Word
from spool.errors import SpoolError
from worker.decode.types import DecodeRequest, Hypothesis, SearchOptions, UtteranceResult
from worker.engine.scheduler import BatchLimits
from worker.models.base import MAX_UTTERANCE_SECONDS, Ahead, BatchCost, ModelInfo

DEFAULT_LOADER = "worker.engine.recognizer:load_recognizer"
SAMPLE_RATE = 16_000
NOTHING = DecodeRequest()


@dataclass(frozen=True, slots=True)
class ModelCacheOptions:
    """Which models stay in memory (`worker.engine.model_cache`): at most `most`, whose weights take
    at most `budget_bytes`; `pinned` paths never leave, and a loaded model with work stays `stay_seconds`."""

    most: int = 2
    budget_bytes: float = float("inf")
    stay_seconds: float = 20.0
    pinned: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How the engine is built. `loader` names the function ("module:name") that the child calls with a
    model's path or hub id to get a `Recognizer`; `slot_samples` is the longest utterance, in 16 kHz
    samples; `share` is how much of the time the device may be busy, 0 to 1. `device` ("gpu", "cpu") goes to
    `use_device` of the loader's module; empty: as MLX has it. `measured`: the paths of models whose quality
    was measured here and is good enough; quantised ones that are not among them are refused. None: no
    model is."""

    slots: int = 96
    slot_samples: int = int(MAX_UTTERANCE_SECONDS * SAMPLE_RATE)
    limits: BatchLimits = field(default_factory=BatchLimits)
    model_cache: ModelCacheOptions = field(default_factory=ModelCacheOptions)
    loader: str = DEFAULT_LOADER
    start_seconds: float = 120.0
    share: float = 1.0
    device: str = ""
    measured: frozenset[str] | None = None


class Recognition(NamedTuple):
    """One utterance's answer: hypotheses best first, words of the best (seconds from the utterance's start)
    and encoder frames; the text of each hypothesis where more than one was asked for; the SHA-256 of the
    language model that had a say; the lattice, where it was asked for; the language, where the model
    tells; the answer's text, where that need not be the first hypothesis's; the likeliest languages with
    their probabilities, where the model was left to find out; what a diarization model's network puts
    out, or a CTC head's `Emissions` where labels were asked for."""

    hypotheses: tuple[Hypothesis, ...]
    words: tuple[Word, ...]
    frames: int
    texts: tuple[str, ...] = ()
    language_model: str | None = None
    lattice: Lattice | None = None
    language: str | None = None
    text: str | None = None
    languages: tuple[tuple[str, float], ...] = ()
    output: Any = None


class Failure(NamedTuple):
    """Why one utterance has no answer while its neighbours have one, and its encoder frames."""

    error: SpoolError
    frames: int


class Recognizer(Protocol):
    """A loaded model together with its search. Used from one thread only."""

    @property
    def info(self) -> ModelInfo:
        """Which weights these are."""

    def prepare(self, options: SearchOptions, ask: DecodeRequest) -> ModelInfo:
        """Read what a search so asked will need, and say which files that were. Raises InvalidRequest where
        it cannot be done: no such head, a broken language model, a phrase without tokens."""

    def read_by(self, reader: "Recognizer") -> "Recognizer":
        """This model, whose hypotheses the attention decoder of `reader` orders. Raises InvalidRequest."""

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:
        """What an utterance of `samples` 16 kHz samples takes in a batch."""

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        options: SearchOptions,
        asks: Sequence[DecodeRequest],
    ) -> list[Recognition | Failure]:
        """Transcribe a batch of 16 kHz mono utterances, one answer each, in order; each asks for its own
        phrases, language model and context. All device work is done when it returns. What it raises is said
        of the whole batch, which is then run one by one."""


@runtime_checkable
class WorksAhead(Recognizer, Protocol):
    """A recognizer, part of whose work takes no device."""

    @property
    def front(self) -> Callable[[NDArray[np.float32]], NDArray[np.float32] | None] | None:
        """As `ModelWithFront.front`."""

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        options: SearchOptions,
        asks: Sequence[DecodeRequest],
        ahead: Ahead | None = None,
    ) -> list[Recognition | Failure]:
        """As `Recognizer.recognize`, with what `front` has made of each already."""


# --- parent to child ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Utterance:
    """Audio waits in `slot`. `alone`: it was in a batch that ended an earlier child, run it by itself.
    `control`: a harmless sound that tells whether the engine is well; its time is on nobody's bill."""

    ticket: int
    job: str
    slot: int
    samples: int
    model: str
    options: SearchOptions
    alone: bool = False
    control: bool = False
    ask: DecodeRequest = NOTHING


@dataclass(frozen=True, slots=True)
class Describe:
    """Load `model` and say which weights it has; with `options`, make ready what such a search needs."""

    ticket: int
    model: str
    options: SearchOptions | None = None
    ask: DecodeRequest = NOTHING


def models_of(model: str, options: SearchOptions | None) -> tuple[str, ...]:
    """The models that a search needs: its own, and the one that rescores."""
    reader = None if options is None else options.reader
    return (model,) if reader is None else (model, reader)


@dataclass(frozen=True, slots=True)
class DropJob:
    """Take out what still waits for `job`."""

    job: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End now; nobody waits for what is on the device."""


# --- child to parent ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ready:
    """The child is up and listens."""

    pid: int


@dataclass(frozen=True, slots=True)
class Loading:
    """The child is about to load `model`; should it die before it says anything else, that was why."""

    model: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """Loading ended after `load_ns`, which is on nobody's bill; `info` is None where it failed."""

    model: str
    load_ns: int
    info: ModelInfo | None


@dataclass(frozen=True, slots=True)
class Unloaded:
    """These models have left the memory."""

    models: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Started:
    """These utterances are on the device now, in one batch. If they are steps of live sessions, maybe between
    two layers of another one, which goes on behind them."""

    tickets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The batch of the tickets `batch` ended; none where it never started. `busy_ns` is the time that
    `results` took, exactly the sum of their `engine_ns`; `lost_ns` went into a batch that raised and into
    utterances that failed. `busy_total_ns` is the child's own count since it started."""

    results: tuple[tuple[int, UtteranceResult | SpoolError], ...]
    busy_ns: int
    lost_ns: int
    busy_total_ns: int
    batch: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Described:
    """The answer to `Describe`."""

    ticket: int
    answer: ModelInfo | SpoolError


@dataclass(frozen=True, slots=True)
class Dropped:
    """These utterances were taken out before they ran."""

    tickets: tuple[int, ...]


Request = Utterance | Describe | DropJob | Stop
Report = Ready | Loading | Loaded | Unloaded | Started | Finished | Described | Dropped
