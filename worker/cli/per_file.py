"""Helpers of commands that process several files. A file that fails does not stop the others; the exit code
is then 1."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import SpoolError

Row = dict[str, Any]


def rows_of(files: Sequence[Path], work: Callable[[Path], Row]) -> list[Row]:
    """The result of `work` for each file, preceded by its name.

    A file that fails gives `{"file", "error": {"code", "message"}}`.
    """
    rows: list[Row] = []
    for path in files:
        try:
            rows.append({"file": str(path), **work(path)})
        except SpoolError as error:
            rows.append({"file": str(path), "error": {"code": error.code, "message": error.message}})
    return rows


def print_json(rows: Sequence[Row]) -> None:
    """Print one array with an object on each line."""
    lines = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    print("[\n" + ",\n".join(lines) + "\n]")


def exit_by(rows: Sequence[Row]) -> None:
    """Exit with 1 if a file failed."""
    if any("error" in row for row in rows):
        raise SystemExit(1)


def mono_blocks(path: Path) -> Iterator[NDArray[np.float32]]:
    """The mean of the recording's channels, float32 `[n]` at 16 kHz. Raises SourceError and AudioError."""
    from worker.audio.stream import open_audio

    with open_audio(path) as stream:
        for block in stream.blocks():
            yield block[:, 0]


def round_values(values: NDArray[np.float32]) -> list[float]:
    """Probabilities to seven decimals."""
    return [round(value, 7) for value in values.tolist()]
