"""The names of the backends, and which one `SPOOL_KERNELS` asks for. Imports no MLX: a check may ask too."""

import os
from enum import StrEnum
from functools import cache


class Backend(StrEnum):
    """How kernels run; what each means stands in device.py."""

    METAL = "metal"
    CPU = "cpu"
    FIBERS = "fibers"
    CUDA = "cuda"
    REFERENCE = "reference"


@cache
def asked_backend() -> Backend | None:
    """The backend that `SPOOL_KERNELS` names, None for `auto` or unset; read once. Else raises ValueError."""
    named = os.environ.get("SPOOL_KERNELS", "auto").strip().lower()
    if named in {"", "auto"}:
        return None
    if named not in {*Backend}:
        raise ValueError(f"SPOOL_KERNELS is {named!r}: it must be auto, {', '.join(Backend)}")
    return Backend(named)
