"""The engine as the worker's process sees it: utterances in, futures out, one child process that owns MLX.

`Engine` feeds the child and outlives it: every utterance is kept until it is answered
(`worker.engine.pending`), so when the child dies, a new one is started and receives everything again.
Utterances that were on the device at that moment run one at a time; one that ends the process a second time,
alone, fails with EngineCrashed if the next child passes its self-test. If it does not, the engine stops and
no utterance is blamed. `EngineProcess` is one child from start to end: its process and its pipe. Neither
imports MLX in this process.

Busy time is what children measured around batches that returned results (`busy_ns`); it equals the sum of
`engine_ns` over all results exactly. The time of a batch that raised, and of an utterance that failed in a
batch that did not, is `lost_ns`; model loading is `load_ns`. Nobody measured a batch that died with its
child: `died_ns` is how long it was out by this process's clock, which is an upper bound.
"""

import atexit
import contextlib
import itertools
import multiprocessing
import sys
from collections.abc import Hashable
from concurrent.futures import Future
from multiprocessing.connection import Connection

import numpy as np
import structlog
from numpy.typing import NDArray

from spool import clock
from spool.domain.priority import NORMAL
from spool.domain.recognition import Recognition
from spool.errors import EngineStopped, JobCancelled
from worker.engine.audio_slots import AudioSlots, SlotLayout
from worker.engine.pending import AnyFuture, EngineStats, PendingRequests
from worker.engine.protocol import (
    NOTHING,
    SAMPLE_RATE,
    Describe,
    DropJob,
    EngineOptions,
    Report,
    Request,
    Settled,
    Stop,
    Utterance,
)
from worker.machine.huge_pages import start_with_huge_pages
from worker.models.base import ModelInfo
from worker.models.requests import DecodeRequest

WATCHER_SECONDS = 10.0
CONTROL_SECONDS = 2
PREPARED_KEPT = 1_000
SELF_TEST = "self-test"


