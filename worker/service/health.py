"""Whether this machine is well enough to take jobs, and the checks that decide it.

Each check returns what is wrong, as a sentence for an operator, or None. Nothing here acts:
`worker.service.supervisor` takes the worker out of service, `spool-worker check` prints. Knows disk, clock
and engine; knows no job.
"""

import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from spool import clock
from spool.errors import DiskFull, SpoolError
from spool.settings import Settings
from spool.store.database import Database
from spool.store.sql import read_clock
from worker.engine.client import Engine
from worker.models.quality import quality_problem

WINDOW_SECONDS = 600.0
ENGINE_CRASHES = 5  # within the window, without a culprit
FAILURES_IN_A_ROW = 3  # different jobs that this worker gave back as ones that it cannot do
DISK_FAILURES = 3  # jobs within the window that found no room, although the disk looks well now
PROBE_BYTES = b"spool" * 1000
LACKING_SECONDS = 30.0  # how long jobs of a missing language model are left to other workers


class Health:
    """What is known of this worker's health. Thread-safe."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._reason: str | None = None
        self._disk_failures: deque[float] = deque(maxlen=DISK_FAILURES)
        self._hanging: set[str] = set()
        self._failed: dict[str, dict[str, str]] = {}
        self._failed_since_success: set[str] = set()
        self._lacks: dict[str, Callable[[], str | None]] = {}
        self._lacking_language_models: dict[str, float] = {}
        self.changed = clock.Event()
        """Set when a job has made the worker unwell, so that nobody waits for the next look."""

    @property
    def reason(self) -> str | None:
        """Why the worker takes no jobs; None while it is well."""
        with self._lock:
            return self._reason

    def set(self, reason: str | None) -> None:
        """Say that the worker is unwell, or with None that it is well again."""
        with self._lock:
            self._reason = reason
            if reason is None:
                self._disk_failures.clear()
                self._failed.clear()
                self._failed_since_success.clear()
                self._lacks.clear()

    def lack(self, job_id: str, reason: str, find_problem: Callable[[], str | None]) -> None:
        """The worker cannot read the job's recording here. It is unwell from now on, until `find_problem`
        answers None or the job no longer waits."""
        with self._lock:
            self._lacks[job_id] = find_problem
            if self._reason is None:
                self._reason = reason
                self.changed.set()

    @property
    def lacking_jobs(self) -> frozenset[str]:
        """Jobs that this worker could not read the recordings of."""
        with self._lock:
            return frozenset(self._lacks)

    def lack_problem(self, waiting: Collection[str]) -> str | None:
        """What still keeps the worker from reading the recordings of the jobs in `waiting`."""
        with self._lock:
            lacks = dict(self._lacks)
        problems = (find() for job_id, find in lacks.items() if job_id in waiting)
        return next((problem for problem in problems if problem is not None), None)

    def note(self, error: SpoolError) -> None:
        """Note an error that a job met here."""
        if isinstance(error, DiskFull):
            with self._lock:
                self._disk_failures.append(clock.monotonic())

    def job_failed(self, job_id: str, model: str, why: str, *, proven: bool = False) -> None:
        """The job was given back as one that this worker cannot do. After several in a row, or where a
        self-test has `proven` it, the worker is unwell from now on."""
        with self._lock:
            jobs = self._failed.setdefault(model, {})
            jobs[job_id] = why
            self._failed_since_success.add(job_id)
            in_a_row = max(len(jobs), len(self._failed_since_success))
            if self._reason is None and (proven or in_a_row >= FAILURES_IN_A_ROW):
                self._reason = f"{in_a_row} jobs in a row failed here and may not elsewhere; the last: {why}"
                if proven:
                    self._reason = f"a job failed here, and so did the self-test after it: {why}"
                self.changed.set()

    def job_succeeded(self, model: str) -> None:
        """A job of this model is done."""
        with self._lock:
            self._failed.pop(model, None)
            self._failed_since_success.clear()

    @property
    def suspected_models(self) -> frozenset[str]:
        """The models of the jobs that failed since one of theirs was done."""
        with self._lock:
            return frozenset(self._failed)

    def lack_language_model(self, name: str) -> None:
        """Leave jobs that ask for a language model that is not here to other workers for a while."""
        with self._lock:
            self._lacking_language_models[name] = clock.monotonic() + LACKING_SECONDS

    @property
    def lacking_language_models(self) -> frozenset[str]:
        """The language models whose jobs are left to others now."""
        with self._lock:
            return _still_valid(self._lacking_language_models)

    def hangs(self, job_id: str) -> None:
        """Note that the thread of this job does not return."""
        with self._lock:
            self._hanging.add(job_id)

    def came_back(self, job_id: str) -> None:
        """Note that the thread of this job has returned."""
        with self._lock:
            self._hanging.discard(job_id)

    @property
    def hanging(self) -> frozenset[str]:
        """Jobs whose threads do not return."""
        with self._lock:
            return frozenset(self._hanging)

    def jobs_problem(self) -> str | None:
        """What the jobs have shown to be wrong with this worker."""
        if hanging := self.hanging:
            return f"a thread hangs in {', '.join(sorted(hanging))}"
        with self._lock:
            recent = sum(at > clock.monotonic() - WINDOW_SECONDS for at in self._disk_failures)
        return f"{recent} jobs found no room on the disk" if recent >= DISK_FAILURES else None


def machine_problems(settings: Settings, db: Database) -> Iterator[str]:
    """What is wrong with disk, clock and the quality of recognition."""
    for problem in (
        disk_problem(settings.home, settings.disk_floor_bytes),
        write_problem(settings.home / "tmp"),
        clock_problem(db, settings.max_clock_skew_seconds),
        quality_problem(settings.home, settings.models.keys(), settings.min_qoi),
    ):
        if problem is not None:
            yield problem


def disk_problem(home: Path, floor: int) -> str | None:
    """Too little room under the home, where recordings are copied."""
    try:
        free = shutil.disk_usage(find_existing(home)).free
    except OSError as error:
        return f"the disk of {home} cannot be asked: {error.strerror}"
    if free < floor:
        return f"{free >> 20} MiB are free for {home}, less than the {floor >> 20} that are kept"
    return None


def write_problem(folder: Path) -> str | None:
    """A small file that cannot be written, kept and read back."""
    path = folder / f"probe-{os.getpid()}-{threading.get_ident()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("wb") as file:
                file.write(PROBE_BYTES)
                file.flush()
                os.fsync(file.fileno())
            if path.read_bytes() != PROBE_BYTES:
                return f"{folder} gives back other bytes than were written"
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return None


def clock_problem(db: Database, most: float) -> str | None:
    """This machine's clock is not the database's. A database that does not answer is not this machine's
    fault."""
    before = clock.time()
    try:
        with db.read() as tx:
            theirs = read_clock(tx).timestamp()
    except SpoolError:
        return None
    middle = (before + clock.time()) / 2
    if abs(middle - theirs) > most:
        return f"this machine's clock is {middle - theirs:+.0f} s from the database's"
    return None


def engine_problem(engine: Engine) -> str | None:
    """The engine has stopped, or crashes repeatedly without a culprit."""
    if engine.stopped is not None:
        return f"the engine is stopped: {engine.stopped}"
    crashes = engine.count_unexplained_crashes(WINDOW_SECONDS)
    if crashes >= ENGINE_CRASHES:
        return f"the engine's process ended {crashes} times in {WINDOW_SECONDS / 60:.0f} minutes"
    return None


def _still_valid(until: dict[str, float]) -> frozenset[str]:
    now = clock.monotonic()
    return frozenset(name for name, end in until.items() if end > now)


def find_existing(place: Path) -> Path:
    """The place itself, or the nearest folder above it that exists."""
    while not place.exists():
        place = place.parent
    return place
