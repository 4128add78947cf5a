"""Plans chunks: where to cut one channel, so that the engine decodes 20 to 30 s at a time.

A *core* is the part of the recording whose words a chunk contributes; cores tile the recording exactly
(law 6). A core ends, in order of preference,

1. where the silence gate closes or the speech detector finds a stretch without speech; that stretch becomes a
   core of its own that is not decoded (`speech` False);
2. in the middle of the longest pause between 20 s and 30 s;
3. at the quietest place, if there is no pause. Both neighbours then include 2 s across the cut, so that
   `worker.segmentation.stitch` can decide by times which of them supplies the words at the seam.

A chunk's samples, context included, are never longer than 30 s. A remainder of less than 5 s is avoided where
the plan can foresee it.

The plan depends on the samples alone, not on the blocks they arrive in: each decision uses exactly the next
35 s, or what is left, and no more is held in memory, except for the 8 s that a listener may lag behind. Uses
levels (`worker.segmentation.levels`) and stretches without speech (`worker.speech.listener`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import ChunkSpan
from worker.audio.resample import SAMPLE_RATE
from worker.segmentation.levels import (
    FRAME,
    GATE_WIDTH,
    GateOptions,
    Levels,
    best_pause,
    end_of_gated,
    find_gated,
    frame_moments,
    gate_frames,
    is_silent_throughout,
    levels_of,
    quietest,
)
from worker.speech.listener import SpeechListener
from worker.speech.spans import Stretch

SHORTEST_SILENCE = 1.0
"""Seconds; a shorter stretch without speech becomes a core only at the end."""
Samples = NDArray[np.float32]


@dataclass(frozen=True)
class ChunkOptions:
    """Lengths in seconds. Changing them may change words, so they are part of a transcript's fingerprint."""

    aim: float = 20.0
    max: float = 30.0
    overlap: float = 2.0
    tail: float = 5.0
    pause: float = 0.2
    gate: GateOptions = field(default_factory=GateOptions)

    def __post_init__(self) -> None:
        """Raise ValueError for lengths that leave no place to cut."""
        room = min(self.max - 2 * self.overlap, self.max - self.overlap - self.tail)
        if not 0 < self.overlap <= self.tail <= self.aim <= room:
            raise ValueError("chunk lengths must satisfy overlap <= tail <= aim <= max - overlap - tail")


@dataclass(frozen=True, eq=False)
class Chunk:
    """A chunk of one channel: its position, and the samples of core and context, float32 `[end - start]`."""

    span: ChunkSpan
    samples: Samples

    @property
    def speech(self) -> bool:
        """Whether the engine decodes it."""
        return self.span.speech


def plan_chunks(
    blocks: Iterable[Samples],
    options: ChunkOptions | None = None,
    listener: SpeechListener | None = None,
) -> Iterator[Chunk]:
    """The chunks of one channel's `blocks` (float32 `[n]` at 16 kHz), each as soon as it is certain. With a
    listener, stretches in which it hears no speech are not decoded."""
    planner = ChunkPlanner(options, listener=listener)
    for block in blocks:
        yield from planner.push(block)
    yield from planner.finish()


def plan_channels(
    blocks: Iterable[Samples],
    channels: int,
    options: ChunkOptions | None = None,
    listeners: Sequence[SpeechListener] = (),
) -> Iterator[Chunk]:
    """The chunks of every channel of `blocks` (`[n, channels]`) in one pass, each channel planned by itself;
    listeners: one for each channel, or none."""
    planners = [
        ChunkPlanner(options, channel, listeners[channel] if listeners else None)
        for channel in range(channels)
    ]
    for block in blocks:
        for channel, planner in enumerate(planners):
            yield from planner.push(block[:, channel])
    for planner in planners:
        yield from planner.finish()


