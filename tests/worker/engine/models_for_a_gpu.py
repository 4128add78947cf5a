"""The tiny model, for machines with a GPU, which this one is not."""

from ops.testbed.fake_models import load
from spool.errors import EngineError

__all__ = ["load", "use_device"]


def use_device(name: str) -> None:
    raise EngineError("this machine has no GPU; take another.")
