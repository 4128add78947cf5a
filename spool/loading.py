"""How a process that loads many modules starts and ends faster.

What modules make stays until the process ends. Python's garbage collector goes through it again and again
while they load, and three times more at the end of the process.
"""

import atexit
import gc

_RARELY = 50_000
"""New objects after which a collection is due; 700 by default."""

_DEFAULT = gc.get_threshold()


def begin_loading() -> None:
    """Collect garbage rarely from now on, and not at all as the process ends."""
    gc.set_threshold(_RARELY)
    atexit.register(gc.freeze)


def finish_loading() -> None:
    """Collect garbage as usual from now on, except in what is loaded: a collection that goes through all
    modules takes 0.1 s, in which no thread runs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_DEFAULT)
