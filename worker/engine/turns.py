"""Runs steps of live sessions between two layers of a batch of jobs, on the device's only thread.

Measures how long the steps took, so that their time is not billed to the batch. An error in a step does not
affect the batch; one that would end the process ends it, with the step to blame.
"""

import os
from collections.abc import Callable, Sequence

from spool import clock
from worker.engine.protocol import Describe, Utterance
from worker.models.turns import giving_way_to

Work = Describe | Sequence[Utterance]


class StepBrokeError(BaseException):
    """A live step failed unexpectedly. Not an Exception, so that the batch does not catch it."""


class LiveTurns:
    """The interruptions of one batch, a `worker.models.turns.Others`. `ns` is how long they took."""

    def __init__(
        self, expects: Callable[[], bool], take: Callable[[], Work | None], run: Callable[[Work], None]
    ) -> None:
        """expects: whether a step may come soon; take: the next work, if any; run: runs it."""
        self.ns = 0
        self._expects, self._take, self._run = expects, take, run

    @property
    def may_come(self) -> bool:
        return self._expects()

    def take_turn(self) -> None:
        """Run one batch of steps, if one waits; only one, so that the batch of jobs always makes progress."""
        begun = clock.monotonic_ns()
        work = self._take()
        if work is None:
            return
        try:
            with giving_way_to(None):
                self._run(work)
        except (BrokenPipeError, ConnectionResetError):  # the parent is gone
            os._exit(0)
        except Exception as error:
            raise StepBrokeError from error
        finally:
            self.ns += clock.monotonic_ns() - begun
