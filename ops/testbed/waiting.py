"""The one way in which tests wait for other processes and threads: for a condition, with a deadline.

The deadline is only there so that a broken test ends: no test's outcome depends on how long a wait takes.
"""

import time
from collections.abc import Callable

DEADLINE = 60.0
"""Seconds; `DEADLINE` and `PATIENCE` differ in how much has to happen meanwhile."""
PATIENCE = 240.0
"""Seconds for recoveries, which take half a minute on a machine that has nothing else to do."""
PAUSE = 0.01


def until(condition: Callable[[], object], what: str = "the condition", seconds: float = DEADLINE) -> None:
    """Wait until the condition holds; AssertionError names `what` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} never came true"
        time.sleep(PAUSE)
