"""The position of a chunk in its recording, shared by planning, decoding, saving and stitching."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkSpan:
    """Positions are samples at 16 kHz from the recording's start: start <= core_start < core_end <= end.
    Cores tile a channel; the rest is context. Without `speech` the chunk is not decoded."""

    channel: int
    index: int
    core_start: int
    core_end: int
    start: int
    end: int
    speech: bool = True

    @property
    def core(self) -> int:
        """The length of the core in samples."""
        return self.core_end - self.core_start
