"""Forms the next batch from the waiting utterances: fair over jobs, of similar lengths, within a budget.

Pure policy, without audio, device or clock.

Fairness is start-time fair queueing (Goyal, Vin, Cheng 1996) over jobs, in samples: the job served least
gives the batch its first utterance, and a job that (re)appears starts at the level of the one served last, so
it neither waits behind a ten-hour job nor is credited for the time it was away. Among jobs served equally, as
all short ones are, those of a higher priority go first, so that who waits for an answer does not wait behind
what was claimed of a batch before.

A batch is padded to its costliest utterance, so it is filled in the same fair order with utterances that keep
the padding below a share of the whole and the bytes within the budget, by the model's costs. It never waits
for a better batch, since an idle device wastes more than padding.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from spool.domain.priority import NORMAL
from worker.models.base import BatchCost

BATCH_SECONDS = 4.0
"""With the commit of the batch before it, a killed process loses no more than 5 s of work."""
FIRST_SAMPLES = 30 * 16_000  # in a group's first batch, before its pace is known: one long utterance


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one batch.

    `samples` bounds the padded size (utterances x longest) in 16 kHz samples, `bytes` the memory of as many
    utterances as costly as the costliest; `padding` bounds the share of the encoder frames that are padding,
    0 to 1. A single utterance is always allowed, whatever it costs.
    """

    utterances: int = 64
    samples: int = 64 * 30 * 16_000
    bytes: float = float("inf")
    padding: float = 0.2


@dataclass(frozen=True, slots=True)
class QueuedUtterance:
    """A waiting utterance. `ticket` orders arrivals; only equal `group`s may share a batch; `alone` marks one
    that was in a batch that ended the engine's process, and runs first and by itself; `live` one of a live
    session, and runs before those that are not; `priority` is the job's, the lowest number first."""

    ticket: int
    job: str
    group: Hashable
    length: int
    alone: bool = False
    live: bool = False
    priority: int = NORMAL


Cost = Callable[[QueuedUtterance], BatchCost]


def cost_by_length(item: QueuedUtterance) -> BatchCost:
    """The cost of an utterance by its length."""
    return BatchCost(item.length, 0)


@dataclass(slots=True)
class _Batch:
    """A batch being filled; `longest` in samples, `most` and `total` in encoder frames."""

    limits: BatchLimits
    cost: Cost
    items: list[QueuedUtterance] = field(default_factory=list)
    longest: int = 0
    most: BatchCost = field(default_factory=lambda: BatchCost(0, 0))
    total: int = 0

    def add(self, item: QueuedUtterance) -> bool:
        """Add an utterance if it fits, as the first always does; returns whether it was added."""
        cost, count = self.cost(item), len(self.items) + 1
        longest = max(self.longest, item.length)
        most = BatchCost(max(self.most.frames, cost.frames), max(self.most.bytes, cost.bytes))
        total, padded = self.total + cost.frames, most.frames * count
        fits = (
            count <= self.limits.utterances
            and longest * count <= self.limits.samples
            and most.bytes * count <= self.limits.bytes
            and padded - total <= self.limits.padding * padded
        )
        if self.items and not fits:
            return False
        self.items.append(item)
        self.longest, self.most, self.total = longest, most, total
        return True


class BatchPace:
    """Limits a batch's audio so that it takes about `seconds`, judging by earlier batches of its group; a
    killed process then loses no more than that. On a fast device other limits are reached first."""

    def __init__(self, seconds: float = BATCH_SECONDS) -> None:
        self._seconds = seconds
        self._samples_a_second: dict[Hashable, float] = {}

    def record(self, group: Hashable, samples: int, ns: int) -> None:
        """Record that a batch of `samples`, padding included, took `ns`."""
        pace = samples * 1e9 / max(ns, 1)
        self._samples_a_second[group] = 0.5 * (self._samples_a_second.get(group, pace) + pace)

    def most_samples(self, group: Hashable, seconds: float = math.inf) -> float:
        """The most samples of the next batch, padding included, for it to take at most `seconds` as well."""
        pace = self._samples_a_second.get(group)
        return FIRST_SAMPLES if pace is None else pace * min(self._seconds, seconds)


