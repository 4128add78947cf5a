"""The encoder's matrix products with weights."""

import mlx.core as mx

from kernels.nn.int8_products import Int8Products
from kernels.runtime.device import on_gpu
from worker.models.compute_type import take_int8
from worker.models.grouped import GroupedLinear


class Linear(GroupedLinear):
    """A linear layer: the rows of a batch are one product on a GPU, and one for each utterance on a CPU,
    whose product rounds a row by how many rows stand beside it. So no bit of an utterance depends on its
    neighbours. In 8-bit integers where the model is loaded so; exact: never."""

    def __init__(self, inputs: int, outputs: int, bias: bool = True, *, exact: bool = False) -> None:
        super().__init__(inputs, outputs, bias)
        self._int8 = not exact and take_int8()
        self._integers: Int8Products | None = None

    def __call__(self, x: mx.array) -> mx.array:
        """[B, ..., inputs] -> [B, ..., outputs]."""
        if self._int8 and x.dtype == mx.float32 and not self.is_packed:
            return self._as_integers()(x)
        if x.ndim < 3 or x.shape[0] == 1 or on_gpu() or self.is_packed:
            together: mx.array = super().__call__(x)
            return together
        rows = x.reshape(x.shape[0], -1, x.shape[-1])
        # A weight of three dimensions: MLX lays the rows of all utterances together before one of two.
        weight = self.weight.T[None]
        out = mx.addmm(self.bias, rows, weight) if "bias" in self else rows @ weight
        return out.reshape(*x.shape[:-1], -1)

    def _as_integers(self) -> Int8Products:
        """The weights in integers, in whose place they then stand: no float32 copy stays beside them."""
        if self._integers is None:
            self._integers = Int8Products.pack(self.weight, self.get("bias"))
            self.weight = mx.zeros((0, self.weight.shape[1]))
        return self._integers
