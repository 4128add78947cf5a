"""Repeats a step that consists of kernel launches without Python, on a CPU.

Apart from its arithmetic, a search step's cost is Python's overhead for five launches. `record` runs two
consecutive steps; if the second makes the same launches as the first, reading the arrays that the first
wrote where the first read its inputs, `Replay` can run any number of further steps. Anything else, such as an
array that another computation made in between, shows up as a difference, and there is no replay.

Knows launches and memory; nothing of what they compute.
"""

import ctypes
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from kernels.runtime.build_cpu import COMMON_FLAGS, BuildFailed, build_library, launch_address, thread_pool
from kernels.runtime.device import Launched, record_launches

_log = logging.getLogger(__name__)

_Place = tuple[Any, ...]  # the kind of array; then its index and the byte offset in it, or its contents


class _CPlace(ctypes.Structure):
    _fields_ = (
        ("ring", ctypes.c_void_p),
        ("size", ctypes.c_long),
        ("count", ctypes.c_long),
        ("phase", ctypes.c_long),
        ("offset", ctypes.c_long),
    )


class _CEntry(ctypes.Structure):
    _fields_ = (
        ("launch", ctypes.c_void_p),
        ("places", ctypes.POINTER(_CPlace)),
        ("many", ctypes.c_long),
        ("grid", ctypes.c_uint * 3),
        ("group", ctypes.c_uint * 3),
        ("threads", ctypes.c_int),
    )


@cache
def _library() -> ctypes.CDLL:
    text = Path(__file__).with_suffix(".cpp").read_text()
    library = ctypes.CDLL(str(build_library("replay", text, (*COMMON_FLAGS, "-O2"))))
    library.spool_replay.restype = ctypes.c_char_p
    library.spool_replay.argtypes = [ctypes.c_void_p, *[ctypes.c_long] * 3, *[ctypes.c_void_p] * 3]
    return library


def _address(view: NDArray[Any]) -> int:
    address: int = view.__array_interface__["data"][0]
    return address


def _bytes_of(array: mx.array) -> tuple[int, int]:
    """The address of an evaluated array, and its size in bytes."""
    view = np.asarray(array)
    return _address(view), view.nbytes


def _find(address: int, arrays: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    for index, (begin, size) in enumerate(arrays):
        if begin <= address < begin + size:
            return index, address - begin
    return None


def _resolve(
    launches: Sequence[Launched], before: Sequence[mx.array], after: Sequence[mx.array]
) -> list[list[_Place]]:
    """The origin of each buffer of each launch: an array of the state before or after the step, the output of
    an earlier launch of the step, a shape, or an array from elsewhere."""
    sought = {"after": [_bytes_of(each) for each in after], "before": [_bytes_of(each) for each in before]}
    written: list[tuple[int, int]] = []
    resolved = []
    for each in launches:
        written += [(_address(view), view.nbytes) for view in each.outputs]
        places: list[_Place] = []
        for index, buffer in enumerate(each.buffers):
            known = ({"made": written} | sought).items()
            candidates = (
                (kind, *where) for kind, arrays in known if (where := _find(_address(buffer), arrays))
            )
            own = ("shape", *buffer.tolist()) if index in each.shapes else ("other", _address(buffer), 0)
            places.append(
                own if index in each.shapes else min(candidates, key=lambda p: _ORDER[p[0]], default=own)
            )
        resolved.append(places)
    return resolved


_ORDER = {"after": 0, "made": 1, "before": 2}


class Replay:
    """Runs further steps after the recorded ones.

    state: the arrays that each step computes from their predecessors. `kept` [index]: how many of the latest
    versions of each remain readable. goes_on: the index of an int32 [1] that is 0 once no step is needed."""

    def __init__(
        self,
        launches: Sequence[Launched],
        places: Sequence[Sequence[_Place]],
        state: Sequence[mx.array],
        kept: Sequence[int],
        goes_on: int,
    ) -> None:
        self._library = _library()
        self._launches = launches  # keeps alive the memory that is not part of the state
        self._step = 0
        self._rings = [
            np.empty((count + 1, *each.shape), np.asarray(each).dtype)
            for each, count in zip(state, kept, strict=True)
        ]
        for ring, each in zip(self._rings, state, strict=True):
            ring[0] = np.asarray(each)
        self._goes_on = self._place_in(goes_on, 1, 0)
        self._places = [self._c_places(each, of) for each, of in zip(launches, places, strict=True)]
        self._entries = (_CEntry * len(launches))(
            *(
                _CEntry(launch_address(each.library), own, len(own), each.grid, each.group, each.threads)
                for each, own in zip(launches, self._places, strict=True)
            )
        )

    def _place_in(self, index: int, phase: int, offset: int) -> _CPlace:
        ring = self._rings[index]
        return _CPlace(_address(ring), ring[0].nbytes, len(ring), phase, offset)

    def _c_places(self, launched: Launched, places: Sequence[_Place]) -> ctypes.Array[_CPlace]:
        views = [view for each in self._launches for view in each.outputs]
        entries = []
        for buffer, (kind, *where) in zip(launched.buffers, places, strict=True):
            if kind in {"before", "after"}:
                entries.append(self._place_in(where[0], int(kind == "after"), where[1]))
            elif kind == "made":
                entries.append(_CPlace(_address(views[where[0]]), 0, 1, 0, where[1]))
            else:
                entries.append(_CPlace(_address(buffer), 0, 1, 0, 0))
        return (_CPlace * len(entries))(*entries)

    def run(self, steps: int) -> int:
        """Run up to `steps` more steps, fewer once none is needed; returns how many were run."""
        done = ctypes.c_long()
        error = self._library.spool_replay(
            self._entries,
            len(self._entries),
            self._step,
            steps,
            ctypes.byref(self._goes_on),
            ctypes.byref(done),
            thread_pool(),
        )
        if error:
            raise RuntimeError(error.decode())
        self._step += done.value
        return done.value

    def latest(self, index: int, many: int = 1) -> NDArray[Any]:
        """A copy of the last `many` versions of a state array, oldest first, [many, ...]."""
        ring = self._rings[index]
        return ring[np.arange(self._step - many + 1, self._step + 1) % len(ring)]


def record(
    step: Callable[[Sequence[mx.array]], Sequence[mx.array]],
    state: Sequence[mx.array],
    kept: Sequence[int],
    goes_on: int,
) -> tuple[Sequence[mx.array], Sequence[mx.array], Replay | None]:
    """The states after one step and after two, and a `Replay` for further ones; None in its place if `step`
    does more than launch kernels. `kept` and `goes_on` as in `Replay`."""
    with record_launches() as first:
        once = step(state)
    with record_launches() as second:
        twice = step(once)
    for each in (state, once, twice):
        mx.eval(*each)
    places = _resolve(second, once, twice)
    if not second or places != _resolve(first, state, once):
        return once, twice, None
    left = {place[1] for of in places for place in of if place[0] == "after"}
    if len(left) < len(state):
        return once, twice, None
    try:
        return once, twice, Replay(second, places, twice, kept, goes_on)
    except BuildFailed as failure:
        _log.warning("steps are not repeated without Python: %s", failure)
        return once, twice, None
