"""Which fault is injected next: an endless sequence that depends on its seed alone.

Each kind comes about as often as any other, and so does each variant of a kind. Knows names and numbers; what
a fault does is in `ops.soak.faults`.
"""

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from spool.failpoints import NAMES

ALWAYS = {
    "worker-kill": "kill -9 of a worker",
    "worker-term": "SIGTERM of a worker, which drains",
    "engine-kill": "kill -9 of a worker's engine",
    "api-kill": "kill -9 of the API",
    "failpoint": "kill -9 of whoever first passes a failpoint",
    "sleep": "one worker or all, with their engines, stopped beyond a lease as Macs that sleep, then woken",
    "sick-model": "a worker whose model raises, answers NaN, does not load or is not there, then healed",
    "takeover": "kill -9 of a worker, which comes back with other weights under the model's name",
    "clock-skew": "a worker or the API restarted under a wrong clock, then with the right one",
    "lost-share": "a worker sees an empty folder instead of its share, then the share again",
    "frozen-transaction": "a process stopped inside a transaction, or rows locked by a client that is silent",
    "redis-flush": "FLUSHALL",
    "redis-restart": "kill -9 of Redis, restarted from its file a second later",
    "redis-freeze": "Redis stopped for 5 s, its sockets open",
    "five-times": "every waiting message sent four times more",
    "junk-messages": "hundreds of messages that are no hints, and Celery's broadcast `shutdown`",
}
WITH = {
    "postgresql": {
        "database-cut": "every connection to PostgreSQL cut, five times",
        "database-restart": "PostgreSQL stopped without warning and restarted",
        "database-outage": "PostgreSQL stopped for longer than a lease",
        "database-freeze": "the connections of one process to PostgreSQL go silent and are never closed",
    },
    "sqlite": {
        "database-lock": "SQLite locked by another process for 3 s",
        "database-outage": "SQLite locked by another process for longer than a lease",
    },
    "s3": {
        "s3-errors": "S3 answers 20 requests with 503, 500 and 409",
        "s3-slow": "S3 waits 2 s before each of 10 answers",
        "s3-cut": "S3 breaks off 5 bodies",
        "s3-drip": "S3 sends 3 bodies a byte at a time",
        "s3-flip": "a byte of 6 bodies changes between S3 and whoever reads",
    },
    "folder": {},
}
# Points that the soak's processes pass all the time; the others wait for a cancel or for a lost lease.
POINTS = tuple(name for name in NAMES if not name.startswith(("ending.", "wasted.")))
ROWS = "rows"
ABSENT = "absent"
VARIANTS: dict[str, tuple[str, ...]] = {
    "failpoint": POINTS,
    "sleep": ("one", "all"),
    "sick-model": ("raises", "nan", "load-fails", "load-breaks", ABSENT),
    "clock-skew": ("+10m", "-1h", "+4h", "api +10m", "api -1h"),
    "frozen-transaction": ("save.written", "finish.written", "sweep.locked", ROWS),
    "database-freeze": ("worker", "api"),
}


class Planned(NamedTuple):
    """A fault to inject `pause` seconds after the one before it. `worker` is a worker's name, `variant` says
    which of its kind it is ("" where there is one)."""

    pause: float
    fault: str
    worker: str
    variant: str


def meanings(database: str, objects: str) -> dict[str, str]:
    """The faults that can be injected into such a stack, and what each is."""
    return ALWAYS | WITH[database] | WITH[objects]


def schedule(
    seed: int, faults: Sequence[str], workers: Sequence[str], longest_pause: float
) -> Iterator[Planned]:
    """Faults without end; the pause before each is drawn from 0 to `longest_pause` seconds."""
    dice = random.Random(seed)
    left: dict[str, list[str]] = {}

    def draw(bag: str, choices: Sequence[str]) -> str:
        if not left.get(bag):
            left[bag] = dice.sample(list(choices), len(choices))
        return left[bag].pop()

    while True:
        fault = draw("faults", faults)
        variant = draw(fault, VARIANTS.get(fault, ("",)))
        yield Planned(dice.uniform(0, longest_pause), fault, dice.choice(list(workers)), variant)
