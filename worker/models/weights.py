"""Which stored tensors each parameter is made of, and whether they fit.

A family's `NameMap` says how its checkpoints call a network's parameters, whose names are NeMo's. Two layouts
are known. PyTorch's: channels second, LSTM gates as `weight_ih_l0` and two biases. MLX's, as
`mlx-community/parakeet-*` has it: channels last, the LSTM as `Wx`, `Wh` and one bias. The network's own
parameters are walked and looked up, so every one is named when it is missing or of another shape, and
whatever is left over in the file is named too. What a checkpoint should hold follows from the network and the
map alone (`stored_shapes`). Knows no file format.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict

import mlx.core as mx
import mlx.utils
from mlx import nn

from spool.domain.fleet.quality import INT8
from spool.errors import WeightsMismatch
from worker.models.artifacts.grouped import GroupedWeights
from worker.models.artifacts.tensors import Renames, rename
from worker.models.artifacts.tensors import Shape as Shape
from worker.models.artifacts.tensors import Weights as Weights
from worker.models.compute_type import uses_int8
from worker.models.grouped import PARTS, GroupedLinear, stays_packed

LSTM_NAME = re.compile(r"^(.*\.lstm)\.(\d+)\.(Wx|Wh|bias)$")
POINTWISE = re.compile(r"pointwise_conv[12]\.weight$|decoder_layers\.0\.weight$")
SUBSAMPLING_POINTWISE = re.compile(r"pre_encode\.conv\.\d+\.weight$")
# Folded in float32 before the cast, or read by features, which have not been cast.
KEPT_EXACT = re.compile(r"\.conv\.(batch_norm|depthwise_conv)\.|\.global_cmvn\.")
NAMED_AT_MOST = 3


@dataclass(frozen=True, slots=True)
class NameMap:
    """How a family's checkpoints call parameters. renames: patterns of our names and what replaces them, one
    after another. otherwise: of the name that these give, what else a checkpoint may have in its place.
    ignored: tensors that nothing reads. also: other names for the same, each a map of its own. matrices:
    pointwise convolutions are stored as matrices."""

    ignored: re.Pattern[str]
    renames: Renames = ()
    otherwise: Renames = ()
    also: "tuple[NameMap, ...]" = ()
    matrices: bool = False

    def names_of(self, name: str) -> tuple[str, ...]:
        """What a checkpoint calls our parameter, any of these."""
        elsewhere = [other for names in self.also for other in names.names_of(name)]
        name = rename(name, self.renames)
        others = (re.sub(*pair, name) for pair in self.otherwise)
        return (name, *(other for other in others if other != name), *elsewhere)

    def find(self, name: str, shapes: Mapping[str, Shape]) -> str | None:
        """What a file of these tensors calls our parameter; None where it does not have it."""
        return next((each for each in self.names_of(name) if each in shapes), None)


NEMO = NameMap(
    ignored=re.compile(
        r"^preprocessor\.|^spec_augmentation\.|^loss\.|num_batches_tracked$|^encoder\.pos_enc\.|\.pos_enc\.pe$"
    ),
    otherwise=((r"joint_net\.2\.", "joint_net.1."),),
)


@dataclass(frozen=True, slots=True)
class Stored:
    """One tensor as a file should hold it: any of `names`, of `shape`."""

    names: tuple[str, ...]
    shape: Shape


def default_dtype(on_gpu: mx.Dtype = mx.bfloat16) -> mx.Dtype:
    """What suits the device: float32 on a CPU, where 16-bit products are computed one by one."""
    return mx.float32 if mx.default_device() == mx.Device(mx.cpu) else on_gpu


def is_channels_last(shapes: Mapping[str, Shape]) -> bool:
    """Whether a file follows MLX's layouts: its first subsampling convolution tells, having one input
    channel."""
    shape = shapes.get("encoder.pre_encode.conv.0.weight", ())
    return len(shape) == 4 and shape[-1] == 1 and shape[1] != 1


class Precision(TypedDict):
    """Two fields of a `ModelInfo`."""

    device: str
    dtype: str


def precision(dtype: mx.Dtype) -> Precision:
    """Where the model that is being loaded computes, and in what."""
    name = INT8 if uses_int8() else str(dtype).removeprefix("mlx.core.")
    return {"device": str(mx.default_device()), "dtype": name}


def parameter_bytes(network: nn.Module) -> int:
    """Bytes of a network's weights in memory."""
    return sum(value.nbytes for value in _parameters(network).values())


