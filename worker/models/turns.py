"""Where a long computation lets somebody else have the device for a moment: between two layers of an encoder,
between two steps of a search.

Owns the place only; who waits, and what is run for them, is the engine's (`worker.engine.turns`). Nobody has
to be there: then `give_way` costs a look at a variable, and evaluates nothing. Imports no MLX before there is
something to evaluate.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import mlx.core as mx


class Others(Protocol):
    """Those who may want the device while a batch is on it."""

    @property
    def may_come(self) -> bool:
        """Whether somebody waits, or may be about to: then what is computed so far is evaluated."""

    def take_turn(self) -> None:
        """Run what waits. Raises nothing that an `except Exception` of the computation would catch."""


_others: ContextVar[Others | None] = ContextVar("others", default=None)


@contextmanager
def giving_way_to(others: Others | None) -> Iterator[None]:
    """Within this, `give_way` lets these have the device; None for nobody."""
    before = _others.set(others)
    try:
        yield
    finally:
        _others.reset(before)


def give_way(*arrays: "mx.array | Any") -> None:  # noqa: ANN401 - trees of arrays, as `mx.eval` takes
    """Let others have the device, once these arrays, from which the computation goes on, are evaluated.

    Evaluating a graph in pieces changes no bit of it: MLX fuses nothing but what `mx.compile` was given, and
    no compiled function reaches over such a place.
    """
    others = _others.get()
    if others is None or not others.may_come:
        return
    import mlx.core as mx

    mx.eval(*arrays)
    others.take_turn()
