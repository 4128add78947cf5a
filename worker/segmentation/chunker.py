"""Plans chunks: where to cut one channel, so that the engine decodes 20 to 30 s at a time.

A *core* is the part of the recording whose words a chunk contributes; cores tile the recording exactly
(law 6). A core ends, in order of preference,

1. where a hush begins, which becomes a core of its own that is not decoded (`speech` False);
2. in the middle of the longest pause between 20 s and 30 s;
3. where there is no pause, at the quietest place. Both neighbours then include 2 s across the cut, so that
   `worker.segmentation.stitch` can decide by times which of them supplies the words at the seam.

A chunk's samples are never longer than 30 s, context included. A remainder of less than 5 s is not left by
itself where the plan can foresee it.

The plan depends on the samples alone, not on the blocks they arrive in: each decision uses exactly the next
35 s, or what is left, and no more than that is held in memory. Knows levels (`worker.segmentation.levels`),
neither files nor models.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE
from worker.segmentation.levels import (
    FRAME,
    HUSH_WIDTH,
    GateOptions,
    best_pause,
    first_hush,
    frame_moments,
    hush_end,
    hush_frames,
    is_nothing,
    levels_of,
    quietest,
)
from worker.segmentation.spans import ChunkSpan

Samples = NDArray[np.float32]


@dataclass(frozen=True)
class ChunkOptions:
    """Lengths in seconds. They are part of what decides a transcript: change them and words may change."""

    aim: float = 20.0
    max: float = 30.0
    overlap: float = 2.0
    tail: float = 5.0
    pause: float = 0.2
    gate: GateOptions = field(default_factory=GateOptions)

    def __post_init__(self) -> None:
        """Refuse lengths that leave no place to cut."""
        room = min(self.max - 2 * self.overlap, self.max - self.overlap - self.tail)
        if not 0 < self.overlap <= self.tail <= self.aim <= room:
            raise ValueError("chunk lengths must satisfy overlap <= tail <= aim <= max - overlap - tail")


@dataclass(frozen=True, eq=False)
class Chunk:
    """One piece of one channel: its place, and the samples of core and context (float32 `[end - start]`)."""

    span: ChunkSpan
    samples: Samples

    @property
    def speech(self) -> bool:
        """Whether the engine is to be asked."""
        return self.span.speech


def plan_chunks(blocks: Iterable[Samples], options: ChunkOptions | None = None) -> Iterator[Chunk]:
    """The chunks of one channel's `blocks` (float32 `[n]` at 16 kHz), each as soon as it is certain."""
    planner = ChunkPlanner(options)
    for block in blocks:
        yield from planner.push(block)
    yield from planner.finish()


def plan_channels(
    blocks: Iterable[Samples], channels: int, options: ChunkOptions | None = None
) -> Iterator[Chunk]:
    """The chunks of every channel of `blocks` (`[n, channels]`) in one pass, each planned alone."""
    planners = [ChunkPlanner(options, channel) for channel in range(channels)]
    for block in blocks:
        for channel, planner in enumerate(planners):
            yield from planner.push(block[:, channel])
    for planner in planners:
        yield from planner.finish()


