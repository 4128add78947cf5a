"""Priorities, and the numbers by which the jobs of a priority are sorted.

Pure. How these combine with fair shares between projects is in `spool.store.queue.scheduler`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from spool.domain.quotas import Quota

PriorityName = Literal["low", "normal", "high"]

HIGH, NORMAL, LOW = 0, 1, 2
"""As stored and sorted in SQL: the lowest number goes first."""

PRIORITIES: dict[PriorityName, int] = {"high": HIGH, "normal": NORMAL, "low": LOW}
PRIORITY_NAMES: dict[int, PriorityName] = {number: name for name, number in PRIORITIES.items()}

NEVER = 253_402_300_799
"""`jobs.deadline_rank` without a deadline, or with one that cannot be met: the end of 9999 (Unix seconds)."""


def deadline_rank_of(deadline: datetime | None) -> int:
    """The deadline in Unix seconds, by which jobs are sorted; `NEVER` without one."""
    return NEVER if deadline is None else min(NEVER - 1, int(deadline.timestamp()))


@dataclass(frozen=True, slots=True)
class Rules:
    """How projects share a pool: weights (default 1), quotas, and the seconds after which a queued job
    ages."""

    shares: Mapping[str, float] = field(default_factory=dict)
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    aging_seconds: float = 3600.0
