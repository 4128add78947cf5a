"""A graph's file: what is in it, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spool.errors import InvalidRequest
from spool.graphs import read_graph

GOLDEN = np.load(Path(__file__).parents[2] / "golden" / "wfst.npz")
ARRAYS = ("first", "emitting", "ilabel", "olabel", "next", "weight", "final")


BROKEN_ARRAYS: dict[str, tuple[str, Any, str]] = {
    "an arc to nowhere": ("next", 10_000, "an arc leads to no state"),
    "a weight that is no number": ("weight", np.nan, "a weight is not a number"),
    "arcs out of order": ("ilabel", 0, "arcs with a label do not come first"),
    "a negative label": ("ilabel", -1, "an arc leads to no state"),
}


@pytest.mark.parametrize("broken", BROKEN_ARRAYS)
def test_a_broken_graph_is_refused(broken: str, tmp_path: Path) -> None:
    name, value, why = BROKEN_ARRAYS[broken]
    arrays = {key: GOLDEN[f"small2.{key}"].copy() for key in (*ARRAYS, "start")}
    arrays[name][0] = value
    np.savez(tmp_path / "graph.npz", **arrays)
    with pytest.raises(InvalidRequest, match=why):
        read_graph(tmp_path / "graph.npz")


def test_a_circle_without_labels_is_refused(tmp_path: Path) -> None:
    ints = {"first": [0, 1, 2], "emitting": [0, 0], "ilabel": [0, 0], "olabel": [0, 0], "next": [1, 0]}
    arrays = {name: np.array(value, np.int32) for name, value in ints.items()}
    floats = {"weight": np.ones(2, np.float32), "final": np.zeros(2, np.float32)}
    np.savez(tmp_path / "graph.npz", allow_pickle=True, **arrays, **floats, start=np.int32(0))
    with pytest.raises(InvalidRequest, match="form a cycle"):
        read_graph(tmp_path / "graph.npz")


def test_another_file_is_no_graph(tmp_path: Path) -> None:
    (tmp_path / "graph.npz").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(InvalidRequest, match="not a graph of `spool graph build`"):
        read_graph(tmp_path / "graph.npz")
    with pytest.raises(InvalidRequest, match="cannot be read"):
        read_graph(tmp_path / "none.npz")