class ChunkPlanner:
    """Plans one channel from pushed blocks."""

    def __init__(self, options: ChunkOptions | None = None, channel: int = 0) -> None:
        self._options = options or ChunkOptions()
        self._channel = channel
        self._parts: list[Samples] = []
        self._held = 0
        self._lead = 0
        self._core = 0
        self._index = 0
        self._lookahead = _samples(self._options.max) + _samples(self._options.tail)

    def push(self, block: Samples) -> Iterator[Chunk]:
        """Take in float32 `[n]`, which is kept and not copied; give out what no later sample can change."""
        if len(block):
            self._parts.append(block)
            self._held += len(block)
        # One sample more than is looked at tells whether the recording goes on.
        while self._held - self._lead > self._lookahead:
            yield self._next()

    def finish(self) -> Iterator[Chunk]:
        """The chunks of what is left."""
        while self._held > self._lead:
            yield self._next()

    def _next(self) -> Chunk:
        held = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
        ahead = held[self._lead : self._lead + self._lookahead]
        ended = self._held - self._lead <= self._lookahead
        cut = _Decision(ahead, ended, self._lead, self._options).cut()
        lead = self._lead if cut.speech else 0
        stop = self._lead + cut.length + cut.after
        span = ChunkSpan(
            channel=self._channel,
            index=self._index,
            core_start=self._core,
            core_end=self._core + cut.length,
            start=self._core - lead,
            end=self._core + cut.length + cut.after,
            speech=cut.speech,
        )
        chunk = Chunk(span, np.array(held[self._lead - lead : stop], dtype=np.float32))
        keep = self._lead + cut.length - cut.after
        self._parts = [held[keep:].copy()]  # a view would keep all of it
        self._held = len(self._parts[0])
        self._lead = cut.after
        self._core += cut.length
        self._index += 1
        return chunk


@dataclass(frozen=True)
class _Cut:
    """A core's length and the context heard on both sides of its end, in samples."""

    length: int
    after: int = 0
    speech: bool = True


class _Decision:
    """Where the core that begins at `ahead[0]` ends. `ahead` is all that is left when `ended`."""

    def __init__(self, ahead: Samples, ended: bool, lead: int, options: ChunkOptions) -> None:
        self._options = options
        self._ended = ended
        self._left = len(ahead)
        self._max = _samples(options.max) - lead
        moments = frame_moments(ahead)
        rest = ahead[len(moments) * FRAME :].astype(np.float64)
        if len(rest):
            moments = np.append(moments, [[rest.mean(), np.square(rest).mean()]], axis=0)
        self._levels = levels_of(moments)
        self._levels50 = levels_of(moments, HUSH_WIDTH)

    def cut(self) -> _Cut:
        """The first of the module's rules that applies."""
        hush = self._hush_now()
        if hush:
            return _Cut(hush, speech=False)
        before_hush = self._until_hush()
        if before_hush:
            return _Cut(before_hush)
        if self._ended and self._left <= self._max:
            return _Cut(self._left)
        aim, overlap = _frames(self._options.aim), _frames(self._options.overlap)
        limit = self._max // FRAME
        if self._ended:
            limit = min(limit, (self._left - _samples(self._options.tail)) // FRAME)
        pause = best_pause(self._levels, aim, limit, _frames(self._options.pause))
        if pause is not None:
            return _Cut(pause * FRAME)
        limit = min(limit, self._max // FRAME - overlap)
        return _Cut(quietest(self._levels, aim, limit) * FRAME, after=overlap * FRAME)

    def _hush_now(self) -> int:
        """The length of the hush that begins here, less the margin before the sound that ends it; else 0."""
        gate = self._options.gate
        last = hush_end(self._levels50, 0, gate)
        reaches_end = self._ended and last == len(self._levels50)
        if reaches_end and (last >= hush_frames(gate.seconds) or is_nothing(self._levels50, gate)):
            return min(self._left, _samples(self._options.max))
        if last < hush_frames(gate.seconds):
            return 0
        length = last * HUSH_WIDTH * FRAME - _samples(gate.margin)
        return min(length, _samples(self._options.max))

    def _until_hush(self) -> int:
        """The length up to the margin after which the next hush is cut off; 0 where none begins in reach."""
        hush = first_hush(self._levels50, self._options.gate)
        if hush is None:
            return 0
        length = hush[0] * HUSH_WIDTH * FRAME + _samples(self._options.gate.margin)
        return length if length <= self._max else 0


def _samples(seconds: float) -> int:
    """Seconds as samples, on the grid of level frames."""
    return _frames(seconds) * FRAME


def _frames(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE / FRAME)
