"""Steps of live sessions between two layers of a batch of jobs, on the device's one thread.

Owns whose time that is: the batch is told how long others had the device, so that none of it is on its bill.
A fault in a step stays the step's; one that would end the process ends it, with the step to blame. What waits
and how it is run is given.
"""

import os
import time
from collections.abc import Callable, Sequence

from worker.engine.protocol import Describe, Utterance
from worker.models.turns import giving_way_to

Work = Describe | Sequence[Utterance]


class StepBrokeError(BaseException):
    """Running a live step raised what is nobody's answer; no `except Exception` of the batch may take it."""


class LiveTurns:
    """One batch's interruptions: as `worker.models.turns.Others`. `ns` is how long they took."""

    def __init__(
        self, expects: Callable[[], bool], take: Callable[[], Work | None], run: Callable[[Work], None]
    ) -> None:
        """expects: whether somebody may want the device soon; take: what is to be run now, if anything."""
        self.ns = 0
        self._expects, self._take, self._run = expects, take, run

    @property
    def may_come(self) -> bool:
        """As `Others.may_come`."""
        return self._expects()

    def take_turn(self) -> None:
        """Run one batch of steps, if one waits: no more, so that the batch of jobs gets on whatever comes."""
        begun = time.monotonic_ns()
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
            self.ns += time.monotonic_ns() - begun
