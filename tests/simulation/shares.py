"""The law of fair shares, over the history of claims: projects that wait together get audio by their shares.

While two projects both have jobs that could run, what one gets more than the other by their shares stays
within a bound, however long they wait.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from spool.store import UNKNOWN_SECONDS
from tests.simulation.quotas import BY_DAY, BY_MONTH

SHARES: Mapping[str, float] = {"court": 2.0}
IN_FLIGHT: Mapping[str, int] = {"radio": 1}
"""The quotas."""
WEIGHTS = {"oral": 26, "court": 52, "radio": 12, BY_DAY: 7, BY_MONTH: 7}
"""The projects, and how much each of them submits."""
PROJECTS = tuple(WEIGHTS)

BOUND_S = 6 * UNKNOWN_SECONDS
"""The largest turns of both, and what may be beyond them: all jobs that run may be charged for audio that
they do not have, and their project claims that again, while one that came meanwhile has begun behind these
charges. And on PostgreSQL claims that are made at the same time do not see each other's charges."""


class _Claim(NamedTuple):
    """Its number among all; how much was decoded before, and how much is expected to be at the job's end."""

    number: int
    done_s: float
    expected_s: float


@dataclass
class _Wait:
    """Of two projects that wait together: how far the first was ahead when that began, and after how many
    claims."""

    lead: float
    claims: int


@dataclass
class Shares:
    """How much audio each project has had over its share, and how much when it began to wait with another."""

    served: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: Counter[str] = field(default_factory=Counter)
    _since: dict[tuple[str, str], "_Wait"] = field(default_factory=dict)
    _claims: dict[str, "_Claim"] = field(default_factory=dict)
    """Of each running job."""
    _made: int = 0
    """How many claims there were."""

    def claim(self, project: str, job: str, done_s: float, expected_s: float) -> None:
        """A project got a job of which so much was decoded, and so much is expected to be at its end."""
        self.running[project] += 1
        self._made += 1
        self._claims[job] = _Claim(self._made, done_s, expected_s)
        self._serve(project, expected_s - done_s)

    def end(self, project: str, job: str, done_s: float | None) -> None:
        """A job runs no more: so much is decoded, or what was there was reused."""
        self.running[project] -= 1
        claim = self._claims.pop(job)
        returned = (claim.done_s if done_s is None else done_s) - claim.expected_s
        self._serve(project, returned)
        # What was charged before two projects waited together, and is returned since, may be claimed again by
        # the project itself, and is nothing that the other one got.
        for (_, other), wait in self._since.items():
            if claim.number <= wait.claims and other == project:
                wait.lead -= returned / SHARES.get(project, 1.0)

    def look(self, waiting: Collection[str]) -> None:
        """These projects have jobs that could run now, unless a quota by day or month holds them; in
        order."""
        free = [each for each in waiting if not self.is_full(each) and each not in (BY_DAY, BY_MONTH)]
        pairs = {(one, other) for one in free for other in free if one != other}
        self._since = {
            pair: self._since.get(pair) or _Wait(self._lead(*pair), self._made) for pair in sorted(pairs)
        }

    def find_unfair(self, project: str) -> str | None:
        """What is unfair about a claim of this project, before it is counted."""
        for (one, other), wait in self._since.items():
            ahead = self._lead(one, other) - wait.lead
            if one == project and ahead > BOUND_S:
                return f"{one} got {ahead:.0f} s more than its share while {other} waited"
        return None

    def is_full(self, project: str) -> bool:
        """Whether the project has as many jobs in flight as its quota allows."""
        return project in IN_FLIGHT and self.running[project] >= IN_FLIGHT[project]

    def _serve(self, project: str, seconds: float) -> None:
        self.served[project] += seconds / SHARES.get(project, 1.0)

    def _lead(self, one: str, other: str) -> float:
        return self.served[one] - self.served[other]
