"""Jobs that come one by one when nothing else goes on, each with one thing that goes wrong.

In a busy fleet other jobs' messages bring workers to whatever waits, so that a message that is never sent
again is not missed. Here nothing else does.
"""

from collections.abc import Callable

from tests.simulation.faults import FaultInjector
from tests.simulation.fleet import Fleet
from tests.simulation.history import History
from tests.simulation.load import Load
from tests.simulation.scheduler import NS
from tests.simulation.timeline import Timeline

ALONE_S = 400.0
"""Within this time such a job has ended: a message is sent again after 30 s, by who sweeps each minute."""
PROMPT_S = 20.0
"""Within this time a job that was taken back is claimed again: the sweep sends its message at once."""
CALM_S = 60.0
"""So long after the last fault they begin: every process has started again then."""
LOOK_S = 0.5


class Stragglers:
    """Submits them, once everything else has ended."""

    def __init__(
        self,
        fleet: Fleet,
        load: Load,
        history: History,
        injector: FaultInjector,
        timeline: Timeline,
    ) -> None:
        self._fleet, self._load, self._history = fleet, load, history
        self._injector, self._timeline = injector, timeline
        self._scheduler = fleet.scheduler

    def run(self) -> None:
        """One after the other."""
        while self._injector.going_on:
            self._scheduler.sleep(LOOK_S)
        self._scheduler.sleep(CALM_S)
        for go_wrong in (self._lose_message, self._end_relay, self._end_worker):
            while self._fleet.choose_api() is None:
                self._scheduler.sleep(1)
            go_wrong()

    def _lose_message(self) -> None:
        """Its message is lost on the way."""
        with self._injector.losing_messages():
            job = self._load.submit_one()
            self._scheduler.sleep(1)
        self._await_end(job, "its message was lost")

    def _end_relay(self) -> None:
        """Whoever was to send its message is killed."""
        self._injector.kill_next_at = "relay.taken"
        job = self._load.submit_one()
        self._scheduler.sleep(1)
        self._injector.kill_next_at = None
        self._await_end(job, "who was to send its message was killed")

    def _end_worker(self) -> None:
        """Its worker is killed."""
        job = self._load.submit_one()
        self._wait(lambda: job in self._history.running or job in self._history.ended, ALONE_S)
        if job in self._history.running:
            self._fleet.kill(self._fleet.processes[self._history.running[job]])
            self._wait(lambda: job not in self._history.running, ALONE_S)
            taken_back_ns = self._scheduler.now_ns
            self._wait(lambda: job in self._history.running or job in self._history.ended, ALONE_S)
            waited = (self._scheduler.now_ns - taken_back_ns) / NS
            if waited > PROMPT_S:
                what = f"{self._history.expected[job].name} waited for {waited:.0f} s"
                self._timeline.violate("what is taken back is claimed at once", what)
        self._await_end(job, "its worker was killed")

    def _await_end(self, job: str, what: str) -> None:
        if not self._wait(lambda: job in self._history.ended, ALONE_S):
            name = self._history.expected[job].name
            self._timeline.violate("nothing waits", f"{name} has not ended {ALONE_S:g} s after {what}")

    def _wait(self, done: Callable[[], bool], most_s: float) -> bool:
        end = self._scheduler.now_ns + round(most_s * NS)
        while not done() and self._scheduler.now_ns < end:
            self._scheduler.sleep(LOOK_S)
        return done()
