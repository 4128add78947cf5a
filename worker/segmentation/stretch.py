"""The chunks of a stretch of a recording: only the stretch and a little around it is heard."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

from spool.domain.archive.stretch import Stretch
from spool.domain.recognition import ChunkSpan
from worker.audio import SAMPLE_RATE
from worker.audio.base import Samples
from worker.segmentation.chunker import Chunk, ChunkOptions, plan_channels
from worker.speech.listener import SpeechListener

MARGIN_SECONDS = 2
"""Heard on both sides of the stretch, so that no word is cut at its edges."""
_GRID = SAMPLE_RATE // 1000
"""Times are kept in milliseconds."""


class StretchCore(NamedTuple):
    """The samples of a stretch, from the recording's start."""

    first: int
    last: int

    @classmethod
    def of(cls, stretch: Stretch, audio_seconds: float) -> Self:
        """Of a stretch of a recording of this length."""
        most = round(audio_seconds * SAMPLE_RATE)
        return cls(round(stretch.start * SAMPLE_RATE), min(round(stretch.end * SAMPLE_RATE), most))

    @property
    def first_heard(self) -> int:
        """The first sample that is heard."""
        return max(0, self.first - MARGIN_SECONDS * SAMPLE_RATE) // _GRID * _GRID

    @property
    def last_heard(self) -> int:
        """The one after the last that is heard, if the recording is so long."""
        return self.last + MARGIN_SECONDS * SAMPLE_RATE

    def plan(
        self,
        blocks: Iterable[Samples],
        channels: int,
        options: ChunkOptions,
        listeners: Sequence[SpeechListener],
    ) -> Iterator[Chunk]:
        """The chunks of the stretch, as the recording is read from its beginning; their cores end at its
        edges."""
        numbers = Counter[int]()
        for chunk in plan_channels(self._cut(blocks), channels, options, listeners):
            span = move_span(chunk.span, self.first_heard)
            span = replace(
                span,
                index=numbers[span.channel],
                core_start=max(span.core_start, self.first),
                core_end=min(span.core_end, self.last),
            )
            if span.core > 0:
                numbers[span.channel] += 1
                yield Chunk(span, chunk.samples)

    def _cut(self, blocks: Iterable[Samples]) -> Iterator[Samples]:
        """What is heard of the blocks; reading ends with it."""
        at = 0
        for block in blocks:
            first, until = max(0, self.first_heard - at), min(len(block), self.last_heard - at)
            at += len(block)
            if first < until:
                yield block[first:until]
            if at >= self.last_heard:
                return


def move_span(span: ChunkSpan, samples: int) -> ChunkSpan:
    """The span so many samples later."""
    places = ("core_start", "core_end", "start", "end")
    return replace(span, **{name: getattr(span, name) + samples for name in places})
