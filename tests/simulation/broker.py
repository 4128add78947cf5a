"""The broker of a simulation: queues of hints that lose, double, reorder and delay messages, or are down."""

from collections import defaultdict
from collections.abc import Sequence

from tests.simulation.scheduler import Scheduler


class Broker:
    """Stands in for `spool.broker.celery_app`'s functions. The rates are of single messages."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._queues: dict[str, list[tuple[int, str]]] = defaultdict(list)  # due at, job
        self.down = 0
        self.lost = self.doubled = self.late = 0.0
        self.longest_delay_s = 30.0

    def send_hints(self, _app: object, job_ids: Sequence[str], queue: str) -> None:
        random = self._scheduler.random
        for job_id in job_ids:
            self._refuse_when_down()
            if random.random() < self.lost:
                continue
            for _ in range(1 + (random.random() < self.doubled)):
                delay = random.uniform(0, self.longest_delay_s) if random.random() < self.late else 0.0
                self._queues[queue].append((self._scheduler.now_ns + round(delay * 1e9), job_id))
        self._scheduler.wake(self)
        self._scheduler.sleep(random.uniform(0.0001, 0.002))

    def queue_depth(self, _app: object, queue: str) -> int:
        self._refuse_when_down()
        return len(self._queues[queue])

    def take(self, queues: Sequence[str]) -> str | None:
        """A message of one of the queues, mostly the first one."""
        if self.down:
            return None
        now = self._scheduler.now_ns
        due = [(queue, entry) for queue in queues for entry in self._queues[queue][:4] if entry[0] <= now]
        if not due:
            return None
        random = self._scheduler.random
        queue, entry = due[0] if random.random() < 0.8 else random.choice(due)
        self._queues[queue].remove(entry)
        return entry[1]

    def lose_everything(self) -> None:
        """As FLUSHALL does, or a restart without persistence."""
        self._queues.clear()

    def _refuse_when_down(self) -> None:
        if self.down:
            raise self._scheduler.current().process.product.errors.StorageError("Redis does not answer.")
