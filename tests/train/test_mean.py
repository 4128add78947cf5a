"""The mean of two runs' weights."""

import numpy as np
import pytest
from safetensors.numpy import load, save

from ops.train.model.mean import mean


def test_each_tensor_is_the_mean_of_the_two_in_their_type() -> None:
    first = save({"a": np.array([1, 3], np.float16), "b": np.ones((1, 2), np.float32)})
    second = save({"a": np.array([2, -3], np.float16), "b": np.zeros((1, 2), np.float32)})
    weights = load(mean(first, second))
    assert weights["a"].dtype == np.float16
    assert weights["a"].tolist() == [1.5, 0]
    assert weights["b"].tolist() == [[0.5, 0.5]]


def test_other_shapes_are_refused() -> None:
    one, other = (save({"a": np.zeros(size, np.float16)}) for size in (2, 3))
    with pytest.raises(ValueError, match="same tensors"):
        mean(one, other)
