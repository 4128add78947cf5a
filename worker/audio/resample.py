"""Any sample rate to 16 kHz, block by block, by soxr's streaming resampler.

Knows the rate of what it is fed and nothing of files. The filter is linear-phase and its delay is
compensated, so sample k of the output lies at k / 16000 seconds of the input.
"""

import numpy as np
import soxr

from worker.audio.base import Samples

SAMPLE_RATE = 16_000


class Resampler:
    """Streams `[n, channels]` float32 from `rate` Hz to 16 kHz; at 16 kHz it hands the input through."""

    def __init__(self, rate: int, channels: int) -> None:
        self.rate = rate
        self.channels = channels
        self._given = 0
        self._last: Samples | None = None
        self._soxr = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, channels, dtype="float32", quality="HQ")
        )

    def push(self, samples: Samples) -> Samples:
        """What can be given out after `samples`; may be empty."""
        if len(samples):
            self._last = samples[-1:]
        out = samples if self._soxr is None else self._soxr.resample_chunk(np.ascontiguousarray(samples))
        self._given += len(out)
        return out

    def finish(self) -> Samples:
        """The filter's tail. A recording shorter than one 16 kHz sample still gives one."""
        tail = np.zeros((0, self.channels), dtype=np.float32)
        if self._soxr is not None:
            tail = self._soxr.resample_chunk(tail, last=True)
        if self._given + len(tail) == 0 and self._last is not None:
            tail = self._last.copy()
        self._given += len(tail)
        return tail