class ChunkPlanner:
    """Plans one channel from pushed blocks."""

    def __init__(
        self,
        options: ChunkOptions | None = None,
        channel: int = 0,
        listener: SpeechListener | None = None,
    ) -> None:
        self._options = options or ChunkOptions()
        self._listener = listener
        self._channel = channel
        self._parts: list[Samples] = []
        self._held = 0
        self._lead = 0
        self._core = 0
        self._index = 0
        self._lookahead = _samples(self._options.max) + _samples(self._options.tail)

    def push(self, block: Samples) -> Iterator[Chunk]:
        """Add float32 `[n]`, kept without a copy; yields the chunks that later samples cannot change."""
        if len(block):
            self._parts.append(block)
            self._held += len(block)
            if self._listener is not None:
                self._listener.push(block)
        # One sample beyond the lookahead shows that the recording goes on.
        while self._held - self._lead > self._lookahead and self._is_heard():
            yield self._next()

    def finish(self) -> Iterator[Chunk]:
        """The chunks of the remaining samples."""
        if self._listener is not None:
            self._listener.finish()
        while self._held > self._lead:
            yield self._next()

    def _is_heard(self) -> bool:
        return self._listener is None or self._listener.has_heard(self._core + self._lookahead)

    def _silences(self, ahead: int, ended: bool) -> list[Stretch]:
        """Stretches without speech in the next `ahead` samples, relative to the core's start, on the grid of
        level frames."""
        if self._listener is None:
            return []
        end = self._core + ahead
        return [
            (
                -(-first // FRAME) * FRAME - self._core,
                (last if last == end else last // FRAME * FRAME) - self._core,
            )
            for first, last in self._listener.silences(self._core, end, ended)
        ]

    def _next(self) -> Chunk:
        held = self._parts[0] if len(self._parts) == 1 else np.concatenate(self._parts)
        ahead = held[self._lead : self._lead + self._lookahead]
        ended = self._held - self._lead <= self._lookahead
        silences = self._silences(len(ahead), ended)
        cut = _Decision(ahead, ended, self._lead, self._options, silences).cut()
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
        self._parts = [held[keep:].copy()]  # a view would keep the whole array alive
        self._held = len(self._parts[0])
        self._lead = cut.after
        self._core += cut.length
        self._index += 1
        return chunk


@dataclass(frozen=True)
class _Cut:
    """A core's length, and the context on each side of its end, in samples."""

    length: int
    after: int = 0
    speech: bool = True


class _Decision:
    """Where the core that begins at `ahead[0]` ends. If `ended`, `ahead` is the rest of the recording;
    `silences` are its stretches without speech."""

    def __init__(
        self,
        ahead: Samples,
        ended: bool,
        lead: int,
        options: ChunkOptions,
        silences: Sequence[Stretch] = (),
    ) -> None:
        self._options = options
        self._silences = silences
        self._ended = ended
        self._left = len(ahead)
        self._max = _samples(options.max) - lead
        moments = frame_moments(ahead)
        rest = ahead[len(moments) * FRAME :].astype(np.float64)
        if len(rest):
            moments = np.append(moments, [[rest.mean(), np.square(rest).mean()]], axis=0)
        self._moments = moments
        self._levels50 = levels_of(moments, GATE_WIDTH)

    @cached_property
    def _levels(self) -> Levels:
        """Of every 10 ms; a recording that is one chunk needs none."""
        return levels_of(self._moments)

    def cut(self) -> _Cut:
        """The cut by the first of the module's rules that applies."""
        silence = max(self._measure_gated(), self._silence_now())
        if silence:
            return _Cut(silence, speech=False)
        before = [length for length in (self._until_gated(), self._until_silence()) if length]
        if before:
            return _Cut(min(before))
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

    def _measure_gated(self) -> int:
        """The length of the gated stretch that begins here, less the margin before the next sound; else 0."""
        gate = self._options.gate
        last = end_of_gated(self._levels50, 0, gate)
        reaches_end = self._ended and last == len(self._levels50)
        if reaches_end and (last >= gate_frames(gate.seconds) or is_silent_throughout(self._levels50, gate)):
            return min(self._left, _samples(self._options.max))
        if last < gate_frames(gate.seconds):
            return 0
        length = last * GATE_WIDTH * FRAME - _samples(gate.margin)
        return min(length, _samples(self._options.max))

    def _silence_now(self) -> int:
        """The length of the stretch without speech that covers the start; else 0."""
        lengths = [last for first, last in self._silences if first <= 0]
        length = min(max(lengths, default=0), _samples(self._options.max))
        is_last = self._ended and length == self._left
        return length if is_last or length >= _samples(SHORTEST_SILENCE) else 0

    def _until_silence(self) -> int:
        """The length up to the next stretch without speech; 0 if none begins in reach."""
        length = min((first for first, _ in self._silences if first > 0), default=0)
        return length if length <= self._max else 0

    def _until_gated(self) -> int:
        """The length up to the next gated stretch, margin included; 0 if none begins in reach."""
        gated = find_gated(self._levels50, self._options.gate)
        if gated is None:
            return 0
        length = gated[0] * GATE_WIDTH * FRAME + _samples(self._options.gate.margin)
        return length if length <= self._max else 0


def _samples(seconds: float) -> int:
    """Seconds as samples, on the grid of level frames."""
    return _frames(seconds) * FRAME


def _frames(seconds: float) -> int:
    return round(seconds * SAMPLE_RATE / FRAME)
