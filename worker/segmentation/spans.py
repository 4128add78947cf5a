"""Where a chunk lies in its recording: the one record of positions that planning, decoding, saving and
stitching share. Knows no samples and no words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ChunkSpan:
    """Positions are samples at 16 kHz from the recording's start: start <= core_start < core_end <= end.
    Cores tile a channel; what is heard beyond the core is context. Without `speech` the engine is not
    asked."""

    channel: int
    index: int
    core_start: int
    core_end: int
    start: int
    end: int
    speech: bool = True

    @property
    def core(self) -> int:
        """Samples that this chunk answers for."""
        return self.core_end - self.core_start