class Engine:
    """One child process with the models, fed by many job threads. `start` it once, `close` it once."""

    def __init__(self, options: EngineOptions | None = None) -> None:
        self.options = options or EngineOptions()
        self._slots = AudioSlots(self.options.slots, self.options.slot_samples)
        self._pending = PendingRequests(self._slots.release, self._fill_control)
        self._tickets = itertools.count(1)
        self._sending = clock.Lock()  # one request is registered and sent at a time
        self._process: EngineProcess | None = None
        self._watcher = clock.Thread()
        self._restarting: EngineProcess | None = None
        self._closed = False
        self._prepared: dict[Hashable, ModelInfo] = {}

    def start(self) -> "Engine":
        """Start the child and wait until it is ready. Raises EngineStopped if it does not start."""
        reason = self._wait_ready()
        if reason is not None:
            self.close()
            raise EngineStopped(f"The engine did not start: {reason}.")
        return self

    def revive(self) -> None:
        """Start again after the engine stopped by itself. Raises EngineStopped if it still cannot run."""
        self._watcher.join()
        if self._closed:
            raise EngineStopped("The engine is closed.")
        self._pending.reopen()
        reason = self._wait_ready()
        if reason is not None:
            self._pending.stop(reason)
            if self._process is not None:
                self._process.kill()
            raise EngineStopped(f"The engine did not start: {reason}.")

    def _wait_ready(self) -> str | None:
        """Start a child and wait until it is ready; returns None, or the reason if it is not."""
        self._spawn()
        self._watcher = clock.Thread(target=self._watch, name="engine-reports", daemon=True)
        self._watcher.start()
        came_up = self._pending.up.wait(self.options.start_seconds)
        return self.stopped if came_up else f"it was not ready within {self.options.start_seconds:.0f} s"

    def submit(
        self,
        job: str,
        samples: NDArray[np.float32],
        model: str,
        request: DecodeRequest = NOTHING,
        cancel: clock.Event | None = None,
        mark: str = "",
        priority: int = NORMAL,
    ) -> "Future[Recognition]":
        """Queue one utterance of 16 kHz mono float32 `samples` for `model` (a path or hub id).

        Utterances with equal `request.search` share batches. If this process is killed, the answer is handed
        over under its `mark`, if it has one, unless it was settled. `priority` is the job's.

        Blocks while every slot is taken. Raises JobCancelled once `cancel` is set, InvalidRequest for an
        utterance longer than a slot, EngineStopped when the engine is closed. The future raises ModelError,
        EngineError, EngineCrashed, EngineStopped, or JobCancelled after `forget`.
        """
        self._slots.check_length(len(samples))
        self._pending.refuse_when_stopped()
        try:
            slot = self._slots.acquire(job, cancel)
        except JobCancelled:
            self._pending.refuse_when_stopped()
            raise
        future: Future[Recognition] = clock.Future()
        try:
            self._slots.write(slot, samples)
            utterance = Utterance(
                next(self._tickets), job, slot, len(samples), model, request, mark=mark, priority=priority
            )
            self._post(utterance, future)
        except BaseException:
            self._slots.release(slot)
            raise
        return future

    def settle(self, job: str, mark: str) -> None:
        """The answer to this utterance of `job` is saved, or will be billed as wasted."""
        with self._sending:
            if self._process is not None and self.options.handover is not None:
                self._process.send(Settled(job, mark))

    def prepare(self, model: str, request: DecodeRequest) -> "Future[ModelInfo]":
        """As `describe`, and after the current batch prepare what the search needs: its language model and
        phrases. The future raises InvalidRequest if that is impossible.

        A repeated request that needs no preparation is answered at once.
        """
        future: Future[ModelInfo] = clock.Future()
        plain = request.language_model is None and not request.phrases and not request.spell
        question = (model, request)
        known = self._pending.model(model)
        if plain and known is not None and self._prepared.get(question) == known:
            future.set_result(known)
            return future
        if plain:
            future.add_done_callback(lambda answer: self._remember(question, answer))
        self._post(Describe(next(self._tickets), model, request), future)
        return future

    def _remember(self, question: Hashable, answer: "Future[ModelInfo]") -> None:
        if answer.cancelled() or answer.exception() is not None:
            return
        if len(self._prepared) >= PREPARED_KEPT:
            self._prepared.clear()
        self._prepared[question] = answer.result()

    def find_info(self, model: str) -> ModelInfo | None:
        """The weights last loaded for `model`; None before the first time."""
        return self._pending.model(model)

    def describe(self, model: str) -> "Future[ModelInfo]":
        """The weights of `model` (a path or hub id), at once if it was loaded before; else it is loaded after
        the current batch. The future raises ModelError."""
        future: Future[ModelInfo] = clock.Future()
        known = self._pending.model(model)
        if known is not None:
            future.set_result(known)
            return future
        self._post(Describe(next(self._tickets), model), future)
        return future

    def probe(self, model: str, request: DecodeRequest = NOTHING) -> "Future[Recognition]":
        """Self-test: decode a control sound with `model`, searched as a job's chunks are. Its time is not
        billed."""
        self._pending.refuse_when_stopped()
        slot = self._slots.acquire(SELF_TEST)
        try:
            samples = self._fill_control(slot)
            future: Future[Recognition] = clock.Future()
            utterance = Utterance(
                next(self._tickets), SELF_TEST, slot, samples, model, request, alone=True, control=True
            )
            self._post(utterance, future)
        except BaseException:
            self._slots.release(slot)
            raise
        return future

    def forget(self, job: str) -> None:
        """Drop the queued utterances of `job`: their futures raise JobCancelled at once. Utterances
        already on the device are still answered."""
        with self._sending:
            self._pending.drop_job(job)
            if self._process is not None:
                self._process.send(DropJob(job))

    def restart(self) -> None:
        """Replace the child while it is idle, which frees its models' memory; the next child loads what it
        needs."""
        with self._sending:
            process, self._restarting = self._process, self._process
        if process is not None:
            process.stop()

    def close(self) -> None:
        """End the child and fail open requests with EngineStopped. Closing twice is harmless."""
        self._closed = True
        self._pending.stop("the worker closed it")
        with self._sending:
            process = self._process
        if process is not None:
            process.stop()
        if self._watcher.is_alive():
            self._watcher.join(WATCHER_SECONDS)
        self._slots.close()

    @property
    def busy_ns(self) -> int:
        """Nanoseconds of batches that returned results, over all children, and of the speech detector."""
        return self.stats.busy_ns

    def add_busy(self, ns: int) -> None:
        """Count the speech detector's time, once it is on a job's bill (law 5)."""
        self._pending.add_busy(ns)

    @property
    def unbilled_ns(self) -> int:
        """Nanoseconds that are in no result: batches that raised or died with their child, and the current
        batch so far."""
        return self._pending.unbilled_ns

    @property
    def stats(self) -> EngineStats:
        """The counts as of now."""
        return self._pending.stats

    @property
    def loaded(self) -> tuple[str, ...]:
        """The models (paths or hub ids) in the child's memory, the newest last."""
        return self._pending.loaded

    @property
    def crowded(self) -> bool:
        """Whether a model was ever evicted to make room for another."""
        return self._pending.crowded

    @property
    def stopped(self) -> str | None:
        """Why the engine no longer accepts requests; None while it works."""
        return self._pending.stopped

    def clear_failures(self) -> None:
        """Reset the count of unexplained crashes: a self-test has passed."""
        self._pending.clear_failures()

    def count_unexplained_crashes(self, seconds: float) -> int:
        """The number of children that died within the last `seconds` without a known cause."""
        return self._pending.count_unexplained_crashes(seconds)

    @property
    def child_pid(self) -> int | None:
        """The running child's process id."""
        return self._process.pid if self._process is not None else None

    def _fill_control(self, slot: int) -> int:
        samples = _control_sound()[: self.options.slot_samples]
        with contextlib.suppress(EngineStopped):  # closed, so it will not run
            self._slots.write(slot, samples)
        return len(samples)

    def _post(self, request: Utterance | Describe, future: AnyFuture) -> None:
        # Registered and sent under the lock that a restart takes, so the next child gets whatever a dead
        # child did not.
        with self._sending:
            self._pending.add(request, future)
            if self._process is not None:
                self._process.send(request)

    def _spawn(self) -> None:
        """Start a child and send it everything that has no answer."""
        process = EngineProcess(self._slots.layout, self.options)
        with self._sending:
            self._process = process
            for request in self._pending.requests():
                process.send(request)
        if self.stopped is not None:  # closed in the meantime, and `close` saw the child before this one
            process.stop()

    def _watch(self) -> None:
        """The reports thread: reads until the engine is closed, and starts a new child when one has died."""
        while True:
            process = self._process
            assert process is not None
            while (report := process.receive()) is not None:
                self._pending.take(report)
            self._pending.take_death(process.reap(), asked=process is self._restarting)
            if self.stopped is not None:
                return
            try:
                self._spawn()
            except OSError as error:  # out of memory or processes; open requests would never be answered
                self._pending.stop(f"its process cannot be started ({error})")
                return


