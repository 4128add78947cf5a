"""What the live sessions of one API process share."""

from dataclasses import dataclass

from anyio import CapacityLimiter

from api.live.limits import Seats
from api.live.signals import AsyncSignals
from spool.broker.live_signals import LiveSignals
from spool.settings import Settings

_THREADS = 32


@dataclass(frozen=True)
class LiveServices:
    """The limits on sessions, and the channels to the workers."""

    seats: Seats
    signals: LiveSignals
    async_signals: AsyncSignals
    threads: CapacityLimiter
    """For waits on the object store and the database, separate from those of requests."""


def live_services(settings: Settings) -> LiveServices:
    """Connects to nothing yet."""
    return LiveServices(
        Seats(settings.live_sessions, settings.live_sessions_per_key),
        LiveSignals(settings),
        AsyncSignals(settings),
        CapacityLimiter(_THREADS),
    )
