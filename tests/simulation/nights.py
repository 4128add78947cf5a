"""The end of a run, when quotas hold what is left: everything sleeps until the next day or month."""

from functools import partial

from tests.simulation.database import Observer, SimulatedDatabase
from tests.simulation.fleet import Fleet
from tests.simulation.quotas import BY_DAY, BY_MONTH, now_of, seconds_to
from tests.simulation.scheduler import NS, Process
from tests.simulation.timeline import Timeline

QUIET_S = 90.0
"""If nothing has run for so long, those that wait are held: quotas are brought up to date each minute."""
BEFORE_S = 5.0
"""Everything is awake so long before the next day."""
IN_VAIN = 2
"""After so many nights in which nothing has ended, nothing will."""

_LEFT = (
    "SELECT project, state, count(*) FROM jobs WHERE state IN ('queued', 'running') GROUP BY project, state"
)


class Nights:
    """Lets them pass while nothing but quotas keeps jobs waiting, and the whole fleet is there."""

    def __init__(
        self,
        fleet: Fleet,
        database: SimulatedDatabase,
        observer: Observer,
        timeline: Timeline,
        processes: int,
    ) -> None:
        self._fleet, self._database, self._observer, self._timeline = fleet, database, observer, timeline
        self._processes = processes
        self._scheduler = fleet.scheduler
        self._quiet_since: int | None = None
        self._left = self._in_vain = 0

    def pass_if_held(self) -> bool:
        """Whether a night has passed."""
        left = self._observer.rows(_LEFT)
        waiting = {project for project, state, _ in left if state == "queued"}
        running = any(state == "running" for _, state, _ in left)
        fleet = self._fleet
        awake = [each.process for each in fleet.workers.values()]
        awake += [each.process for each in fleet.apis.values()]
        if running or not waiting or waiting - {BY_DAY, BY_MONTH} or len(awake) < self._processes:
            self._quiet_since = None
            return False
        if self._quiet_since is None:
            self._quiet_since = self._scheduler.now_ns
        if self._scheduler.now_ns - self._quiet_since < QUIET_S * NS:
            return False
        number = sum(int(count) for _, _, count in left)
        self._in_vain = self._in_vain + 1 if number == self._left else 0
        if self._in_vain >= IN_VAIN:
            return False
        self._left, self._quiet_since = number, None
        self._sleep(awake, next_month=BY_DAY not in waiting)
        return True

    def _sleep(self, processes: list[Process], *, next_month: bool) -> None:
        seconds = seconds_to(self._scheduler, next_month=next_month) - BEFORE_S
        self._timeline.note(f"everything sleeps for {seconds / 3600:.1f} h")
        for process in processes:
            for child in process.children:
                self._scheduler.freeze(child)
            self._scheduler.spawn(self._fleet.outside, "night", partial(self._database.freeze, process))
        self._scheduler.sleep(max(seconds, 1.0))
        for process in processes:
            for each in (process, *process.children):
                self._scheduler.thaw(each)
        self._timeline.note(f"everything is awake: {now_of(self._scheduler):%Y-%m-%d}")