def _control_sound() -> NDArray[np.float32]:
    """Quiet noise, the same every time, that every working model can decode."""
    noise = np.random.default_rng(0).standard_normal(CONTROL_SECONDS * SAMPLE_RATE)
    return (0.01 * noise).astype(np.float32)


STOP_SECONDS = 5.0


def _child(connection: "Connection[Report, Request]", layout: SlotLayout, options: EngineOptions) -> None:
    """The child's entry point. The BLAS must be loaded before MLX is imported."""
    from worker.machine.blas import preload_blas

    preload_blas()
    # Standard output belongs to the command that started the engine.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    from worker.engine.server import serve

    serve(connection, layout, options)


class EngineProcess:
    """A spawned child and the pipe to it. Anything that touched Metal must not fork, so it is never
    forked."""

    def __init__(self, layout: SlotLayout, options: EngineOptions) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection: Connection[Request, Report]
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_child, args=(theirs, layout, options), name="spool-engine", daemon=True
        )
        self._sending = clock.Lock()
        self._reaping = clock.Lock()
        with start_with_huge_pages():
            self._process.start()
        theirs.close()  # otherwise the child's death would not close the pipe
        # multiprocessing's exit hook sends SIGTERM, which the child ignores, and would wait for ever.
        atexit.register(self.kill)

    @property
    def pid(self) -> int | None:
        """The child's process id."""
        return self._process.pid

    def send(self, request: Request) -> None:
        """Send a request. One to a dead child is lost; the reader of its reports notices the death."""
        with self._sending, contextlib.suppress(OSError):
            self._connection.send(request)

    def receive(self) -> Report | None:
        """Wait for the next report; None once the child is gone and all its reports were read."""
        try:
            return self._connection.recv()
        except (EOFError, OSError):
            return None

    def stop(self) -> None:
        """Ask the child to exit; kill it if it does not."""
        self.send(Stop())
        with self._reaping:
            self._process.join(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Kill the child and wait for its end."""
        with self._reaping:
            if self._process.is_alive():
                self._process.kill()
            self._process.join()
        atexit.unregister(self.kill)

    def reap(self) -> str:
        """Release the resources of a dead child and return how it ended. Only the reader of its reports may
        call this."""
        self.kill()
        with self._sending:  # a connection that is closed while another thread sends raises TypeError
            self._connection.close()
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
