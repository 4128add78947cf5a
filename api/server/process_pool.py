"""Several API processes on one socket, replaced when one dies or freezes, and stopped together.

Each process is spawned with the listening socket, sends a heartbeat every second once it answers requests,
and exits when its parent is gone. One whose heartbeats stop is killed, since it would keep the connections it
has accepted. What the processes serve is up to the caller.
"""

import contextlib
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import structlog

from spool import clock
from spool.errors import SpoolError
from spool.settings import Settings

Target = Callable[[Settings, socket.socket, Callable[[], None]], None]
"""What a process runs: serve on the socket, and call the callable once it answers and every second after."""

_TIMEOUT_S = 30.0  # for requests under way, after SIGTERM
_SILENT_S = 30.0  # its event loop is frozen
_STARTING_S = 300.0  # it never answers
_LOOK_S = 2.0
_PAUSE_S = 1.0  # between a death and the next start, so that a process that cannot start does not spin

log = structlog.get_logger(__name__)


class ProcessPoolError(SpoolError):
    """An API process exited before it answered a request."""

    code = "api"


@dataclass(slots=True)
class _Member:
    process: SpawnProcess
    parent: "Connection[object, None]"
    answers: bool = False
    heard_at: float = field(default_factory=clock.monotonic)

    @property
    def is_silent(self) -> bool:
        """Whether its heartbeats stopped so long ago that it must be frozen."""
        return clock.monotonic() - self.heard_at > (_SILENT_S if self.answers else _STARTING_S)


@dataclass
class ProcessPool:
    """`size` processes that run `target` on one listening socket."""

    settings: Settings
    listener: socket.socket
    target: Target
    size: int
    _members: list[_Member] = field(default_factory=list)
    _stopping: bool = False

    def run(self, ready: Callable[[], None]) -> None:
        """Serve until SIGTERM or SIGINT; `ready` is called once all answer. Raises ProcessPoolError."""
        reader, wakeup = multiprocessing.Pipe(duplex=False)
        before = {
            number: signal.signal(number, lambda *_: self._stop(wakeup))
            for number in (signal.SIGTERM, signal.SIGINT)
        }
        try:
            self._members = [self._start() for _ in range(self.size)]
            answering = False
            while not self._stopping:
                self._look(reader)
                if not answering and all(member.answers for member in self._members):
                    answering = True
                    ready()
        finally:
            self._end()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, wakeup: "Connection[None, None]") -> None:
        self._stopping = True
        wakeup.send(None)

    def _look(self, wakeup: "Connection[None, None]") -> None:
        """Wait for a heartbeat, a frozen or dead process, or the signal to stop."""
        members = {member.parent: member for member in self._members}
        ends = [member.process.sentinel for member in self._members]
        for event in wait([wakeup, *members, *ends], _LOOK_S):
            if event in members:
                with contextlib.suppress(EOFError, OSError):
                    self._hear(members[event])
        if self._stopping:
            return
        for member in self._members:
            if member.is_silent and member.process.exitcode is None:
                log.error("an API process is frozen", pid=member.process.pid)
                member.process.kill()
                member.process.join()
        for number, member in enumerate(self._members):
            if member.process.exitcode is not None:
                self._members[number] = self._replacement(member)

    @staticmethod
    def _hear(member: _Member) -> None:
        while member.parent.poll():  # including what it sent while this process was itself stopped
            member.parent.recv()
            member.answers, member.heard_at = True, clock.monotonic()

    def _replacement(self, dead: _Member) -> _Member:
        dead.process.join()
        dead.parent.close()
        if not dead.answers:
            raise ProcessPoolError(
                f"An API process exited before it answered (exit code {dead.process.exitcode})."
            )
        log.error("an API process exited", pid=dead.process.pid, exit_code=dead.process.exitcode)
        clock.sleep(_PAUSE_S)
        return self._start()

    def _start(self) -> _Member:
        context = multiprocessing.get_context("spawn")
        parent, child = context.Pipe()
        process = context.Process(
            target=_serve, args=(self.target, self.settings, self.listener, child), name="spool-api"
        )
        process.start()
        child.close()  # otherwise the child's exit would never be noticed
        return _Member(process, parent)

    def _end(self) -> None:
        for member in self._members:
            if member.process.is_alive():
                member.process.terminate()
        deadline = clock.monotonic() + self.settings.api_drain_seconds + _TIMEOUT_S
        for member in self._members:
            member.process.join(max(0.0, deadline - clock.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.parent.close()


def _serve(
    target: Target, settings: Settings, listener: socket.socket, parent: "Connection[None, object]"
) -> None:
    clock.Thread(target=_end_with_parent, args=(parent,), name="api-parent", daemon=True).start()

    def alive() -> None:
        with contextlib.suppress(OSError):  # without a parent it is about to exit
            parent.send(None)

    target(settings, listener, alive)


def _end_with_parent(parent: "Connection[None, object]") -> None:
    with contextlib.suppress(EOFError, OSError):
        parent.recv()
    os.kill(os.getpid(), signal.SIGTERM)
