"""Log-mel features of samples with a little noise, the same for every recording of a length: transformers'
CohereAsrFeatureExtractor (5.24) seeds torch's generator with the number of samples."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.models.conformer.config import PreprocessorConfig
from worker.models.front_ends.log_mel import FeatureExtractor, Float32

LANES = 8  # of Box-Muller in torch's blocks: a block of 16 holds as many radii and angles
BLOCK = 2 * LANES
UNIFORM_BITS = (1 << 24) - 1


class DitheredFeatures(FeatureExtractor):
    """As `FeatureExtractor`, of samples to which `dither` times normal noise was added."""

    def __init__(self, config: PreprocessorConfig, dither: float) -> None:
        super().__init__(config)
        self.dither = dither

    def batch(
        self, samples: Sequence[Float32], powers: Sequence[Float32 | None] | None = None
    ) -> tuple[mx.array, NDArray[np.int32]]:
        return super().batch([self._add(row) for row in samples], powers)

    def _add(self, samples: Float32) -> Float32:
        # Shorter than a block is shorter than a frame of features.
        if self.dither <= 0 or len(samples) < BLOCK:
            return samples
        noise: Float32 = np.float32(self.dither) * torch_randn(len(samples), len(samples))
        return samples + noise


def torch_randn(count: int, seed: int) -> Float32:
    """What torch.randn(count) gives from a CPU generator with this seed, within 5e-7; count >= 16.

    Its mt19937 gives uniforms of 24 bits, and Box-Muller makes normals of them in blocks of 16, the rest as a
    block of the last 16 anew (aten/src/ATen/native/cpu/DistributionTemplates.h, normal_fill).
    """
    generator = np.random.RandomState(seed)

    def uniforms(size: int) -> Float32:
        drawn = generator.randint(0, 1 << 32, size, dtype=np.uint32) & UNIFORM_BITS
        return drawn.astype(np.float32) * np.float32(2.0**-24)

    def normals(blocks: Float32) -> Float32:
        radius = np.sqrt(-2 * np.log(1 - blocks[:, :LANES]))
        angle = np.float32(2 * np.pi) * blocks[:, LANES:]
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)

    values, whole = uniforms(count), count // BLOCK * BLOCK
    values[:whole] = normals(values[:whole].reshape(-1, BLOCK)).ravel()
    if count % BLOCK:
        values[-BLOCK:] = normals(uniforms(BLOCK)[None]).ravel()
    return values