class UtteranceQueue:
    """The waiting utterances of all jobs. Not thread-safe: its owner holds a lock."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._queues: dict[str, deque[QueuedUtterance]] = {}
        self._served: dict[str, int] = {}
        self._level = 0
        self._suspects: deque[QueuedUtterance] = deque()

    def __len__(self) -> int:
        return sum(len(queue) for queue in self._queues.values()) + len(self._suspects)

    def __iter__(self) -> Iterator[QueuedUtterance]:
        yield from self._suspects
        for queue in self._queues.values():
            yield from queue

    def add(self, item: QueuedUtterance) -> None:
        """Queue `item` after the other utterances of its job."""
        if item.alone:
            self._suspects.append(item)
            return
        if item.job not in self._queues:
            self._queues[item.job] = deque()
            self._served[item.job] = max(self._served.get(item.job, 0), self._level)
        self._queues[item.job].append(item)

    def drop_job(self, job: str) -> list[QueuedUtterance]:
        """Remove and return the utterances of `job`."""
        dropped = [item for item in self if item.job == job]
        self._remove({item.ticket for item in dropped})
        return dropped

    def next_batch(
        self,
        first: Callable[[Hashable], bool] | None = None,
        cost: Cost = cost_by_length,
        most_samples: Callable[[Hashable], float] = lambda _: math.inf,
    ) -> list[QueuedUtterance]:
        """Remove and return the next batch, in the order it was filled; empty only if nothing waits. Live
        sessions come before jobs, and jobs whose group satisfies `first` before others, which keep their
        claims. `most_samples` bounds the padded size by group, in addition to the limits."""
        if self._suspects:
            return [self._suspects.popleft()]
        if not self._queues:
            return []
        live = self._live()
        among = (
            self._select_jobs(live, first) or self._select_jobs(self._queues, first) or live or self._queues
        )
        return self._form_batch(among, cost, most_samples)

    def next_live(
        self, among: Callable[[Hashable], bool], cost: Cost = cost_by_length
    ) -> list[QueuedUtterance]:
        """Remove and return the next batch of live sessions in groups that satisfy `among`; empty if none
        waits. One that is suspected of ending the process is left to `next_batch`."""
        live = self._select_jobs(self._live(), among)
        return self._form_batch(live, cost, lambda _: math.inf) if live else []

    def _live(self) -> list[str]:
        return [job for job, queue in self._queues.items() if queue[0].live]

    def _form_batch(
        self, among: Collection[str], cost: Cost, most_samples: Callable[[Hashable], float]
    ) -> list[QueuedUtterance]:
        """Remove and return a batch that begins with the job of `among` that was served least."""
        self._level = min(self._served[job] for job in self._queues)
        seed = self._queues[min(among, key=lambda job: self._turn(job, self._queues[job][0]))][0]
        most = min(self._limits.samples, most_samples(seed.group))
        batch = _Batch(replace(self._limits, samples=int(most)), cost)
        for item in self._fair_order(seed):
            if len(batch.items) >= self._limits.utterances:
                break
            if batch.add(item):
                self._served[item.job] += max(1, item.length)
        self._remove({item.ticket for item in batch.items})
        return batch.items

    def _select_jobs(self, jobs: Collection[str], first: Callable[[Hashable], bool] | None) -> list[str]:
        return [job for job in jobs if first is None or first(self._queues[job][0].group)]

    def _turn(self, job: str, item: QueuedUtterance) -> tuple[int, int, int]:
        return self._served[job], item.priority, item.ticket

    def _fair_order(self, seed: QueuedUtterance) -> Iterator[QueuedUtterance]:
        """The seed, then the utterances of its group, each from the job served least so far. The caller
        updates `_served` between two steps."""
        yield seed
        candidates = {
            job: deque(item for item in queue if item.group == seed.group and item is not seed)
            for job, queue in self._queues.items()
        }
        candidates = {job: queue for job, queue in candidates.items() if queue}
        while candidates:
            job = min(candidates, key=lambda name: self._turn(name, candidates[name][0]))
            yield candidates[job].popleft()
            if not candidates[job]:
                del candidates[job]

    def _remove(self, tickets: Collection[int]) -> None:
        self._suspects = deque(item for item in self._suspects if item.ticket not in tickets)
        for job, queue in list(self._queues.items()):
            kept = deque(item for item in queue if item.ticket not in tickets)
            if kept:
                self._queues[job] = kept
            else:
                del self._queues[job]
        if not self._queues:
            self._level = 0
            self._served.clear()
            return
        # A job that left keeps its count until the level has passed it, when it no longer matters.
        self._served = {
            job: served for job, served in self._served.items() if job in self._queues or served > self._level
        }


def split_exactly(total: int, weights: Sequence[int]) -> list[int]:
    """Split `total` (>= 0) into integer parts in proportion to `weights` (>= 0) that sum to `total` exactly.

    Largest-remainder rule; ties go to the earlier part. Weights that are all zero count as equal. Raises
    ValueError if there are no weights for a positive total, or a number is negative.
    """
    if total < 0 or any(weight < 0 for weight in weights):
        raise ValueError("cannot split by negative numbers")
    if not weights:
        if total:
            raise ValueError("a positive total needs at least one weight")
        return []
    weight_sum = sum(weights)
    if weight_sum == 0:
        weights, weight_sum = [1] * len(weights), len(weights)
    parts = [total * weight // weight_sum for weight in weights]
    by_remainder = sorted(range(len(weights)), key=lambda i: (-(total * weights[i] % weight_sum), i))
    for i in by_remainder[: total - sum(parts)]:
        parts[i] += 1
    return parts
