"""What all jobs of one worker share: settings, database, engine and the service's own records."""

from dataclasses import dataclass, field

from spool import clock
from spool.domain.fleet.routing import Machine, Offer
from spool.settings import Settings
from spool.store.database import Database
from worker.engine.client import Engine
from worker.engine.handover import HandoverFolder
from worker.service.affinity import ModelAffinity
from worker.service.announcement import Announcement
from worker.service.appetite import Appetite
from worker.service.counters import Counters
from worker.service.endings import Endings
from worker.service.health import Health
from worker.service.job_gate import JobGate
from worker.service.schedule import OffHours
from worker.service.wasted_time import WastedTime

OUTAGE_SECONDS = 300.0
"""How long a job keeps what it has decoded while the database does not answer. Its lease may run out
meanwhile, but while nobody reaches the database nobody takes the job over."""


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Shared by every attempt of one worker."""

    settings: Settings
    db: Database
    engine: Engine
    wasted: WastedTime
    worker_id: str
    draining: clock.Event
    health: Health = field(default_factory=Health)
    off: OffHours = field(default_factory=OffHours)
    job_gate: JobGate = field(default_factory=JobGate)
    counters: Counters = field(default_factory=Counters)
    affinity: ModelAffinity = field(default_factory=ModelAffinity)
    appetite: Appetite = field(default_factory=Appetite)
    endings: Endings = field(default_factory=Endings)
    machine: Machine = field(default_factory=Machine)
    handover: HandoverFolder = field(default_factory=HandoverFolder)
    announcement: Announcement = field(default_factory=lambda: Announcement({}))

    @property
    def offer(self) -> Offer:
        """Which jobs this worker can take."""
        settings = self.settings
        return Offer(settings.pool, settings.worker_name, frozenset(settings.models), self.machine)

    def outage_seconds(self) -> float:
        """How long a job waits for a database that does not answer: the time of a lease while the worker
        drains."""
        seconds = self.settings.lease_seconds
        return seconds if self.draining.is_set() else max(seconds, OUTAGE_SECONDS)

    def resting(self) -> bool:
        """Whether this worker takes no jobs now, for what `rests_because` says, or since its engine has just
        stopped, which its supervisor will note."""
        return self.rests_because() is not None or self.engine.stopped is not None

    def rests_because(self) -> str | None:
        """Why the worker takes no jobs, as text for a log; None while it does."""
        if self.draining.is_set():
            return "the worker drains"
        if self.health.reason is not None:
            return "the worker is unwell"
        return "the worker is outside its hours" if self.off.reason is not None else None
