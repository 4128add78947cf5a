"""What the side of a Sortformer that follows a recording asks of the side that computes, and gets. No MLX."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class MelStep:
    """Asks for `frames` mel frames of the samples, not normalised, behind the first `lead`. The samples are
    multiplied by `gain` first. The output is float32 `[frames, mels]`."""

    lead: int
    frames: int
    gain: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class NormaliseStep:
    """Asks for a whole recording's mel frames `[n, mels]` as the model was trained to hear them."""

    mel: Floats

    @property
    def frames(self) -> int:
        """How many there are."""
        return len(self.mel)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkStep:
    """Asks who speaks in a chunk: mel frames of the samples, as `MelStep` has them, or else `mel` `[n, mels]`
    as the model was trained to hear them; heard behind `memory` `[m, d]`. The output is a ChunkOutput."""

    lead: int
    frames: int
    memory: Floats
    mel: Floats | None = None


Step = MelStep | NormaliseStep | ChunkStep


class ChunkOutput(NamedTuple):
    """rows: the chunk's subsampled frames `[T, d]`. probabilities: `[m + T, S]`, of the memory too."""

    rows: Floats
    probabilities: Floats
