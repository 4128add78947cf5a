"""The C library's memory, of which it keeps what was freed."""

import ctypes
import sys


def return_memory() -> None:
    """Return what was freed to the system, where the C library keeps it (glibc): after loading a model, the
    files' tensors in the precisions between theirs and the model's."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
