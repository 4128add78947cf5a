"""What goes wrong in a simulation, and when: as the seed decides."""

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from weakref import WeakKeyDictionary

from tests.simulation.broker import Broker
from tests.simulation.database import DatabaseFaults, SimulatedDatabase
from tests.simulation.engine import EngineFaults
from tests.simulation.fleet import Fleet
from tests.simulation.history import History
from tests.simulation.objects import Objects
from tests.simulation.quotas import BY_DAY, BY_MONTH
from tests.simulation.scheduler import NS, Process, Task
from tests.simulation.shares import IN_FLIGHT
from tests.simulation.timeline import Timeline

AT_A_FAILPOINT, AT_AN_ENDING, AT_A_HANDOVER = 0.004, 0.03, 0.05
ENDINGS = ("deliver", "finish", "ending")
"""What the failpoints are called between which a job ends: there two attempts meet."""
HANDOVERS = ("export", "watch", "upload")
"""Those between the database and what belongs to others."""
AT_A_COMMIT, AT_A_FENCED_COMMIT, AT_A_CANCEL = 0.012, 0.1, 0.5
"""A commit right after a failpoint called `….written` is of somebody's work, fenced by a claim; the last is
of those while its worker is to cancel a job."""
AT_A_BATCH = 0.003
SLOW_BATCHES = 0.01
LOST, DOUBLED, LATE = 0.02, 0.02, 0.05
OUTAGES_S = (2, 2, 2, 10, 10, 30, 60, 400)
HOUR_S = 3600
CUT_S = 4
"""What a cut connection costs at most."""
MEETS = 0.6
"""How many of those that fall asleep wake when somebody else is busy with one of their jobs."""
PAUSES = (0.002, 0.01, 0.03, 0.1, 2.0)
"""For so long whoever they meet then waits."""
UNMET_S = 200.0
"""For so long they sleep if nobody is."""
HAUNTED, HAUNTED_S = 2, 240.0
"""How many workers of one job are killed, one after the other, and how long the next one is waited for."""


@dataclass(eq=False)
class _Sleeper:
    """A process that sleeps until it is met, or for long. `jobs` are those that it ran."""

    process: Process
    jobs: frozenset[str]
    met: bool = False


class _Deck:
    """Kinds of faults in an order that the seed decides, each once before any comes again: a short run has
    all of them."""

    def __init__(self, random: Random, kinds: Sequence[Callable[[], None]]) -> None:
        self._random, self._kinds = random, list(kinds)
        self._left: list[Callable[[], None]] = []

    def draw(self) -> Callable[[], None]:
        """The next one."""
        if not self._left:
            self._left = self._random.sample(self._kinds, len(self._kinds))
        return self._left.pop()


@dataclass
class Edges:
    """The simulated parts that faults are injected into."""

    database: SimulatedDatabase
    database_faults: DatabaseFaults
    broker: Broker
    objects: Objects
    exported: Objects
    """The bucket that transcripts are written to for others."""
    filed: Objects
    """How the folder fails that transcripts are written to for others; nothing is stored in it."""
    watched: Objects
    """Somebody else's bucket, in which recordings appear."""
    engines: EngineFaults = field(default_factory=EngineFaults)


