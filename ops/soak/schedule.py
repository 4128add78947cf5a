"""When which fault is injected: a list that depends on its seed alone, not on how fast the machine is.

A fault comes when so many jobs have ended, so that the same seed does the same things at the same points of
the work. Knows names and numbers; what a fault does is in `ops.soak.faults`.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

from spool.failpoints import NAMES

ALWAYS = {
    "worker-kill": "kill -9 of a worker",
    "worker-term": "SIGTERM of a worker, which drains",
    "engine-kill": "kill -9 of a worker's engine",
    "api-kill": "kill -9 of the API",
    "failpoint": "kill -9 of whoever first passes a failpoint",
    "sleep": "a worker and its engine stopped beyond a lease, as a Mac that sleeps, then woken",
    "redis-flush": "FLUSHALL",
    "redis-restart": "kill -9 of Redis, restarted from its file a second later",
    "redis-freeze": "Redis stopped for 5 s, its sockets open",
    "five-times": "every waiting message sent four times more",
}
WITH = {
    "postgresql": {
        "database-cut": "every connection to PostgreSQL cut, five times",
        "database-restart": "PostgreSQL stopped without warning and restarted",
    },
    "sqlite": {"database-lock": "SQLite locked by another process for 3 s"},
    "s3": {
        "s3-errors": "S3 answers 20 requests with 503, 500 and 409",
        "s3-slow": "S3 waits 2 s before each of 10 answers",
        "s3-cut": "S3 breaks off 5 bodies",
    },
    "folder": {},
}
# Points that the soak's processes pass all the time; the others wait for a cancel or for a lost lease.
POINTS = tuple(name for name in NAMES if not name.startswith(("ending.", "wasted.")))


class Planned(NamedTuple):
    """A fault to inject once `after` jobs have ended. `target` is a worker's name or a failpoint's."""

    after: int
    fault: str
    target: str


def meanings(database: str, objects: str) -> dict[str, str]:
    """The faults that can be injected into such a stack, and what each is."""
    return ALWAYS | WITH[database] | WITH[objects]


def schedule(
    seed: int, jobs: int, faults: Sequence[str], number: int, workers: Sequence[str]
) -> list[Planned]:
    """`number` faults, each kind about as often as any other, spread over the first nine tenths of `jobs`."""
    dice = random.Random(seed)
    kinds: list[str] = []
    while len(kinds) < number:
        kinds += dice.sample(list(faults), len(faults))
    points: list[str] = []
    planned = []
    for place, fault in enumerate(kinds[:number]):
        if fault == "failpoint":
            points = points or dice.sample(POINTS, len(POINTS))
            target = points.pop()
        else:
            target = dice.choice(list(workers))
        planned.append(Planned(round(0.9 * jobs * (place + dice.random()) / number), fault, target))
    return planned
