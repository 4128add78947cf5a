"""The face of a search that goes on from chunk to chunk.

A search belongs to one model and its options; a state belongs to one stream. States of any age advance
together, and what a state holds does not depend on its neighbours. Frames count from the stream's start.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar

import mlx.core as mx

from worker.decode.backtrace import Path
from worker.decode.types import Hypothesis

EMPTY = Path((), (), (), ())


class LiveState(Protocol):
    """What a search knows of one stream. Tokens that were forgotten are in no answer any more."""

    @property
    def path(self) -> Path:
        """The best hypothesis so far; empty where `is_finite` is not."""

    @property
    def stable(self) -> int:
        """How many of its tokens no later frame can change."""

    @property
    def silence(self) -> int:
        """How many frames at the end say nothing."""

    @property
    def is_finite(self) -> bool:
        """Whether every number so far was one; where not, the stream is given up."""

    def hypotheses(self) -> list[Hypothesis]:
        """All that are kept, best first, as the search over the whole ranks them."""

    def forget(self, tokens: int) -> None:
        """Drop the first tokens of every hypothesis, at most `stable`: they were taken as final."""


State = TypeVar("State", bound=LiveState)


class LiveSearch(Protocol[State]):
    """One search of one model."""

    def open(self) -> State:
        """A stream at its start."""

    def advance(self, states: Sequence[State], frames: Sequence[mx.array], last: Sequence[bool]) -> None:
        """Search the next encoder frames of each stream, [n, d_model], n of 0 allowed; `last` where the
        stream ends behind them."""

    def restart(self, state: State) -> None:
        """Take the best hypothesis as final and begin anew behind it, as at a stream's start. No frame is
        lost: those that the best hypothesis has not read are searched anew."""


def extend_path(path: Path, more: Path, offset: int) -> Path:
    """One path behind another whose frames count from `offset`."""
    if not more.tokens:
        return path
    return Path(
        path.tokens + more.tokens,
        path.times + tuple(time + offset for time in more.times),
        path.durations + more.durations,
        path.log_probs + more.log_probs,
    )


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


def end_frame(path: Path) -> int:
    """The frame behind the path's last token; 0 of none."""
    return path.times[-1] + max(path.durations[-1], 1) if path.tokens else 0