class FaultInjector:
    """Injects faults until the fleet is to be calm; `count` says how many."""

    def __init__(
        self, fleet: Fleet, edges: Edges, history: History, timeline: Timeline, faults_an_hour: float
    ) -> None:
        self._fleet, self._edges, self._history, self._timeline = fleet, edges, history, timeline
        self._faults_an_hour = faults_an_hour
        self._scheduler, self._random = fleet.scheduler, fleet.scheduler.random
        self.count = 0
        edges.database_faults.cut = self.cut
        edges.engines.death = lambda: self._happens(AT_A_BATCH)
        edges.engines.slowness = lambda: 40.0 if self._happens(SLOW_BATCHES) else 1.0
        self.cancel: Callable[[str], None] = lambda _: None
        """A person asks to cancel this job."""
        edges.broker.lost, edges.broker.doubled, edges.broker.late = LOST, DOUBLED, LATE
        edges.database_faults.named = self._meet_by_statement
        self._places: WeakKeyDictionary[Task, str] = WeakKeyDictionary()
        """The failpoint that each thread passed last."""
        self._sleepers: list[_Sleeper] = []
        self.going_on = 0
        """How many faults last."""
        self.kill_next_at: str | None = None
        """Whoever passes this failpoint next is killed."""

    def run(self) -> None:
        """Inject one fault after another, each in a thread of its own."""
        faults = _Deck(
            self._random,
            [
                self._kill_worker,
                self._kill_worker,
                self._kill_api,
                self._freeze_worker,
                self._freeze_worker,
                self._freeze_api,
                self._lose_database,
                self._lose_broker,
                self._lose_objects,
                self._fill_objects,
                self._drain_worker,
                self._end_while_cancelling,
                self._haunt_job,
                self._break_engine,
                self._unmount_share,
                self._unmount_exports,
                self._set_clock,
            ],
        )
        while self._faults_an_hour:
            self._scheduler.sleep(self._random.expovariate(self._faults_an_hour / HOUR_S))
            if self._fleet.calm:
                return
            self.count += 1
            self._begin(faults.draw())

    def _begin(self, fault: Callable[[], None]) -> None:
        def to_the_end() -> None:
            self.going_on += 1
            fault()
            self.going_on -= 1

        self._scheduler.spawn(self._fleet.outside, "fault", to_the_end)

    def pass_failpoint(self, name: str) -> None:
        """At each named place of the product another thread may come first, and at times the process ends or
        is frozen for longer than a lease."""
        task = self._scheduler.current()
        process = task.process
        self._places[task] = name
        self._scheduler.sleep(0)
        if name == self.kill_next_at:
            self.kill_next_at = None
            self._fleet.kill(process)
        if self._sleepers and name.startswith(ENDINGS):
            self._meet(process, self._list_jobs(process))
        often = AT_A_HANDOVER if name.startswith(HANDOVERS) else AT_A_FAILPOINT
        if process is not self._fleet.outside and self._happens(
            AT_AN_ENDING if name.startswith(ENDINGS) else often
        ):
            self.count += 1
            self._timeline.note(f"{process.name} at {name}")
            if self._random.random() < 0.5:
                self._fleet.kill(process)
            else:
                self._begin(partial(self._freeze, process))
                self._scheduler.sleep(0.001)

    @contextmanager
    def losing_messages(self) -> Iterator[None]:
        """Every message that is sent meanwhile is lost; none is after that, and none comes late."""
        broker = self._edges.broker
        broker.lost, broker.doubled, broker.late = 1.0, 0.0, 0.0
        yield
        broker.lost = 0.0

    def _list_jobs(self, process: Process) -> frozenset[str]:
        """Those that the process runs."""
        running = self._history.running.items()
        return frozenset(job for job, worker in running if self._fleet.processes[worker] is process)

    def _meet_by_statement(self, process: Process, values: Collection[object]) -> None:
        if self._sleepers:
            self._meet(process, frozenset(each for each in values if isinstance(each, str)))

    def _meet(self, process: Process, jobs: Collection[str]) -> None:
        """This process is busy with these jobs: whoever sleeps and had one of them may wake just now, and do
        as much with it as this one leaves time for."""
        for sleeper in list(self._sleepers):
            if sleeper.process is process or sleeper.met or sleeper.jobs.isdisjoint(jobs):
                continue
            if self._random.random() < 0.3:
                sleeper.met = True
                self._timeline.note(f"{sleeper.process.name} and {process.name} meet over a job")
                self._scheduler.wake(sleeper)
                self._scheduler.sleep(self._random.choice(PAUSES))

    def cut(self, process: Process) -> str | None:
        """Whether the connection is cut at this commit: "before" it, "after" it, or not."""
        often = AT_A_COMMIT
        if self._places.pop(self._scheduler.current(), "").endswith(".written"):
            is_cancelling = not self._history.cancelling.isdisjoint(self._list_jobs(process))
            often = AT_A_CANCEL if is_cancelling else AT_A_FENCED_COMMIT
        if process is self._fleet.outside or not self._happens(often):
            return None
        self.count += 1
        how = self._random.choice(["before", "after"])
        self._timeline.note(f"{process.name}: its connection is cut {how} a commit")
        if self._random.random() < 0.1:  # it learns of it too late
            self._begin(partial(self._freeze, process))
        now = self._scheduler.now_ns
        process.troubles.append((now, now + CUT_S * NS))
        return how

    def _happens(self, share: float) -> bool:
        return not self._fleet.calm and self._random.random() < share

    # --- processes ------------------------------------------------------------------------------------------

    def _choose_busy(self) -> Process | None:
        """A worker's process, mostly one that runs a job."""
        busy = [self._fleet.processes[each] for each in sorted(set(self._history.running.values()))]
        busy = [each for each in busy if not each.dead and not each.frozen]
        if busy and self._random.random() < 0.8:
            return self._random.choice(busy)
        running = self._fleet.choose_worker()
        return None if running is None else running.process

    def _kill_worker(self) -> None:
        if (process := self._choose_busy()) is not None:
            self._fleet.kill(process)

    def _end_while_cancelling(self) -> None:
        """A person cancels the jobs of a worker that is killed or drained before it has seen that."""
        if not (claims := sorted(self._history.running.items())):
            return
        job, worker_id = self._random.choice(claims)
        process = self._fleet.processes[worker_id]
        running = self._fleet.workers.get(process.name.partition(".")[0])
        if running is not None and running.process is process and self._random.random() < 0.6:
            self._fleet.drain(running)
            for each in sorted(self._list_jobs(process)):
                self._scheduler.sleep(self._random.uniform(0, 1))
                self.cancel(each)
        else:
            self.cancel(job)
            self._scheduler.sleep(self._random.uniform(0.1, 2))
            self._fleet.kill(process)

    def _haunt_job(self) -> None:
        """Whoever runs a job is killed, as if by the job itself; mostly one of a project with a quota."""
        history = self._history
        running = sorted(history.running)
        limited = [each for each in running if history.project_of(each) in (*IN_FLIGHT, BY_DAY, BY_MONTH)]
        if not running:
            return
        job = self._random.choice(limited if limited and self._random.random() < 0.8 else running)
        self._timeline.note(f"{history.expected[job].name} ends its workers")
        for _ in range(HAUNTED):
            waited = 0.0
            while job not in history.running and job not in history.ended and waited < HAUNTED_S:
                self._scheduler.sleep(1)
                waited += 1
            if job not in history.running or self._fleet.calm:
                return
            self._fleet.kill(self._fleet.processes[history.running[job]])
            self._scheduler.sleep(1)
            while job in history.running and self._fleet.processes[history.running[job]].dead:
                self._scheduler.sleep(1)

    def _break_engine(self) -> None:
        """The engine of a worker ends soon after each start."""
        if (process := self._choose_busy()) is None:
            return
        seconds = self._random.choice([30, 120, 300])
        self._timeline.note(f"{process.name}: its engine does not stay for {seconds} s")
        self._edges.engines.broken.add(process)
        self._scheduler.sleep(seconds)
        self._edges.engines.broken.discard(process)

    def _kill_api(self) -> None:
        if (running := self._fleet.choose_api()) is not None:
            self._fleet.kill(running.process)

    def _drain_worker(self) -> None:
        if (running := self._fleet.choose_worker()) is not None:
            self._fleet.drain(running)

    def _freeze_worker(self) -> None:
        if (process := self._choose_busy()) is not None:
            self._freeze(process)

    def _freeze_api(self) -> None:
        if (running := self._fleet.choose_api()) is not None:
            self._freeze(running.process)

    def _freeze(self, process: Process) -> None:
        seconds = self._random.choice([3, 15, 25, 40, 40, 120, 200])
        asleep = self._random.random() < 0.5  # the whole machine, with the engine's process
        all_of_it = [process, *process.children] if asleep else [process]
        self._timeline.note(f"{process.name} {'asleep' if asleep else 'frozen'} for {seconds} s")
        for each in all_of_it[1:]:
            self._scheduler.freeze(each)
        jobs = self._list_jobs(process)
        self._edges.database.freeze(process)
        if jobs and self._random.random() < MEETS:
            self._sleep_until_met(_Sleeper(process, jobs))
        else:
            self._scheduler.sleep(seconds)
        for each in all_of_it:
            self._scheduler.thaw(each)
        if not process.dead:
            self._timeline.note(f"{process.name} goes on")

    def _sleep_until_met(self, sleeper: _Sleeper) -> None:
        self._sleepers.append(sleeper)
        self._scheduler.wait(sleeper, lambda: sleeper.met, UNMET_S)
        self._sleepers.remove(sleeper)

    def _set_clock(self) -> None:
        if (running := self._fleet.choose_worker()) is None:
            return
        process, seconds = running.process, self._random.choice([-7200, -300, 300, 7200])
        self._timeline.note(f"{process.name}: its clock is set by {seconds} s")
        process.skew_ns += seconds * NS
        self._scheduler.sleep(self._random.choice([30, 600]))
        process.skew_ns -= seconds * NS

    # --- what they depend on --------------------------------------------------------------------------------

    def _lose_database(self) -> None:
        if self._edges.database_faults.down:
            return
        seconds = self._random.choice(OUTAGES_S)
        self._timeline.note(f"the database is down for {seconds} s")
        began = self._scheduler.now_ns
        self._edges.database_faults.down += 1
        self._edges.database.end_transactions()
        self._scheduler.sleep(seconds)
        self._edges.database_faults.down -= 1
        for process in self._fleet.processes.values():
            process.troubles.append((began, self._scheduler.now_ns))
        self._timeline.note("the database is back")

    def _lose_broker(self) -> None:
        if self._edges.broker.down:
            return
        seconds = self._random.choice(OUTAGES_S)
        self._timeline.note(f"the broker is down for {seconds} s, and forgets all messages")
        self._edges.broker.lose_everything()
        self._edges.broker.down += 1
        self._scheduler.sleep(seconds)
        self._edges.broker.down -= 1
        self._timeline.note("the broker is back")

    def _lose_objects(self) -> None:
        name, objects = self._choose_store()
        seconds, share = self._random.choice([5, 60, 60, 200]), self._random.choice([0.3, 1.0])
        self._timeline.note(f"the {name} refuses {share:.0%} for {seconds} s")
        objects.refused = share
        self._scheduler.sleep(seconds)
        objects.refused = 0.0
        self._timeline.note(f"the {name} is back")

    def _fill_objects(self) -> None:
        name, objects = self._choose_store()
        seconds = self._random.choice([5, 60, 60, 200])
        self._timeline.note(f"the {name} is full for {seconds} s")
        objects.full = True
        self._scheduler.sleep(seconds)
        objects.full = False
        self._timeline.note(f"the {name} has room again")

    def _choose_store(self) -> tuple[str, Objects]:
        """One of them, mostly Spool's own."""
        return self._random.choice(
            [
                *[("object store", self._edges.objects)] * 4,
                ("bucket of exports", self._edges.exported),
                ("folder of exports", self._edges.filed),
                ("watched bucket", self._edges.watched),
            ]
        )

    def _unmount_share(self) -> None:
        self._unmount(self._fleet.share, "share", self._random.choice([20, 120, 600]))

    def _unmount_exports(self) -> None:
        self._unmount(self._fleet.exported, "folder of exports", self._random.choice([60, 120, 200]))

    def _unmount(self, share: Path, name: str, seconds: int) -> None:
        away = share.with_name(f"{share.name}-away")
        if away.exists():
            return
        self._timeline.note(f"the {name} is away for {seconds} s")
        share.rename(away)
        self._scheduler.sleep(seconds)
        shutil.rmtree(share, ignore_errors=True)  # whatever was written meanwhile is beneath it
        away.rename(share)
        self._timeline.note(f"the {name} is back")
