"""Requests to the engine without an answer, their futures, and what a child's death means for them.

Owns tickets, futures, blame and the engine's counters (`EngineStats`), all behind one lock;
`worker.engine.client` owns the process and the audio slots. When a child dies, the utterances of its batch
become suspects and run alone. If a child dies on a suspect alone, the suspect is accused, and the next child
runs a control sound in its place. If that passes, the accused utterance fails; if that child dies too, the
machine is at fault and the engine stops.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field, replace

import structlog

from spool import clock
from spool.domain.recognition import Recognition
from spool.domain.worker_stats import WorkCounts
from spool.errors import EngineCrashed, EngineStopped, JobCancelled, ModelUnreadable, SpoolError
from worker.engine.protocol import (
    CannotStart,
    Describe,
    Described,
    Dropped,
    Finished,
    Loaded,
    Loading,
    Ready,
    Report,
    Started,
    Unloaded,
    Utterance,
    models_of,
)
from worker.models.base import ModelInfo


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counts since the engine started. `busy_ns` includes the speech detector's time in this process.
    `shapes` says how large and how well filled the answered batches were."""

    busy_ns: int = 0
    lost_ns: int = 0
    load_ns: int = 0
    batches: int = 0
    utterances: int = 0
    restarts: int = 0
    died_ns: int = 0
    loads: int = 0
    """The number of model loads."""
    shapes: WorkCounts = field(default_factory=WorkCounts)


log = structlog.get_logger(__name__)

STARTS_WITHOUT_READY = 3  # after more, the installation is at fault and restarting is useless
CRASHES_KEPT = 100
LOAD_CRASHES = 2  # children that died while loading a model, after which the model is at fault

AnyFuture = Future[Recognition] | Future[ModelInfo]


@dataclass(slots=True)
class _Open:
    request: Utterance | Describe
    future: AnyFuture
    dropped: bool = False
    accused: EngineCrashed | None = None


@dataclass(slots=True)
class _Batch:
    """A batch on the device since `began_ns`, which is moved forward by the time of batches in between."""

    tickets: tuple[int, ...]
    began_ns: int


