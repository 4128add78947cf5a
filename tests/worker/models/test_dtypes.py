"""Sixteen bits stay sixteen: the encoder's graph as a GPU gets it, walked operation by operation.

Without a GPU nothing can be run on one, but its graph can be exported: the kernels stand in it as nodes.
"""

from collections.abc import Iterator
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn

from kernels.runtime import use_backend
from ops.testbed.nemo_model import load_nemo
from tests.worker.models.golden import FOLDER
from worker.models import NemoModel

LENGTHS = np.array([300, 170], np.int32)


@pytest.fixture(params=["hybrid", "tdt"])
def loaded(request: pytest.FixtureRequest) -> NemoModel:
    return load_nemo(FOLDER / request.param, mx.bfloat16)


@pytest.fixture(autouse=True)
def _norm_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """MLX's norm is one operation on a GPU; without one it is spelt out, casts included."""

    def norm(self: nn.LayerNorm, x: mx.array) -> mx.array:
        return x * self.weight + self.bias

    monkeypatch.setattr(nn.LayerNorm, "__call__", norm)


def graph(model: NemoModel) -> list[dict[str, Any]]:
    """Every node of the encoder over a batch of two."""
    nodes: list[dict[str, Any]] = []
    features = mx.zeros((2, 300, model.config.preprocessor.features), mx.bfloat16)
    with use_backend("metal"):
        mx.export_function(nodes.append, lambda x: model.network.encoder(x, LENGTHS)[0], features)
    return nodes


def wide(nodes: list[dict[str, Any]]) -> Iterator[str]:
    """Nodes that cast, or give or take 32-bit floats."""
    for node in nodes:
        arrays = [*node.get("outputs", []), *node.get("inputs", [])]
        dtypes = {array[2] for array in arrays if len(array) == 3}
        dtypes |= {array.dtype for _, array in node.get("constants", [])}
        if node.get("name") == "AsType" or mx.float32 in dtypes:
            yield f"{node.get('name', node['type'])} {arrays}"


def test_no_layer_casts(loaded: NemoModel) -> None:
    nodes = graph(loaded)
    kernels = [node for node in nodes if node.get("name") == "CustomKernel"]
    # Subsampling has two kernels; each of two layers has the SiLU of two feed-forwards, a norm behind each of
    # four changes, and a convolution.
    assert len(kernels) == 2 + 2 * (2 + 4 + 1)
    assert list(wide(nodes)) == []


@pytest.mark.parametrize("path", ["layers.1.norm_out.weight", "layers.0.self_attn.pos_bias_u"])
def test_a_single_wide_weight_is_found(loaded: NemoModel, path: str) -> None:
    encoder = loaded.network.encoder
    *parents, name = path.split(".")
    owner: Any = encoder
    for parent in parents:
        owner = owner[int(parent)] if parent.isdigit() else getattr(owner, parent)
    setattr(owner, name, getattr(owner, name).astype(mx.float32))
    assert list(wide(graph(loaded)))
