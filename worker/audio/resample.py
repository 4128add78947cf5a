"""Any sample rate to 16 kHz, block by block, by soxr's streaming resampler.

The filter is linear-phase and its delay is compensated, so sample k of the output lies at k / 16000 seconds
of the input.
"""

from collections.abc import Iterator

import numpy as np
import soxr

from worker.audio.base import Samples

SAMPLE_RATE = 16_000


class Resampler:
    """Streams `[n, channels]` float32 from `rate` Hz to 16 kHz; at 16 kHz it passes the input through.

    Output blocks hold at most one second of samples, whatever the size of the input blocks.
    """

    def __init__(self, rate: int, channels: int) -> None:
        self.rate = rate
        self.channels = channels
        self._output_frames = 0
        self._last: Samples | None = None
        self._soxr = (
            None
            if rate == SAMPLE_RATE
            else soxr.ResampleStream(rate, SAMPLE_RATE, channels, dtype="float32", quality="HQ")
        )

    def push(self, samples: Samples) -> Iterator[Samples]:
        """The blocks that `samples` complete; none is empty."""
        if len(samples):
            self._last = samples[-1:].copy()
        for at in range(0, len(samples), self.rate):
            second = samples[at : at + self.rate]
            if self._soxr is not None:
                second = self._soxr.resample_chunk(np.ascontiguousarray(second))
            yield from self._blocks(second)

    def finish(self) -> Iterator[Samples]:
        """The filter's tail. A recording shorter than one 16 kHz sample still yields one."""
        tail = np.zeros((0, self.channels), dtype=np.float32)
        if self._soxr is not None:
            tail = self._soxr.resample_chunk(tail, last=True)
        if self._output_frames + len(tail) == 0 and self._last is not None:
            tail = self._last
        yield from self._blocks(tail)

    def _blocks(self, resampled: Samples) -> Iterator[Samples]:
        for at in range(0, len(resampled), SAMPLE_RATE):
            block = resampled[at : at + SAMPLE_RATE]
            self._output_frames += len(block)
            yield block