def _parameters(network: nn.Module) -> dict[str, mx.array]:
    return dict(mlx.utils.tree_flatten(network.parameters()))


def linear_shapes(name: str, outputs: int, inputs: int) -> dict[str, Shape]:
    """The tensors of a linear layer with a bias."""
    return {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}


def norm_shapes(name: str, width: int) -> dict[str, Shape]:
    """The tensors of a layer norm."""
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def stored_shapes(network: nn.Module, names: NameMap = NEMO) -> dict[str, Shape]:
    """The tensors that a checkpoint in PyTorch's layout holds for a network."""
    wanted = {name: tuple(value.shape) for name, value in _parameters(network).items()}
    stored = (each for name, shape in wanted.items() for each in read_stored(name, shape, False, names))
    return {each.names[0]: each.shape for each in stored}


def read_stored(name: str, shape: Shape, channels_last: bool, names_of: NameMap = NEMO) -> tuple[Stored, ...]:
    """What a file holds for our parameter: one tensor, or the two biases of an LSTM layer."""
    lstm = LSTM_NAME.match(name)
    if lstm and not channels_last:
        stack, layer, part = lstm.groups()
        kinds = {"Wx": ("weight_ih",), "Wh": ("weight_hh",), "bias": ("bias_ih", "bias_hh")}[part]
        return tuple(Stored(names_of.names_of(f"{stack}.{kind}_l{layer}"), shape) for kind in kinds)
    names = names_of.names_of(name)
    if len(shape) == 2 and SUBSAMPLING_POINTWISE.search(name):
        rows, columns = shape
        return (Stored(names, (rows, 1, 1, columns) if channels_last else (rows, columns, 1, 1)),)
    if len(shape) == 2 and POINTWISE.search(name) and not names_of.matrices:
        rows, columns = shape
        return (Stored(names, (rows, 1, columns) if channels_last else (rows, columns, 1)),)
    if len(shape) in (3, 4) and not channels_last:
        return (Stored(names, (shape[0], shape[-1], *shape[1:-1])),)
    return (Stored(names, shape),)


def assemble(shape: Shape, tensors: list[mx.array], channels_last: bool) -> mx.array:
    """Our parameter from the stored tensors of `read_stored`."""
    if len(tensors) == 2:
        return tensors[0].astype(mx.float32) + tensors[1].astype(mx.float32)
    tensor = tensors[0]
    if len(shape) == 2 and tensor.ndim != 2:
        return tensor.reshape(shape)
    if tensor.ndim in (3, 4) and not channels_last:
        return mx.moveaxis(tensor, 1, -1)
    return tensor


def install(
    network: nn.Module,
    weights: Weights,
    dtype: mx.Dtype,
    source: str,
    others: Mapping[str, Shape] | None = None,
    names: NameMap = NEMO,
    others_dtype: mx.Dtype | None = None,
) -> dict[str, mx.array]:
    """Puts a file's tensors into the network in `dtype`, and returns those of `others` in theirs or else in
    it. Each tensor is read once, after every shape fits. others: tensors of the file beside the network's,
    by the names that `names` takes.

    Where quantised weights stay packed, so do those of the network's `GroupedLinear` layers. Those of
    `others` are returned expanded, which MLX does when they are first used, and packed beside it
    (`packed_parts`).

    Raises WeightsMismatch that names every tensor that is missing, surplus or of another shape.
    """
    shapes = weights.shapes
    channels_last = is_channels_last(shapes)
    wanted: dict[str, Shape] = {name: tuple(value.shape) for name, value in _parameters(network).items()}
    plan = {name: read_stored(name, shape, channels_last, names) for name, shape in wanted.items()}
    beside = {name: (Stored(names.names_of(name), shape),) for name, shape in (others or {}).items()}
    stored_names = _fit(plan | beside, shapes, names.ignored, source)
    layers = dict(network.named_modules())
    loaded, kept = [], {}
    for name, tensors in stored_names.items():
        if name in beside:
            kept[name] = weights.read(tensors[0]).astype(others_dtype or dtype)
            kept |= packed_parts(weights, tensors[0], name)
            continue
        layer, parts = layers.get(name.removesuffix(".weight")), packed_parts(weights, tensors[0], name)
        if parts and isinstance(layer, GroupedLinear):
            packed, layer.scales, layer.biases = parts.values()
            layer.scales, layer.biases = layer.scales.astype(dtype), layer.biases.astype(dtype)
            loaded.append((name, packed))
            continue
        value = assemble(wanted[name], [weights.read(stored) for stored in tensors], channels_last)
        loaded.append((name, value.astype(mx.float32 if KEPT_EXACT.search(name) else dtype)))
    network.update(mlx.utils.tree_unflatten(loaded))
    return kept


