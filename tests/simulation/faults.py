"""What goes wrong in a simulation, and when: as the seed decides."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.broker import Broker
from tests.simulation.database import DatabaseFaults, SimulatedDatabase
from tests.simulation.engine import EngineFaults
from tests.simulation.fleet import Fleet
from tests.simulation.history import History
from tests.simulation.objects import Objects
from tests.simulation.scheduler import NS, Process
from tests.simulation.timeline import Timeline

AT_A_FAILPOINT, AT_AN_ENDING, AT_A_HANDOVER = 0.004, 0.016, 0.05
ENDINGS = ("deliver", "finish", "ending")
"""What the failpoints are called between which a job ends: there two attempts meet."""
HANDOVERS = ("export", "watch", "upload")
"""Those between the database and what belongs to others."""
AT_A_COMMIT = 0.012
AT_A_BATCH = 0.003
SLOW_BATCHES = 0.01
LOST, DOUBLED, LATE = 0.02, 0.02, 0.05
OUTAGES_S = (2, 2, 2, 10, 10, 30, 60, 400)
HOUR_S = 3600
CUT_S = 4
"""What a cut connection costs at most."""


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

    def run(self) -> None:
        """Inject one fault after another, each in a thread of its own."""
        faults: list[Callable[[], None]] = [
            self._kill_worker,
            self._kill_worker,
            self._kill_api,
            self._freeze_worker,
            self._freeze_worker,
            self._freeze_api,
            self._lose_database,
            self._lose_broker,
            self._lose_objects,
            self._drain_worker,
            self._end_while_cancelling,
            self._break_engine,
            self._unmount_share,
            self._set_clock,
        ]
        while self._faults_an_hour:
            self._scheduler.sleep(self._random.expovariate(self._faults_an_hour / HOUR_S))
            if self._fleet.calm:
                return
            self.count += 1
            self._scheduler.spawn(self._fleet.outside, "fault", self._random.choice(faults))

    def pass_failpoint(self, name: str) -> None:
        """At each named place of the product another thread may come first, and at times the process ends or
        is frozen for longer than a lease."""
        process = self._scheduler.current().process
        self._scheduler.sleep(0)
        often = AT_A_HANDOVER if name.startswith(HANDOVERS) else AT_A_FAILPOINT
        if process is not self._fleet.outside and self._happens(
            AT_AN_ENDING if name.startswith(ENDINGS) else often
        ):
            self.count += 1
            self._timeline.note(f"{process.name} at {name}")
            if self._random.random() < 0.5:
                self._fleet.kill(process)
            else:
                self._scheduler.spawn(self._fleet.outside, "freeze", partial(self._freeze, process))
                self._scheduler.sleep(0.001)

    def cut(self, process: Process) -> str | None:
        """Whether the connection is cut at this commit: "before" it, "after" it, or not."""
        if process is self._fleet.outside or not self._happens(AT_A_COMMIT):
            return None
        self.count += 1
        how = self._random.choice(["before", "after"])
        self._timeline.note(f"{process.name}: its connection is cut {how} a commit")
        if self._random.random() < 0.1:  # it learns of it too late
            self._scheduler.spawn(self._fleet.outside, "freeze", partial(self._freeze, process))
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
        """A person cancels a job, and its worker is killed or drained before it has seen that."""
        if not (claims := sorted(self._history.running.items())):
            return
        job, worker_id = self._random.choice(claims)
        process = self._fleet.processes[worker_id]
        running = self._fleet.workers.get(process.name.partition(".")[0])
        self.cancel(job)
        if running is not None and running.process is process and self._random.random() < 0.5:
            self._fleet.drain(running)
        else:
            self._scheduler.sleep(self._random.uniform(0.1, 2))
            self._fleet.kill(process)

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
        self._edges.database.freeze(process)
        self._scheduler.sleep(seconds)
        for each in all_of_it:
            self._scheduler.thaw(each)
        if not process.dead:
            self._timeline.note(f"{process.name} goes on")

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
        seconds, share = self._random.choice([5, 60, 60, 200]), self._random.choice([0.3, 1.0])
        full = self._random.random() < 0.4
        said = "is full" if full else f"refuses {share:.0%}"
        name, objects = self._random.choice(
            [
                ("object store", self._edges.objects),
                ("bucket of exports", self._edges.exported),
                ("folder of exports", self._edges.filed),
                ("watched bucket", self._edges.watched),
            ]
        )
        self._timeline.note(f"the {name} {said} for {seconds} s")
        objects.full, objects.refused = full, 0.0 if full else share
        self._scheduler.sleep(seconds)
        objects.full, objects.refused = False, 0.0
        self._timeline.note(f"the {name} is back")

    def _unmount_share(self) -> None:
        """The share of the recordings, or the one that transcripts are written to."""
        if self._random.random() < 0.7:
            share, name, seconds = self._fleet.share, "share", self._random.choice([20, 120, 600])
        else:
            share, name = self._fleet.exported, "folder of exports"
            seconds = self._random.choice([20, 60, 200])
        away = share.with_name(f"{share.name}-away")
        if not share.exists():
            return
        self._timeline.note(f"the {name} is away for {seconds} s")
        share.rename(away)
        self._scheduler.sleep(seconds)
        away.rename(share)
        self._timeline.note(f"the {name} is back")
