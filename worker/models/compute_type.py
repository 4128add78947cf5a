"""Whether a model that is being loaded multiplies in 8-bit integers (CTranslate2's
`compute_type`), which some CPUs have instructions for. Knows no settings."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from kernels.nn import int8_products


@dataclass(slots=True)
class _Loading:
    int8: bool
    used: bool = False


_LOADING: ContextVar[_Loading | None] = ContextVar("loading", default=None)


@contextmanager
def loading(*, int8: bool) -> Iterator[None]:
    """While the block runs, models are built with products in integers, if int8 and this CPU can."""
    token = _LOADING.set(_Loading(int8 and int8_products.can_run()))
    try:
        yield
    finally:
        _LOADING.reset(token)


def take_int8() -> bool:
    """Whether a product of the model that is being loaded is to be computed in integers; whoever asks does
    so."""
    now = _LOADING.get()
    if now is None or not now.int8:
        return False
    now.used = True
    return True


def uses_int8() -> bool:
    """Whether the model that is being loaded has such products."""
    now = _LOADING.get()
    return now is not None and now.used
