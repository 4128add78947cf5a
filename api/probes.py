"""Health checks of the parts that the API depends on, each with a time limit.

A part that hangs occupies only its own thread. While it hangs it counts as failed and is not checked again.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as CheckTimeout

import structlog

from spool import clock
from spool.errors import SpoolError
from spool.schemas.fleet import CheckOut

log = structlog.get_logger(__name__)

TIMEOUT_S = 2.0


class Probes:
    """Named checks; each raises if its part is unhealthy."""

    def __init__(self, probes: Mapping[str, Callable[[], object]]) -> None:
        self._probes = dict(probes)
        self._threads = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"probe-{name}") for name in self._probes
        }

    def ask(self, timeout: float = TIMEOUT_S) -> dict[str, CheckOut]:
        """Run all checks in parallel, for at most `timeout` seconds."""
        began = clock.monotonic()
        answers = {name: self._threads[name].submit(_measure, ask) for name, ask in self._probes.items()}
        checks = {}
        for name, answer in answers.items():
            ok, detail, took = False, "", timeout
            try:
                took = answer.result(max(0.0, began + timeout - clock.monotonic()))
                ok = True
            except CheckTimeout:
                answer.cancel()
                detail = f"no answer in {timeout:g} s"
            except SpoolError as error:
                detail, took = error.message, clock.monotonic() - began
            except Exception as error:  # noqa: BLE001 (whatever a client library raises: the part is unhealthy)
                # The library's message may contain addresses and credentials; it goes only to the log.
                log.warning("a health check failed", part=name, error=repr(error))
                detail, took = f"does not answer ({type(error).__name__})", clock.monotonic() - began
            checks[name] = CheckOut(ok=ok, milliseconds=round(took * 1000), detail=detail)
        return checks

    def close(self) -> None:
        """Stop the threads."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)


def _measure(ask: Callable[[], object]) -> float:
    began = clock.monotonic()
    ask()
    return clock.monotonic() - began
