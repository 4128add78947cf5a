"""Takes live sessions out of their queue as soon as they wait.

Each has a thread of its own beside the worker's jobs, for as many as the engine keeps up with.
"""

from dataclasses import replace

import structlog

from spool import clock
from spool.broker.live_signals import LOOK_SECONDS, WAITING, LiveSignals
from spool.errors import SpoolError
from spool.settings import Settings
from spool.store.queue.scheduler import is_live_waiting
from worker.engine.client import Engine
from worker.engine.live_session import LiveSessions
from worker.jobs.live.decoding import LiveDesk
from worker.jobs.runner import run_next
from worker.jobs.services import JobServices

log = structlog.get_logger(__name__)

CLAIM_SECONDS = 5.0
"""How long a thread that was started may take to its claim before another one is."""


def live_desk(settings: Settings, engine: Engine) -> LiveDesk:
    """What this worker's live sessions share."""
    return LiveDesk(LiveSessions(engine, share=settings.live_share), LiveSignals(settings))


class LiveIntake(clock.Thread):
    """A daemon thread that looks for sessions until stopped."""

    def __init__(self, services: JobServices, desk: LiveDesk) -> None:
        super().__init__(name="live-intake", daemon=True)
        self._services, self._desk = services, desk
        self._stopping = clock.Event()
        self._threads: list[clock.Thread] = []

    def run(self) -> None:
        """Look whenever a session is said to wait, and every second."""
        with self._desk.signals.listening(WAITING) as subscription:
            while not self._stopping.is_set():
                try:
                    while self._takes_one():
                        pass
                except SpoolError as error:
                    log.warning("no look for live sessions", error=error.message)
                subscription.wait(LOOK_SECONDS)

    def stop(self) -> None:
        """Take no more, and wait until the open ones are handed back; the worker drains by now."""
        self._stopping.set()
        self.join()
        for thread in self._threads:
            thread.join()
        self._desk.signals.close()

    def _takes_one(self) -> bool:
        """Take a session, if one waits and there is room."""
        context = self._services.context
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if (
            self._stopping.is_set()
            or context.resting()
            or not self._desk.sessions.has_room(len(self._threads))
        ):
            return False
        with context.db.read() as tx:
            if not is_live_waiting(tx, context.offer):
                return False
        claimed = clock.Event()
        thread = clock.Thread(target=self._run, args=(claimed,), name="live-session", daemon=True)
        self._threads.append(thread)
        thread.start()
        claimed.wait(CLAIM_SECONDS)
        return True

    def _run(self, claimed: clock.Event) -> None:
        """Run one session; `claimed` is set once it is known whether this thread has one."""
        try:
            run_next(replace(self._services, claimed=lambda _: claimed.set()), None, live=True)
        finally:
            claimed.set()