class PendingRequests:
    """Every request without an answer. `release` is called with the slot of each utterance as it is answered;
    `fill` writes the control sound into a slot and returns its length in samples."""

    def __init__(self, release: Callable[[int], None], fill: Callable[[int], int]) -> None:
        self._release = release
        self._fill = fill
        self._unexplained: deque[float] = deque(maxlen=CRASHES_KEPT)
        self._lock = clock.RLock()
        self._open: dict[int, _Open] = {}
        self._on_device: list[_Batch] = []  # each but the first between the layers of the one before it
        self._loading: str | None = None
        self._load_crashes: dict[str, int] = {}
        self._models: dict[str, ModelInfo] = {}
        self._loaded: list[str] = []
        self.crowded = False  # whether a model was ever evicted
        self._starts_without_ready = 0
        self._stats = EngineStats()
        self._stopped: str | None = None
        self.up = clock.Event()  # a child is ready, or never will be

    @property
    def stats(self) -> EngineStats:
        """The counts as of now."""
        with self._lock:
            return self._stats

    def add_busy(self, ns: int) -> None:
        """Add billed time that was spent for the engine outside its child."""
        with self._lock:
            self._stats = replace(self._stats, busy_ns=self._stats.busy_ns + ns)

    @property
    def stopped(self) -> str | None:
        """Why requests are refused; None while the engine works."""
        with self._lock:
            return self._stopped

    @property
    def unbilled_ns(self) -> int:
        """Engine time that is in no result: lost, died, and of the current batch so far."""
        with self._lock:
            return self._stats.lost_ns + self._stats.died_ns + self._out_ns()

    def model(self, path: str) -> ModelInfo | None:
        """The weights last loaded for this model; None before the first time."""
        with self._lock:
            return self._models.get(path)

    @property
    def loaded(self) -> tuple[str, ...]:
        """The models in the child's memory, the newest last."""
        with self._lock:
            return tuple(self._loaded)

    def refuse_when_stopped(self) -> None:
        """Raise EngineStopped once `stop` was called."""
        if self.stopped is not None:
            raise EngineStopped(f"The engine is stopped: {self.stopped}.")

    def add(self, request: Utterance | Describe, future: AnyFuture) -> None:
        """Register `request`, to be answered through `future`. Raises EngineStopped."""
        with self._lock:
            self.refuse_when_stopped()
            self._open[request.ticket] = _Open(request, future)

    def requests(self) -> list[Utterance | Describe]:
        """The requests to send to a new child: control sounds first, then the oldest first."""
        with self._lock:
            controls = {
                t for t, e in self._open.items() if isinstance(e.request, Utterance) and e.request.control
            }
            return [
                self._open[ticket].request
                for ticket in sorted(self._open, key=lambda t: (t not in controls, t))
            ]

    def drop_job(self, job: str) -> None:
        """Do not send the utterances of `job` to another child."""
        with self._lock:
            for entry in self._open.values():
                if isinstance(entry.request, Utterance) and entry.request.job == job:
                    entry.dropped = True

    def stop(self, reason: str) -> None:
        """Answer everything with EngineStopped and accept nothing more; the first reason is kept."""
        with self._lock:
            self._stopped = self._stopped or reason
            self._answer_all(self._open, EngineStopped(f"The engine is stopped: {self._stopped}."))
            self.up.set()

    def reopen(self) -> None:
        """Accept requests again after `stop`."""
        with self._lock:
            self._stopped = None
            self._starts_without_ready = 0
            self._unexplained.clear()
            self.up.clear()

    def clear_failures(self) -> None:
        """Reset the count of unexplained crashes: the engine has passed a self-test."""
        with self._lock:
            self._unexplained.clear()

    def count_unexplained_crashes(self, seconds: float) -> int:
        """The number of children that died within the last `seconds` with no utterance or model to blame."""
        with self._lock:
            return sum(died > clock.monotonic() - seconds for died in self._unexplained)

    def take(self, report: Report) -> None:
        """Process a report from the child."""
        with self._lock:
            if isinstance(report, Ready):
                self._starts_without_ready = 0
                self.up.set()
            elif isinstance(report, CannotStart):
                self.stop(report.reason)
            elif isinstance(report, Loading):
                self._loading = report.model
            elif isinstance(report, Loaded):
                self._loading = None
                self._load_crashes.pop(report.model, None)
                if report.info is not None:
                    self._models[report.model] = report.info
                    self._loaded.append(report.model)
                loads = self._stats.loads + (report.info is not None)
                load_ns = self._stats.load_ns + report.load_ns
                self._stats = replace(self._stats, load_ns=load_ns, loads=loads)
            elif isinstance(report, Unloaded):
                self._loaded = [model for model in self._loaded if model not in report.models]
                self.crowded = True
            elif isinstance(report, Started):
                self._on_device.append(_Batch(report.tickets, clock.monotonic_ns()))
            elif isinstance(report, Finished):
                self._take_results(report)
            elif isinstance(report, Described):
                self._answer(report.ticket, report.answer)
            elif isinstance(report, Dropped):
                self._answer_all(report.tickets, JobCancelled())

    def take_death(self, ending: str, asked: bool = False) -> None:
        """Decide what the child's death means for unanswered requests; may stop the engine. A death that was
        `asked` for has no blame."""
        with self._lock:
            if self._stopped is not None:
                return
            log.warning(
                "engine process ended",
                ending=ending,
                loading=self._loading,
                on_device=[len(batch.tickets) for batch in self._on_device],
            )
            died_ns = self._stats.died_ns + self._out_ns()
            restarts = self._stats.restarts + (not asked)
            self._stats = replace(self._stats, restarts=restarts, died_ns=died_ns)
            self._answer_all([t for t, entry in self._open.items() if entry.dropped], JobCancelled())
            if not asked:
                self._starts_without_ready += 1
                self._unexplained.append(clock.monotonic())
            if self._starts_without_ready > STARTS_WITHOUT_READY:
                self.stop(
                    f"its process ended {self._starts_without_ready} times before it was ready ({ending})"
                )
            elif self._loading is not None:
                self._blame_model(self._loading, ending)
            else:
                self._blame_utterances(ending)
            self._loading, self._on_device, self._loaded = None, [], []

    def _out_ns(self) -> int:
        return clock.monotonic_ns() - self._on_device[0].began_ns if self._on_device else 0

    def _take_off(self, tickets: tuple[int, ...]) -> None:
        """Remove a finished batch; its time is not part of the batch that it interrupted."""
        for place, batch in enumerate(self._on_device):
            if batch.tickets == tickets:
                for outer in self._on_device[:place]:
                    outer.began_ns += clock.monotonic_ns() - batch.began_ns
                del self._on_device[place:]
                return

    def _take_results(self, report: Finished) -> None:
        stats = self._stats
        self._take_off(report.batch)
        if any(
            self._is_control(ticket) for ticket, _ in report.results
        ):  # it ran by itself and is not billed
            self._stats = replace(stats, lost_ns=stats.lost_ns + report.busy_ns + report.lost_ns)
        else:
            self._stats = replace(
                stats,
                busy_ns=stats.busy_ns + report.busy_ns,
                lost_ns=stats.lost_ns + report.lost_ns,
                batches=stats.batches + 1,
                utterances=stats.utterances + len(report.results),
                shapes=stats.shapes.with_batch(self._lengths([ticket for ticket, _ in report.results])),
            )
        for ticket, answer in report.results:
            entry = self._open.get(ticket)
            if entry is not None and entry.accused is not None:
                self._explain(2)  # the death of its batch and its own
                self._answer(ticket, entry.accused)
            else:
                self._answer(ticket, answer)

    def _is_control(self, ticket: int) -> bool:
        entry = self._open.get(ticket)
        return entry is not None and isinstance(entry.request, Utterance) and entry.request.control

    def _lengths(self, tickets: Iterable[int]) -> tuple[int, ...]:
        """The lengths of a batch's utterances, in samples."""
        entries = [self._open.get(ticket) for ticket in tickets]
        return tuple(e.request.samples for e in entries if e is not None and isinstance(e.request, Utterance))

    def _explain(self, crashes: int) -> None:
        for _ in range(min(crashes, len(self._unexplained))):
            self._unexplained.pop()

    def _blame_model(self, model: str, ending: str) -> None:
        self._load_crashes[model] = self._load_crashes.get(model, 0) + 1
        if self._load_crashes[model] < LOAD_CRASHES:
            return
        del self._load_crashes[model]
        self._explain(LOAD_CRASHES)
        waiting = [
            ticket
            for ticket, entry in self._open.items()
            if model in models_of(entry.request.model, entry.request.search)
        ]
        error = ModelUnreadable(f"Loading the model {model} ends the engine's process ({ending}).")
        self._answer_all(waiting, error)

    def _blame_utterances(self, ending: str) -> None:
        # Of nested batches the device ran the innermost; the others are sent again unchanged.
        for ticket in self._on_device[-1].tickets if self._on_device else ():
            entry = self._open.get(ticket)
            if entry is None or not isinstance(entry.request, Utterance):
                continue
            if entry.request.control:
                self.stop(f"its process ends on any utterance ({ending})")
                return
            if entry.request.alone:
                seconds = entry.request.samples / 16_000
                entry.accused = EngineCrashed(
                    f"This utterance of {seconds:.1f} s ends the engine's process, even when it runs alone "
                    f"({ending})."
                )
                samples = self._fill(entry.request.slot)
                entry.request = replace(entry.request, samples=samples, control=True)
            else:
                entry.request = replace(entry.request, alone=True)

    def _answer_all(self, tickets: Iterable[int], error: SpoolError) -> None:
        for ticket in list(tickets):
            self._answer(ticket, error)

    def _answer(self, ticket: int, answer: Recognition | ModelInfo | SpoolError) -> None:
        entry = self._open.pop(ticket, None)
        if entry is None:
            return
        if isinstance(entry.request, Utterance):
            self._release(entry.request.slot)
        with contextlib.suppress(InvalidStateError):  # the caller cancelled the future itself
            if isinstance(answer, SpoolError):
                entry.future.set_exception(answer)
            else:
                entry.future.set_result(answer)  # type: ignore[arg-type]
