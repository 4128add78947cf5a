"""Long transcripts that were put together lately: without what is closed, or with numbers as digits.

To read, correct and write 20 hours of words takes seconds, and the page asks for the same ones again.
"""

from collections import OrderedDict
from collections.abc import Callable

from spool import clock

MOST_BYTES = 128 * 2**20
LEAST_BYTES = 2**20
"""Shorter ones are made again."""
KEPT_SECONDS = 600.0


class RenderedTranscripts:
    """Their bytes by what identifies them, at most `MOST_BYTES`, each for `KEPT_SECONDS`."""

    def __init__(self) -> None:
        self._lock = clock.Lock()
        self._kept: OrderedDict[str, tuple[float, bytes]] = OrderedDict()

    def get(self, identity: str, render: Callable[[], bytes]) -> bytes:
        """The kept bytes, or what `render` returns, kept from now on. identity: all that the bytes depend on.
        Raises what `render` raises."""
        with self._lock:
            self._drop_old()
            if identity in self._kept:
                return self._kept[identity][1]
        content = render()
        if LEAST_BYTES <= len(content) <= MOST_BYTES:
            with self._lock:
                self._kept[identity] = (clock.monotonic() + KEPT_SECONDS, content)
                while sum(len(own) for _, own in self._kept.values()) > MOST_BYTES:
                    self._kept.popitem(last=False)
        return content

    def _drop_old(self) -> None:
        now = clock.monotonic()
        for identity in [name for name, (until, _) in self._kept.items() if until < now]:
            del self._kept[identity]
