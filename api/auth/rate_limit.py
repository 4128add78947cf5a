"""Rate limits: one token bucket for each key, and for each address of callers without a key.

Buckets live in this process, so that no request waits for another machine and an outage of the broker changes
nothing; N processes of the API together allow N times as much. The least recently used buckets are dropped.
"""

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from spool import clock

_REMEMBERED = 10_000


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a caller has left after this request."""

    allowed: bool
    burst: int
    left: int
    full_seconds: int
    """Until the whole burst is available again."""
    wait_seconds: int
    """Until the next request is admitted; 0 if one is admitted now."""
    window_seconds: int

    def headers(self) -> dict[str, str]:
        """The headers of the IETF's draft on RateLimit fields."""
        headers = {
            "RateLimit-Policy": f'"requests";q={self.burst};w={self.window_seconds}',
            "RateLimit": f'"requests";r={self.left};t={self.full_seconds}',
        }
        return headers if self.allowed else headers | {"Retry-After": str(self.wait_seconds)}


class Buckets:
    """A bucket for each name: `rate` requests a second, `burst` at once. A rate of 0 limits nobody."""

    def __init__(self, rate: float, burst: int, read_clock: Callable[[], float] = clock.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, read_clock
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = clock.Lock()

    def take(self, name: str, cost: float = 1.0) -> Allowance | None:
        """Count a request; None if there is no limit. A `cost` of 0 checks without counting."""
        if self._rate <= 0:
            return None
        with self._lock:
            now = self._clock()
            left, then = self._held.pop(name, (float(self._burst), now))
            left = min(self._burst, left + (now - then) * self._rate)
            allowed = left >= max(cost, 1.0)
            if allowed:
                left -= cost
            self._held[name] = (left, now)
            if len(self._held) > _REMEMBERED:
                self._held.popitem(last=False)
        return self._allowance(left, allowed)

    def _allowance(self, left: float, allowed: bool) -> Allowance:
        return Allowance(
            allowed=allowed,
            burst=self._burst,
            left=int(left),
            full_seconds=math.ceil((self._burst - left) / self._rate),
            wait_seconds=0 if allowed else max(1, math.ceil((1.0 - left) / self._rate)),
            window_seconds=max(1, math.ceil(self._burst / self._rate)),
        )


def address_name(host: str | None) -> str:
    """The name of an address's bucket; for IPv6 that of its /64 network, which one household shares."""
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return "address nowhere"
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return f"address {address.ipv4_mapped}"
        return f"address {ipaddress.IPv6Network((address, 64), strict=False)}"
    return f"address {address}"
