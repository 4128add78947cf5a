"""Takes a worker out of service while it is unwell or outside its hours, and puts it back.

Unwell: no message is taken from the queue, running jobs go back to it at their next saved chunk, and the row
in `workers` says why. At intervals the engine is restarted if it has stopped and has to transcribe a harmless
sound; once that succeeds and disk and clock are in order, the worker resumes. If its model does not load
for a long time and no other worker of the pool offers it, the jobs that wait for it fail with the reason. If
the settings ask for it, an unwell worker exits with code 1 instead. `worker.service.health` knows what can be
wrong.
"""

import contextlib
import math
from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as NotYet
from typing import Protocol

import structlog

from spool import clock
from spool.domain.fleet.routing import route_of
from spool.errors import ModelError, SpoolError
from spool.store.jobs import find_queued
from spool.store.queue.queues import queues_waiting
from spool.store.queue.unserved import fail_unservable
from spool.store.workers import ready_workers
from worker.service.context import WorkerContext
from worker.service.health import engine_problem, machine_problems

log = structlog.get_logger(__name__)

TEST_SECONDS = 600.0  # a model may have to be loaded first
FIRST_TRY_SECONDS = 5.0  # to the first self-test after jobs failed, which may have been their own fault


class Intake(Protocol):
    """Where messages come from."""

    def pause(self) -> None:
        """Stop taking messages."""

    def resume(self) -> None:
        """Resume taking messages."""

    def serve(self, queues: Iterable[str]) -> None:
        """Take messages of these queues too."""


class Supervisor(clock.Thread):
    """A daemon thread that supervises the worker until stopped. `leave` ends the process with code 1;
    `leave(True)` does so although threads hang."""

    def __init__(self, context: WorkerContext, intake: Intake, leave: Callable[[bool], None]) -> None:
        super().__init__(name="worker-supervisor", daemon=True)
        self._context = context
        self._intake = intake
        self._leave = leave
        self._stopping = clock.Event()
        self._next_try = 0.0
        self._out = False
        self._freed = False
        self._unloadable: dict[str, float] = {}

    def stop(self) -> None:
        """Stop supervising."""
        self._stopping.set()
        self._context.health.changed.set()

    def run(self) -> None:
        """One round each heartbeat."""
        changed = self._context.health.changed
        while not self._stopping.is_set():
            changed.wait(self._context.settings.heartbeat_seconds)
            changed.clear()
            try:
                if not self._stopping.is_set():
                    self.round()
            except Exception:
                log.exception("supervision failed")  # the worker goes on as it was

    def keep_hours(self) -> None:
        """Rest when the hours of the settings are over, work again when they begin."""
        off = self._context.off
        if not off.look():
            return
        if off.reason is not None:
            log.info("resting", reason=off.reason)
            self._intake.pause()
            return
        log.info("at work again")
        if self._context.health.reason is None:
            self._take_messages()

    def _free_memory(self) -> None:
        """Outside its hours, free the models' memory for whoever uses the machine."""
        if self._context.off.reason is None:
            self._freed = False
        elif not self._freed and not self._context.job_gate.taken:
            self._freed = True
            self._context.engine.restart()

    def round(self) -> None:
        """Check the worker once and act on the result."""
        if self._context.draining.is_set():
            return
        self.keep_hours()
        self._free_memory()
        self._serve_queues()
        health = self._context.health
        if health.reason is None:
            problem = self._problem()
            if problem is not None:
                self._rest(problem)
        elif not self._out:  # a failing job has set it
            self._rest(health.reason, FIRST_TRY_SECONDS)
        elif clock.monotonic() >= self._next_try:
            problem = self._still()
            if problem is None:
                self._return()
            elif health.hanging:
                self._leave(True)
            else:
                log.warning("still unwell", reason=problem)
                health.set(problem)
                self._wait()

    def _serve_queues(self) -> None:
        """Take messages of every queue whose jobs wait and are for machines like this one."""
        context = self._context
        with contextlib.suppress(SpoolError):
            with context.db.read() as tx:
                waiting = queues_waiting(tx)
            routes = [(queue, route_of(queue)) for queue in waiting]
            offer = context.offer
            self._intake.serve(queue for queue, each in routes if not each.live and offer.takes(each))

    def _problem(self) -> str | None:
        context = self._context
        problem = engine_problem(context.engine) or context.health.jobs_problem()
        return problem or next(machine_problems(context.settings, context.db), None)

    def _rest(self, reason: str, first_seconds: float = math.inf) -> None:
        log.error("unwell", reason=reason)
        self._out = True
        self._context.health.set(reason)
        self._intake.pause()
        self._wait(first_seconds)
        if self._context.settings.unwell_exit:
            self._leave(bool(self._context.health.hanging))

    def _wait(self, most_seconds: float = math.inf) -> None:
        self._next_try = clock.monotonic() + min(most_seconds, self._context.settings.unwell_retry_seconds)

    def _still(self) -> str | None:
        """What is still wrong; None if the self-test passes."""
        context = self._context
        if context.health.hanging:
            return context.health.jobs_problem()
        problem = self._lack_problem() or next(machine_problems(context.settings, context.db), None)
        if problem is not None:
            return problem
        try:
            if context.engine.stopped is not None:
                context.engine.revive()
            settings = context.settings
            # Models that this worker does not have are left to other workers.
            suspected = {settings.self_test_model, *context.health.suspected_models} & set(settings.models)
            for name in sorted(suspected):
                self._probe(name)
        except NotYet:
            return f"the self-test did not end within {TEST_SECONDS:.0f} s"
        except SpoolError as error:
            return error.message
        self._unloadable.clear()
        context.engine.clear_failures()
        return None

    def _lack_problem(self) -> str | None:
        """What still keeps the worker from reading recordings that wait."""
        health = self._context.health
        waiting = health.lacking_jobs
        if not waiting:
            return None
        with contextlib.suppress(SpoolError), self._context.db.read() as tx:
            waiting = find_queued(tx, waiting)
        return health.lack_problem(waiting)

    def _probe(self, name: str) -> None:
        """Transcribe a harmless sound with the model. Raises what the engine raises, and TimeoutError."""
        try:
            self._context.engine.probe(self._context.settings.models[name]).result(TEST_SECONDS)
        except ModelError as error:
            since = self._unloadable.setdefault(name, clock.monotonic())
            if clock.monotonic() - since >= self._context.settings.model_grace_seconds:
                self._give_up(name, error)
            raise
        self._unloadable.pop(name, None)

    def _give_up(self, name: str, error: ModelError) -> None:
        """The model has not loaded for so long: end the jobs that wait for it in vain, unless others could
        take them."""
        context, grace = self._context, self._context.settings.model_grace_seconds
        reason = (error.code, f"{error.message} No worker could load the model for {grace:g} s.")
        with context.db.begin() as tx:
            ready = ready_workers(tx)
            routes = [(queue, route_of(queue)) for queue in queues_waiting(tx)]
            queues = [
                queue
                for queue, route in routes
                if context.offer.takes(route, name) and not any(each.takes(route, name) for each in ready)
            ]
            failed = fail_unservable(tx, queues, name, grace, reason)
        if failed:
            log.error("jobs failed for want of their model", model=name, jobs=failed, error=error.message)

    def _return(self) -> None:
        log.info("well again", was=self._context.health.reason)
        self._out = False
        self._context.health.set(None)
        if self._context.off.reason is None:
            self._take_messages()

    def _take_messages(self) -> None:
        with contextlib.suppress(SpoolError):
            self._intake.resume()
