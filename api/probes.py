"""Asks the parts that the API depends on for a sign of life, each with a time limit.

A part that hangs keeps its own thread busy and nobody else's: while it hangs it counts as silent and is not
asked a second time. Knows how to ask, not what the answer is for.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as Silent

import structlog

from spool.errors import SpoolError
from spool.schemas.fleet import CheckOut

log = structlog.get_logger(__name__)

TIMEOUT_S = 2.0


class Probes:
    """Named questions; each raises where its part is unwell."""

    def __init__(self, questions: Mapping[str, Callable[[], object]]) -> None:
        self._questions = dict(questions)
        self._threads = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"probe-{name}") for name in self._questions
        }

    def ask(self, patience: float = TIMEOUT_S) -> dict[str, CheckOut]:
        """Ask all at once; the whole takes at most `patience` seconds."""
        began = time.monotonic()
        answers = {name: self._threads[name].submit(_timed, ask) for name, ask in self._questions.items()}
        checks = {}
        for name, answer in answers.items():
            ok, detail, took = False, "", patience
            try:
                took = answer.result(max(0.0, began + patience - time.monotonic()))
                ok = True
            except Silent:
                answer.cancel()
                detail = f"no answer in {patience:g} s"
            except SpoolError as error:
                detail, took = error.message, time.monotonic() - began
            except Exception as error:  # noqa: BLE001 (whatever a client library raises: the part is unwell)
                # The library's words may hold addresses and credentials; they go to the log alone.
                log.warning("a part is unwell", part=name, error=repr(error))
                detail, took = f"does not answer ({type(error).__name__})", time.monotonic() - began
            checks[name] = CheckOut(ok=ok, milliseconds=round(took * 1000), detail=detail)
        return checks

    def close(self) -> None:
        """Ask no more."""
        for threads in self._threads.values():
            threads.shutdown(wait=False, cancel_futures=True)


def _timed(ask: Callable[[], object]) -> float:
    began = time.monotonic()
    ask()
    return time.monotonic() - began
