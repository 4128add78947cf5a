"""The interface of streaming searches, which continue from chunk to chunk.

A search belongs to one model and its options, a state to one stream. States of any age advance together and
do not depend on each other. Frames count from the stream's start.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Path

EMPTY = Path((), (), (), ())


class LiveState(Protocol):
    """A search's state for one stream. Forgotten tokens no longer appear in any result."""

    @property
    def path(self) -> Path:
        """The best hypothesis so far; empty if `is_finite` is False."""

    @property
    def stable(self) -> int:
        """The number of its tokens that no later frame can change."""

    @property
    def silence(self) -> int:
        """The number of frames at the end without a token."""

    @property
    def is_finite(self) -> bool:
        """Whether the model's output was finite so far; if not, the stream is abandoned."""

    def hypotheses(self) -> list[Hypothesis]:
        """All hypotheses, best first, ranked as by the offline search."""

    def forget(self, tokens: int) -> None:
        """Drop the first tokens of every hypothesis, at most `stable`, since they are final."""


State = TypeVar("State", bound=LiveState)
Rows = TypeVar("Rows")


class LiveSearch(Protocol[State]):
    """One search of one model."""

    def open(self) -> State:
        """The state of a stream at its start."""

    def advance(self, states: Sequence[State], frames: Sequence[mx.array], last: Sequence[bool]) -> None:
        """Search the next encoder frames of each stream, [n, d_model], n may be 0; `last` if the stream ends
        with them."""

    def restart(self, state: State) -> None:
        """Take the best hypothesis as final and start again after it, as at a stream's start. Frames that
        the best hypothesis has not read are searched again."""


def extend_path(path: Path, more: Path, offset: int) -> Path:
    """`path` followed by `more`, whose frames count from `offset`."""
    if not more.tokens:
        return path
    return Path(
        path.tokens + more.tokens,
        path.times + tuple(time + offset for time in more.times),
        path.durations + more.durations,
        path.log_probs + more.log_probs,
    )


def extend_paths(
    paths: Sequence[Path], more: Sequence[Path], origins: Sequence[int], offset: int
) -> list[Path]:
    """Each slot's path: that of its origin, followed by what it gained, whose frames count from `offset`."""
    return [extend_path(paths[origin], each, offset) for each, origin in zip(more, origins, strict=True)]


def behind(path: Path, tokens: int) -> Path:
    """The path without its first tokens."""
    return Path(path.tokens[tokens:], path.times[tokens:], path.durations[tokens:], path.log_probs[tokens:])


def before(path: Path, tokens: int) -> Path:
    """The path's first tokens."""
    return Path(path.tokens[:tokens], path.times[:tokens], path.durations[:tokens], path.log_probs[:tokens])


def common_tokens(paths: Sequence[Path]) -> int:
    """How many first tokens all paths share, with their frames and durations."""
    if not paths:
        return 0
    first, rest = paths[0], paths[1:]
    count = min(len(path.tokens) for path in paths)
    for place in range(count):
        mark = first.tokens[place], first.times[place], first.durations[place]
        if any((each.tokens[place], each.times[place], each.durations[place]) != mark for each in rest):
            return place
    return count


def pad_frames(frames: Sequence[mx.array]) -> tuple[mx.array, NDArray[np.int32]]:
    """Each stream's [n, d] as one table [B, longest, d], and their lengths."""
    lengths = np.array([len(each) for each in frames], np.int32)
    longest = int(lengths.max())
    return mx.stack([mx.pad(each, [(0, longest - len(each)), (0, 0)]) for each in frames]), lengths


def join_rows(states: Sequence[Rows]) -> Rows:
    """Named tuples of arrays, also nested, as one with their rows in order."""
    if isinstance(states[0], mx.array):
        return mx.concatenate(list(states))  # type: ignore[return-value, arg-type]
    return type(states[0])(*map(join_rows, zip(*states, strict=True)))


def take_rows(state: Rows, rows: slice) -> Rows:
    """These rows of every array of a named tuple."""
    if isinstance(state, mx.array):
        return state[rows]  # type: ignore[return-value]
    return type(state)(*(take_rows(each, rows) for each in state))  # type: ignore[attr-defined]


def end_frame(path: Path) -> int:
    """The frame after the path's last token; 0 without tokens."""
    return path.times[-1] + max(path.durations[-1], 1) if path.tokens else 0
