"""Quantises a model of the store in a child process: MLX stays out of processes that only need a path."""

from collections.abc import Callable
from pathlib import Path

from spool.catalogue.child import bytes_below, run_child
from spool.catalogue.packages import NO_SPACE
from spool.errors import DiskFull, ModelError

_NAME = "spool-worker: "


def quantise(
    model: Path,
    folder: Path,
    bits: int,
    scratch: Path,
    *,
    seconds: float,
    on_bytes: Callable[[int], None],
) -> None:
    """Writes the model at a path to `folder` with so many bits a weight. Raises ModelError, DiskFull."""
    ended = run_child(
        ["-m", "worker.cli.main", "quantise", str(model), str(folder), "--bits", str(bits)],
        {},
        scratch,
        seconds=seconds,
        on_bytes=lambda _: on_bytes(bytes_below(folder)),
    )
    if ended.code == 0:
        return
    if ended.code is None:
        raise ModelError(f"{model} was not quantised in {seconds:.0f} s.")
    if NO_SPACE.search(ended.output):
        raise DiskFull(f"{folder}: no space is left for the quantised model.")
    last = next(iter(reversed(ended.output.strip().splitlines())), "")
    if "No module named 'mlx" in last:
        raise ModelError(
            "A model is quantised with MLX, which is not installed here; run this beside a worker."
        )
    reason = last.removeprefix(_NAME) or f"its process ended with {ended.code}"
    raise ModelError(f"{model} cannot be quantised: {reason}")