def read_named(
    weights: Weights, shapes: Mapping[str, Shape], source: str, names: NameMap
) -> dict[str, mx.array]:
    """The tensors of these shapes by our names, as stored; beside one that stays packed its `packed_parts`.
    Each is read once, after every shape fits. Raises WeightsMismatch as `install`."""
    plan = {name: (Stored(names.names_of(name), shape),) for name, shape in shapes.items()}
    tensors: dict[str, mx.array] = {}
    for name, (stored,) in _fit(plan, weights.shapes, names.ignored, source).items():
        tensors[name] = weights.read(stored)
        tensors |= packed_parts(weights, stored, name)
    return tensors


def packed_parts(weights: Weights, stored: str, name: str) -> dict[str, mx.array]:
    """If a matrix is quantised and stays packed: `X.packed`, `X.scales` and `X.biases`, where `name` is
    `X.weight`. stored: its name in the file."""
    layer = stored.removesuffix(".weight")
    if not isinstance(weights, GroupedWeights) or layer not in weights.groupings or not stays_packed():
        return {}
    parts = zip(PARTS, weights.parts(layer), strict=True)
    return {f"{name.removesuffix('.weight')}{kind}": part for kind, part in parts}


def _fit(
    plan: Mapping[str, tuple[Stored, ...]],
    shapes: Mapping[str, Shape],
    ignored: re.Pattern[str],
    source: str,
) -> dict[str, list[str]]:
    stored_names: dict[str, list[str]] = {}
    missing, wrong, used = [], [], set()
    for name, tensors in plan.items():
        for tensor in tensors:
            stored = next((candidate for candidate in tensor.names if candidate in shapes), None)
            if stored is None:
                missing.append(f"{tensor.names[0]} {list(tensor.shape)}")
                continue
            used.add(stored)
            if shapes[stored] != tensor.shape:
                wrong.append(f"{stored}: expected {list(tensor.shape)}, found {list(shapes[stored])}")
            stored_names.setdefault(name, []).append(stored)
    surplus = [
        f"{name} {list(shapes[name])}"
        for name in sorted(shapes)
        if name not in used and not ignored.search(name)
    ]
    problems = [
        f"{kind}: {', '.join(names[:NAMED_AT_MOST])}"
        + (f" and {len(names) - NAMED_AT_MOST} more" if len(names) > NAMED_AT_MOST else "")
        for kind, names in (("of another shape", wrong), ("missing", missing), ("surplus", surplus))
        if names
    ]
    if problems:
        raise WeightsMismatch(
            f"{source}: the weights do not fit the model's configuration; {'; '.join(problems)}"
        )
    return stored_names


def check_shapes(
    expected: Mapping[str, Shape], found: Mapping[str, Shape], ignored: re.Pattern[str], source: str
) -> None:
    """Raises WeightsMismatch that names every tensor that is missing, surplus or of another shape. Surplus
    tensors whose names match `ignored` are allowed."""
    _fit({name: (Stored((name,), shape),) for name, shape in expected.items()}, found, ignored, source)
