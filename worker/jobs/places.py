"""A few places of a recording, picked while its chunks go by. Depends on the chunks alone (law 7)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from worker.audio import SAMPLE_RATE
from worker.segmentation.chunker import Chunk

PLACES = 5
LEAST_SECONDS = 5.0
"""Of a chunk that is picked."""


@dataclass(slots=True)
class Places:
    """A few chunks with speech, spread over a recording of any length."""

    kept: list[Chunk] = field(default_factory=list)
    _step: int = 1
    _seen: int = 0

    def pick_from(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The chunks, unchanged."""
        for chunk in chunks:
            if chunk.speech and chunk.span.core >= LEAST_SECONDS * SAMPLE_RATE:
                self._add(chunk)
            yield chunk

    def _add(self, chunk: Chunk) -> None:
        if self._seen % self._step == 0:
            self.kept.append(chunk)
        self._seen += 1
        if len(self.kept) == 2 * PLACES:
            self.kept, self._step = self.kept[::2], 2 * self._step

    @property
    def picked(self) -> list[Chunk]:
        """At most `PLACES`, in order."""
        count = len(self.kept)
        if count <= PLACES:
            return self.kept
        return [self.kept[round(at * (count - 1) / (PLACES - 1))] for at in range(PLACES)]
