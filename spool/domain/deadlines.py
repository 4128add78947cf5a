"""Which batches can still make their deadlines, by the measured rate; what cannot goes out of the others'
way.

Pure. The batches of one project in one pool are gone through in the order in which their jobs go first: a
batch that ends too late behind those before it is late, and the next one is judged as if it were not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

RETURN = 0.9
"""A late batch is on time again once it needs no more than this share of the time it has: so that one on the
edge does not change sides all the time."""


@dataclass(frozen=True, slots=True)
class Load:
    """One batch: its class, its deadline, the audio left in seconds (None: not known), and whether the last
    reckoning found it late."""

    id: str
    priority: int
    deadline: datetime
    left_seconds: float | None
    late: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a batch: whether its deadline is out of reach, when it will end, and the grounds."""

    id: str
    late: bool
    expected_at: datetime | None
    basis: str


def forecast_deadlines(loads: Sequence[Load], rate: float | None, now: datetime) -> list[Verdict]:
    """A verdict on each load. `rate`: seconds of audio a second that the project can have; None: not
    known."""
    before = 0.0
    found, late = [], []
    for load in sorted(loads, key=lambda one: (one.priority, one.deadline, one.id)):
        if load.deadline <= now:
            found.append(Verdict(load.id, True, None, "The deadline has passed."))
        elif rate is None or rate <= 0:
            found.append(Verdict(load.id, False, None, "No worker of its pool has been measured yet."))
        elif load.left_seconds is None:
            found.append(Verdict(load.id, False, None, "None of its recordings has been opened yet."))
        else:
            needed = (before + load.left_seconds) / rate
            room = (load.deadline - now).total_seconds() * (RETURN if load.late else 1.0)
            if needed > room:
                late.append(load)
                continue
            found.append(_verdict(load, before, load.left_seconds, rate, now, late=False))
            before += load.left_seconds
    for load in late:
        left = load.left_seconds or 0.0
        found.append(_verdict(load, before, left, rate or 1.0, now, late=True))
        before += left
    return found


def _verdict(load: Load, before: float, left: float, rate: float, now: datetime, *, late: bool) -> Verdict:
    ahead = f" after {before / 3600:.1f} h that go before it" if before else ""
    basis = f"{left / 3600:.1f} h of audio left{ahead}, at {rate:.1f} s of audio a second."
    if late:
        basis += " It cannot make its deadline any more and waits as if it had none."
    # Beyond a century it does not matter when.
    seconds = min((before + left) / rate, 3.2e9)
    return Verdict(load.id, late, now + timedelta(seconds=seconds), basis)
