"""What a job needs from its worker."""

from collections.abc import Callable
from dataclasses import dataclass, field

from spool.objects import ObjectStore
from spool.store.queue.leases import Claim
from worker.jobs.live.decoding import LiveDesk
from worker.jobs.retry import RetryPolicy
from worker.service.context import WorkerContext
from worker.sources.fetch import Sources


@dataclass(frozen=True, slots=True)
class JobServices:
    """Everything a job needs from its worker."""

    context: WorkerContext
    objects: ObjectStore
    sources: Sources
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    live: LiveDesk | None = None
    """For live sessions; a worker without takes none."""
    claimed: Callable[[Claim], None] = lambda _: None
    """Called with each claim and the others that came with it, in the thread that runs it."""
    requeued: Callable[[], None] = lambda: None
    """Called when a job went back into the queue, whose message has to be sent."""
