"""Log-mel frames of a recording that is still coming in: each as soon as no later sample can change it.

The frames are those of `FeatureExtractor.log_mel` on the whole recording, whatever blocks it came in.
"""

import mlx.core as mx
import numpy as np

from worker.models.front_ends.log_mel import FeatureExtractor, Float32


class MelStream:
    """One recording. `frames` counts the log-mel frames given so far."""

    def __init__(self, extractor: FeatureExtractor) -> None:
        config = extractor.config
        self._extractor = extractor
        self._hop, self._size = config.hop_length, config.fft_length
        # A transform is centred on its frame; the window covers this much of it behind the centre.
        self._behind = (config.fft_length + config.win_length) // 2 - config.fft_length // 2
        self._factor = np.float32(config.preemph or 0.0)
        self._before: np.float32 | None = None
        self._held = np.zeros(config.fft_length // 2, np.float32)  # from the next frame's transform on
        self._samples = 0
        self._ended = False
        self.frames = 0

    def push(self, samples: Float32) -> None:
        """The next samples, [N] float32 at the config's rate."""
        if self._ended:
            raise ValueError("the recording has ended; nothing can be pushed behind its end")
        if len(samples) == 0:
            return
        emphasised = samples.astype(np.float32)
        if self._factor:
            emphasised[1:] -= self._factor * samples[:-1]
            if self._before is not None:
                emphasised[0] -= self._factor * self._before
            self._before = samples[-1]
        self._held = np.concatenate([self._held, emphasised])
        self._samples += len(samples)

    def finish(self) -> None:
        """No sample comes after this: beyond the end are zeros."""
        self._ended = True

    def take(self) -> mx.array:
        """The frames that are final and were not given yet, [n, mels] float32."""
        total = self._samples // self._hop
        known = max(0, self._samples - self._behind + self._hop) // self._hop
        count = (total if self._ended else known) - self.frames
        if count <= 0:
            return mx.zeros((0, self._extractor.config.features))
        length = (count - 1) * self._hop + self._size
        block = self._held[:length]
        mel = self._extractor.log_mel_of(np.pad(block, (0, length - len(block))), count)
        self._held = self._held[count * self._hop :]
        self.frames += count
        return mel
