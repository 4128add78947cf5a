"""How many kernels a computation launches on an Apple GPU, counted on any machine from MLX's graph.

Within `as_on_gpu` our kernels, and what is one launch of `mx.fast` there but several operations on a CPU, are
nodes of the graph that give zeros; everything else is MLX's own, `mx.compile` included, and takes the way of
a GPU. Each primitive is a launch or a view of memory. Two launches are a pad (filling, copying) and a write
into a slice (copying, writing); one an input, a concatenation. What is reshaped while it lies transposed is
copied; MLX's attention writes its frames before its heads, so that behind it nothing is.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import mlx.core as mx

from kernels.runtime import device

VIEWS = frozenset(
    [
        "AsStrided",
        "Broadcast",
        "BroadcastAxes",
        "Copy",
        "ExpandDims",
        "Flatten",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "StopGradient",
        "Transpose",
        "Unflatten",
        "View",
    ]
)
RESHAPES = frozenset({"Reshape", "Flatten"})
_NODE = re.compile(r'\{ (\d+) \[label ="(\w+)"')
_EDGE = re.compile(r'("?\w+"?) -> ("?\w+"?)')


def _stand_in(
    inputs: Sequence[mx.array], outputs: Sequence[tuple[tuple[int, ...], mx.Dtype]]
) -> list[mx.array]:
    zeros = [mx.zeros(shape, dtype) for shape, dtype in outputs]
    mx.eval(zeros)
    return mx.depends(zeros, list(inputs))


def _on_gpu(
    _kernel: object,
    _chosen: object,
    inputs: Sequence[mx.array],
    outputs: Sequence[tuple[tuple[int, ...], mx.Dtype]],
    *_: object,
) -> list[mx.array]:
    return _stand_in(inputs, outputs)


def _layer_norm(x: mx.array, weight: mx.array, bias: mx.array, _epsilon: float) -> mx.array:
    return _stand_in([x, weight, bias], [(x.shape, x.dtype)])[0]


def _attention(
    query: mx.array, keys: mx.array, values: mx.array, *, scale: float, mask: mx.array
) -> mx.array:
    assert scale > 0
    batch, heads, frames, width = query.shape
    made = [((batch, frames, heads, width), query.dtype)]
    return _stand_in([query, keys, values, mask], made)[0].swapaxes(1, 2)


@contextmanager
def as_on_gpu() -> Iterator[None]:
    """Within the block, computations take the way of an Apple GPU; results are not those."""
    gpu = mx.Device(mx.gpu)
    with ExitStack() as stack:
        stack.enter_context(device.use_backend("metal"))
        stack.enter_context(patch.object(device, "_launch_on_gpu", _on_gpu))
        stack.enter_context(patch.object(mx, "default_device", lambda: gpu))
        stack.enter_context(patch.object(mx.fast, "layer_norm", _layer_norm))
        stack.enter_context(patch.object(mx.fast, "scaled_dot_product_attention", _attention))
        yield


def launches(*outputs: Any) -> Counter[str]:
    """The launches that computing these arrays takes, by the primitive's name."""
    text = io.StringIO()
    mx.export_to_dot(text, *_arrays(outputs))
    names = dict(_NODE.findall(text.getvalue()))
    inputs: dict[str, list[str]] = {node: [] for node in names}
    made_by: dict[str, str] = {}
    for source, target in _EDGE.findall(text.getvalue()):
        if target in names:
            inputs[target].append(source)
        else:
            made_by[target] = source
    found: Counter[str] = Counter()
    for node, name in names.items():
        turns, before = 0, node
        while name in RESHAPES and names.get(before := made_by.get(inputs[before][0], "")) == "Transpose":
            turns += 1
        found[name] += turns % 2 if name in RESHAPES else _launches_of(name, len(inputs[node]))
    return +found


def _launches_of(name: str, inputs: int) -> int:
    if name in VIEWS:
        return 0
    if name == "Concatenate":
        return inputs
    return 2 if name in {"Pad", "SliceUpdate", "Scatter"} else 1


def _arrays(tree: Any) -> list[mx.array]:
    if isinstance(tree, mx.array):
        return [tree]
    return [array for each in tree for array in _arrays(each)]
