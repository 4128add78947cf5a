"""Answers that outlive a killed worker: its engine leaves them in a folder for the next worker of this host.

An engine whose parent has died finishes the batch on the device, writes the answers that the parent had
neither saved nor billed (`Unsettled`), a file for each attempt at a job, and ends. Meanwhile it holds a lock
in the folder, for which others wait before they load a model or go on with one of the jobs. The attempt that
follows takes its file, once. A file holds words, so it is readable by its user only and soon removed.
"""

import contextlib
import fcntl
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from pydantic import TypeAdapter, ValidationError

from spool import clock
from spool.domain.recognition import Recognition
from spool.errors import SpoolError
from worker.engine.protocol import Utterance

FINISH_SECONDS = 10.0
"""How long an engine without its parent may go on."""
WAIT_SECONDS = FINISH_SECONDS + 2.0
POLL_SECONDS = 0.1
MOST_AGE = 300.0
MOST_ANSWERS = 1_000
MOST_BYTES = 64 << 20

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class HandedOver:
    """Answers by the marks of their chunks, and the worker whose engine gave them, which is billed."""

    worker_id: str
    answers: dict[str, Recognition]


_CONTENT = TypeAdapter(HandedOver)


class HandoverFolder:
    """The folder of one host. Without a path nothing is handed over."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    def put(self, job: str, content: HandedOver) -> None:
        """Leave the answers to an attempt, by its name in the engine. Raises OSError and ValueError."""
        if self._path is None:
            return
        data = _CONTENT.dump_json(content)
        if len(data) > MOST_BYTES:
            raise ValueError(f"{len(data) >> 20} MiB of answers")
        temporary = self._file(job, f"{os.getpid()}.new")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(hashlib.sha256(data).digest() + data)
        temporary.replace(self._file(job, "answers"))

    def take(self, job: str) -> HandedOver | None:
        """What was left for the attempt that follows `job`. Whoever takes it first has it; what cannot be
        read is dropped."""
        if self._path is None:
            return None
        taken = self._file(job, f"{os.getpid()}-{threading.get_ident()}.taken")
        try:
            self._file(job, "answers").rename(taken)  # of two that try, one succeeds
        except OSError:
            return None
        try:
            if _age(taken) > MOST_AGE:
                return None
            data = taken.read_bytes()
            if hashlib.sha256(data[32:]).digest() != data[:32]:
                raise ValueError("not what was written")
            return _CONTENT.validate_json(data[32:])
        except (OSError, ValueError) as error:
            log.warning("answers of a killed worker not taken over", job=job, error=_kind(error))
            return None
        finally:
            with contextlib.suppress(OSError):
                taken.unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove what nobody has taken in time."""
        for file in self._files("*"):
            with contextlib.suppress(OSError):
                if _age(file) > MOST_AGE:
                    file.unlink(missing_ok=True)

    def hold(self) -> None:
        """Say, until this process ends, that it still finishes. Makes the folder. Raises OSError."""
        if self._path is None:
            return
        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = self._path / f"{os.getpid()}.new"
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        lock.rename(lock.with_suffix(".lock"))  # nobody sees it before it is held

    def wait(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait, but not for long, until no engine of a killed worker is finishing; `check` may raise to
        stop."""
        end = clock.monotonic() + WAIT_SECONDS
        while any(map(_is_held, self._files("*.lock"))) and clock.monotonic() < end:
            check()
            clock.sleep(POLL_SECONDS)

    def _file(self, job: str, suffix: str) -> Path:
        assert self._path is not None
        return self._path / f"{job.replace('/', '.')}.{suffix}"

    def _files(self, pattern: str) -> Iterable[Path]:
        return [] if self._path is None else list(self._path.glob(pattern))


class Unsettled:
    """What an engine has answered and its parent has not settled. The engine's two threads use it."""

    def __init__(self, folder: Path | None = None, worker_id: str = "") -> None:
        self._folder = HandoverFolder(folder)
        self._keeps = folder is not None
        self._worker_id = worker_id
        self._answers: dict[tuple[str, str], Recognition] = {}
        self._running = 0  # batches on the device, one inside another
        self._changed = clock.Condition()

    def begin(self) -> None:
        """A batch is on the device."""
        with self._changed:
            self._running += 1

    def end(
        self, batch: Sequence[Utterance], results: Iterable[tuple[int, Recognition | SpoolError]]
    ) -> None:
        """It has ended; keep its answers, but for those with arrays."""
        asked = {utterance.ticket: utterance for utterance in batch if utterance.mark}
        with self._changed:
            self._running -= bool(batch)
            for ticket, answer in results if self._keeps else ():
                if ticket in asked and isinstance(answer, Recognition) and answer.output is None:
                    self._answers[asked[ticket].job, asked[ticket].mark] = answer
            while len(self._answers) > MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
            self._changed.notify_all()

    def stop(self) -> None:
        """Nothing runs on the device any more."""
        with self._changed:
            self._running = 0
            self._changed.notify_all()

    def settle(self, job: str, mark: str) -> None:
        """The parent has saved this answer, or will bill it as wasted."""
        with self._changed:
            self._answers.pop((job, mark), None)

    def hand_over(self) -> None:
        """The parent is gone: wait for the batch on the device, and leave what is not settled. Never
        raises."""
        if not self._keeps:
            return
        try:
            self._folder.hold()
            with self._changed:
                self._changed.wait_for(lambda: not self._running, FINISH_SECONDS)
                answers = dict(self._answers)
            for job in {job for job, _ in answers}:
                own = {mark: answer for (of, mark), answer in answers.items() if of == job}
                self._folder.put(job, HandedOver(self._worker_id, own))
            log.warning("the worker is gone; its answers are handed over", answers=len(answers))
        except Exception as error:  # noqa: BLE001 - they are decoded again then
            log.warning("answers not handed over", error=_kind(error))


def _age(file: Path) -> float:
    return abs(clock.time() - file.stat().st_mtime)


def _is_held(lock: Path) -> bool:
    """Whether the process that made it lives; else it is removed."""
    try:
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.unlink(missing_ok=True)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def _kind(error: Exception) -> str:
    """Without a validation's message, which quotes words."""
    return type(error).__name__ if isinstance(error, ValidationError) else str(error)
