"""The engine's child in a simulation: answers what the worker's real `Engine` asks, and dies as told.

It speaks the protocol of its parent's version, in batches, and takes virtual time. Its words depend on the
samples alone.
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Recognition
from spool.domain.transcript import Word
from spool.errors import SpoolError
from tests.simulation.product import Product
from tests.simulation.scheduler import Process, Scheduler
from worker.engine.protocol import Report, Request, Utterance

RATE = 16_000
MOST_BATCH = 4
PACE, FAST_PACE = 3.0, 150.0
"""Seconds of audio that are decoded in a second."""
FAST = 0.25
"""How many engines are fast: their workers claim several short jobs at once."""
POISON = 0.99
"""A sample that ends the process of whoever decodes it."""


@dataclass
class EngineFaults:
    """What goes wrong with engines: `death` decides at each batch, `failure` for each utterance; `heard` is
    told of each chunk that is decoded: the job's attempt and the mark of the chunk; `broken` are workers
    whose engines end at once."""

    death: Callable[[], bool] = lambda: False
    failure: Callable[[], bool] = lambda: False
    slowness: Callable[[], float] = lambda: 1.0
    broken: set[Process] = field(default_factory=set)
    heard: Callable[[str, str], None] = field(default=lambda _job, _mark: None)


class SimulatedChild:
    """In place of `worker.engine.client.EngineProcess`."""

    numbers = itertools.count(1)

    def __init__(
        self,
        scheduler: Scheduler,
        faults: EngineFaults,
        samples_of: Callable[[int, int], NDArray[np.float32]],
    ) -> None:
        """`samples_of` reads a slot of the shared memory."""
        parent = self._parent = scheduler.current().process
        self._scheduler, self._faults, self._samples_of = scheduler, faults, samples_of
        product: Product = parent.product
        self._protocol, self._errors = product.module("worker.engine.protocol"), product.errors
        self._recognition = product.module("spool.domain.recognition")
        self._word = product.module("spool.domain.transcript").Word
        self._info = product.module("worker.models.base").ModelInfo(
            name="simulated", sha256="5" * 64, heads=("tdt",), languages=("en",)
        )
        self._process = Process(f"{parent.name}.engine{next(self.numbers)}")
        self._asked: deque[Request] = deque()
        self._told: deque[Report] = deque()
        self._loaded = False
        self._pace = FAST_PACE if scheduler.random.random() < FAST else PACE
        parent.ends.append(self.kill)
        parent.children.append(self._process)
        scheduler.spawn(self._process, "serve", self._serve)

    @property
    def pid(self) -> int | None:
        return 1

    def send(self, request: Request) -> None:
        self._asked.append(request)
        self._scheduler.wake(self._asked)

    def receive(self) -> Report | None:
        self._scheduler.wait(self._told, lambda: bool(self._told) or self._process.dead, None)
        return self._told.popleft() if self._told else None

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        if not self._process.dead:
            self._scheduler.kill(self._process)
            self._scheduler.wake(self._told)

    def reap(self) -> str:
        return "signal 9"

    # --- in the child ---------------------------------------------------------------------------------------

    def _serve(self) -> None:
        scheduler = self._scheduler
        scheduler.sleep(scheduler.random.uniform(0.5, 3.0))
        broken = self._parent in self._faults.broken
        if broken and scheduler.random.random() < 0.7:
            self._die()
        self._tell(self._protocol.Ready(1))
        if broken:
            scheduler.sleep(0.5)
            self._die()
        while True:
            scheduler.wait(self._asked, lambda: bool(self._asked), None)
            request = self._asked.popleft()
            if isinstance(request, self._protocol.Stop):
                self._die()
            elif isinstance(request, self._protocol.Describe):
                self._load(request.model)
                self._tell(self._protocol.Described(request.ticket, self._info))
            elif isinstance(request, self._protocol.DropJob):
                self._drop(request.job)
            elif isinstance(request, self._protocol.Utterance):
                self._load(request.model)
                self._decode(self._take_batch(request))

    def _take_batch(self, first: Utterance) -> list[Utterance]:
        batch = [first]
        while not first.alone and len(batch) < MOST_BATCH and self._asked:
            following = self._asked[0]
            if (
                not isinstance(following, self._protocol.Utterance)
                or following.alone
                or following.search != first.search
            ):
                break
            batch.append(following)
            self._asked.popleft()
        return batch

    def _load(self, model: str) -> None:
        if self._loaded:
            return
        self._tell(self._protocol.Loading(model))
        began = self._scheduler.now_ns
        self._scheduler.sleep(self._scheduler.random.uniform(1.0, 5.0))
        self._loaded = True
        self._tell(self._protocol.Loaded(model, self._scheduler.now_ns - began, self._info))

    def _drop(self, job: str) -> None:
        dropped = [
            each for each in self._asked if isinstance(each, self._protocol.Utterance) and each.job == job
        ]
        for each in dropped:
            self._asked.remove(each)
        self._tell(self._protocol.Dropped(tuple(each.ticket for each in dropped)))

    def _decode(self, batch: list[Utterance]) -> None:
        scheduler, tickets = self._scheduler, tuple(each.ticket for each in batch)
        self._tell(self._protocol.Started(tickets))
        began = scheduler.now_ns
        seconds = sum(each.samples for each in batch) / RATE / self._pace * self._faults.slowness()
        heard = [self._samples_of(each.slot, each.samples) for each in batch]
        scheduler.sleep(seconds * scheduler.random.uniform(0.2, 0.8))
        controls = any(each.control for each in batch)
        poisoned = any(float(samples.max(initial=0)) >= 0.98 for samples in heard)
        # An utterance that runs alone has been in a batch that died: a second chance death would accuse it.
        if (
            poisoned
            or self._parent in self._faults.broken
            or (not controls and not batch[0].alone and self._faults.death())
        ):
            self._die()
        scheduler.sleep(seconds * 0.2)
        took_ns = max(len(batch), scheduler.now_ns - began)
        shares = [took_ns // len(batch)] * len(batch)
        shares[0] += took_ns - sum(shares)
        results: list[tuple[int, Recognition | SpoolError]] = []
        lost_ns = 0
        for each, samples, share in zip(batch, heard, shares, strict=True):
            if not each.control and self._faults.failure():
                results.append((each.ticket, self._errors.EngineError("The logits are not finite.")))
                lost_ns += share
                continue
            if not each.control:
                self._faults.heard(each.job, each.mark)
            results.append((each.ticket, self._recognize(samples, share)))
        busy_ns = took_ns - lost_ns
        self._tell(self._protocol.Finished(tuple(results), busy_ns, lost_ns, tickets))

    def _recognize(self, samples: NDArray[np.float32], engine_ns: int) -> Recognition:
        loud = round(1000 * float(np.sqrt(np.mean(np.square(samples[:RATE], dtype=np.float64)))))
        seconds = max(1, len(samples) // RATE)
        words, tokens = _said(self._word, seconds, loud)
        best = self._recognition.Hypothesis(tokens, -1.0, tokens, tokens)
        recognized: Recognition = self._recognition.Recognition(
            hypotheses=(best,),
            words=words,
            frames=seconds * 12,
            makers=self._info.makers,
            engine_ns=engine_ns,
        )
        return recognized

    def _tell(self, report: Report) -> None:
        self._told.append(report)
        self._scheduler.wake(self._told)

    def _die(self) -> None:
        self._process.dead = True
        self._scheduler.wake(self._told)
        self._scheduler.sleep(0)


@lru_cache(10_000)
def _said(make: type[Word], seconds: int, loud: int) -> tuple[tuple[Word, ...], tuple[int, ...]]:
    words = tuple(
        make(text=f"level{loud}", start=at + 0.1, end=at + 0.5, confidence=1.0)
        for at in range(0, seconds, max(1, seconds // 3))
    )
    return words, tuple(range(len(words)))
