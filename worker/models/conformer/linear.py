"""The encoder's matrix products with weights."""

import mlx.core as mx

from kernels.runtime.device import on_gpu
from worker.models.grouped import GroupedLinear


class Linear(GroupedLinear):
    """A linear layer: the rows of a batch are one product on a GPU, and one for each utterance on a CPU,
    whose product rounds a row by how many rows stand beside it. So no bit of an utterance depends on its
    neighbours."""

    def __call__(self, x: mx.array) -> mx.array:
        """[B, ..., inputs] -> [B, ..., outputs]."""
        if x.ndim < 3 or x.shape[0] == 1 or on_gpu() or self.is_packed:
            together: mx.array = super().__call__(x)
            return together
        rows = x.reshape(x.shape[0], -1, x.shape[-1])
        # A weight of three dimensions: MLX lays the rows of all utterances together before one of two.
        weight = self.weight.T[None]
        out = mx.addmm(self.bias, rows, weight) if "bias" in self else rows @ weight
        return out.reshape(*x.shape[:-1], -1)
