"""Measures once, while a worker has nothing to do, how good its models are in 8-bit integers.

With `SPOOL_COMPUTE_TYPE=auto` a model computes in them only where that was measured on this machine
(`worker.models.quality`). `spool-worker confirm --quality` measures, in a process of its own, which is ended
as soon as there is work and begun again later. What cannot be measured is noted in the worker's home and not
tried again. Knows neither how quality is measured nor how an engine loads its models.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import TimeoutError as NotYet
from pathlib import Path
from typing import Protocol

import structlog

from kernels.runtime.build_cpu import has_integer_products
from spool import clock
from spool.domain.fleet.quality import INT8
from spool.errors import SpoolError
from spool.settings import Settings
from worker.models.quality import note_unmeasured, read_qualities, read_unmeasured
from worker.service.context import WorkerContext

log = structlog.get_logger(__name__)

QUIET_SECONDS = 120.0
LOOK_SECONDS = 0.5
LOAD_SECONDS = 600.0
COPIES = 4  # of weights in 16 bits: in 32, and what loading takes for a moment


class Idleness(Protocol):
    """What the worker is doing."""

    def is_busy(self) -> bool:
        """Whether it works, or must leave the machine to others."""

    def reload(self, path: str) -> bool:
        """Load the model at this path anew, if it was loaded before; False if there is work."""


class WorkerIdleness:
    """Of one worker: jobs in flight, and engine time that passes."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._engine_ns = -1

    def is_busy(self) -> bool:
        context = self._context
        before, self._engine_ns = self._engine_ns, context.engine.busy_ns + context.engine.unbilled_ns
        return bool(context.resting() or context.job_gate.taken or before != self._engine_ns)

    def reload(self, path: str) -> bool:
        engine = self._context.engine
        if engine.find_info(path) is None:
            return True
        until = clock.monotonic() + LOOK_SECONDS
        with self._context.job_gate.alone(lambda: clock.monotonic() > until) as entered:
            if entered:
                engine.restart()
                # Until the model is loaded, jobs would be promised the answers of the one before.
                with contextlib.suppress(SpoolError, NotYet):
                    engine.probe(path).result(LOAD_SECONDS)
        return entered


def measuring_command(model: str) -> list[str]:
    """Measures one model and writes its quality, behind everything else that wants the processor."""
    nice = ["nice", "-n", "19"] if shutil.which("nice") else []
    return [*nice, sys.executable, "-m", "worker.cli.main", "confirm", "--quality", "--model", model]


class IntegerMeasurement(clock.Thread):
    """A daemon thread that ends once every model was measured."""

    def __init__(
        self,
        settings: Settings,
        idleness: Idleness,
        command: Callable[[str], Sequence[str]] = measuring_command,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        super().__init__(name="integer-measurement", daemon=True)
        self._settings, self._idleness = settings, idleness
        self._command, self._quiet_seconds = command, quiet_seconds
        self._stopping = clock.Event()

    @property
    def applies(self) -> bool:
        """Whether this worker would compute in 8-bit integers if it knew that they are good enough."""
        settings = self._settings
        on_linux_cpu = sys.platform == "linux" and settings.device != "gpu"
        return settings.compute_type == "auto" and on_linux_cpu and has_integer_products()

    def stop(self) -> None:
        """End the measurement, if one is running."""
        self._stopping.set()
        self.join()

    def run(self) -> None:
        """Measure one model after another, each as soon as the worker has been idle for a while."""
        while (model := self._next_model()) is not None and self._wait_until_idle():
            self._measure(model)

    def _next_model(self) -> str | None:
        home = self._settings.home
        known = {*read_qualities(home), *read_unmeasured(home)}
        first = self._settings.default_model
        names = sorted(self._settings.models, key=lambda name: (name != first, name))
        return next((name for name in names if name not in known and self._fits(name)), None)

    def _fits(self, model: str) -> bool:
        """Whether there is memory for the model a second time, in single precision and while it is loaded."""
        place = Path(self._settings.models[model])
        files = place.rglob("*") if place.is_dir() else [place]
        needed = COPIES * sum(path.stat().st_size for path in files if path.is_file())
        if needed <= available_memory():
            return True
        log.info("a model is not measured in 8-bit integers for want of memory", model=model, bytes=needed)
        return False

    def _wait_until_idle(self) -> bool:
        """False once the worker stops."""
        since = clock.monotonic()
        while not self._stopping.wait(LOOK_SECONDS):
            if self._idleness.is_busy():
                since = clock.monotonic()
            elif clock.monotonic() - since >= self._quiet_seconds:
                return True
        return False

    def _measure(self, model: str) -> None:
        log.info("measuring a model in 8-bit integers while there is no work", model=model)
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                self._command(model), stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                while process.poll() is None:
                    if self._stopping.wait(LOOK_SECONDS) or self._idleness.is_busy():
                        log.info("the measurement waits until there is no work again", model=model)
                        return
            finally:
                _end(process)
            output.seek(0)
            last_lines = output.read().decode(errors="replace").strip().splitlines()[-1:]
        self._note(model, "".join(last_lines))

    def _note(self, model: str, last_line: str) -> None:
        quality = read_qualities(self._settings.home).get(model)
        if quality is None:
            note_unmeasured(self._settings.home, model)
            log.warning("a model could not be measured and stays as it is", model=model, reason=last_line)
        elif quality.dtype != INT8 or quality.qoi < self._settings.min_qoi:
            log.info("a model stays with float32", model=model, qoi=quality.qoi, measured=quality.precision)
        else:
            log.info("a model computes in 8-bit integers now", model=model, qoi=quality.qoi)
            while not self._idleness.reload(self._settings.models[model]):
                if not self._wait_until_idle():
                    return


def available_memory() -> int:
    """Bytes that a new process may take, as Linux estimates them."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and those that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
