"""Which tensors a WeNet model has, by name and shape, and the tensors of a file that fits.

Every tensor that is missing, surplus or of another shape is named. Positions' tables, which are a formula,
and what nothing reads are passed over. Knows no file format and no arithmetic.
"""

import re
from collections.abc import Iterator

import mlx.core as mx

from worker.models.artifacts.safetensors import Weights
from worker.models.weights import check_shapes
from worker.models.wenet.config import FEATURES, DecoderSizes, EncoderSizes, Shape, WenetConfig

PASSED_OVER = re.compile(r"\.pe$|\.concat_linear\.|\.num_batches_tracked$")
Named = Iterator[tuple[str, Shape]]


def read_weights(config: WenetConfig, weights: Weights, source: str) -> dict[str, mx.array]:
    """Every tensor of the model, float32. Raises WeightsMismatch, ModelUnreadable."""
    expected = dict(shapes_of(config))
    check_shapes(expected, weights.shapes, PASSED_OVER, source)
    return {name: weights.read(name).astype(mx.float32) for name in expected}


def shapes_of(config: WenetConfig) -> Named:
    """Name and shape of every tensor."""
    width, vocabulary = config.encoder.width, config.vocabulary
    yield from _encoder(config.encoder)
    for decoder in config.decoders:
        yield from _decoder(decoder, width, vocabulary)
    yield from _linear("ctc.ctc_lo", vocabulary, width)
    sizes = config.transducer
    if sizes is not None:
        yield "predictor.embed.weight", (vocabulary, sizes.embedding)
        for layer in range(sizes.layers):
            entering = sizes.hidden if layer else sizes.embedding
            yield f"predictor.rnn.weight_ih_l{layer}", (4 * sizes.hidden, entering)
            yield f"predictor.rnn.weight_hh_l{layer}", (4 * sizes.hidden, sizes.hidden)
            yield f"predictor.rnn.bias_ih_l{layer}", (4 * sizes.hidden,)
            yield f"predictor.rnn.bias_hh_l{layer}", (4 * sizes.hidden,)
        yield from _linear("predictor.projection", sizes.output, sizes.hidden)
        yield from _linear("joint.enc_ffn", sizes.joint, width)
        yield from _linear("joint.pred_ffn", sizes.joint, sizes.output)
        yield from _linear("joint.ffn_out", vocabulary, sizes.joint)


def _linear(name: str, outputs: int, inputs: int) -> Named:
    yield f"{name}.weight", (outputs, inputs)
    yield f"{name}.bias", (outputs,)


def _norm(name: str, width: int) -> Named:
    yield f"{name}.weight", (width,)
    yield f"{name}.bias", (width,)


def _attention(name: str, width: int) -> Named:
    for part in ("linear_q", "linear_k", "linear_v", "linear_out"):
        yield from _linear(f"{name}.{part}", width, width)


def _map_feed_forward(name: str, width: int, inner: int) -> Named:
    yield from _linear(f"{name}.w_1", inner, width)
    yield from _linear(f"{name}.w_2", width, inner)


def _encoder(sizes: EncoderSizes) -> Named:
    width = sizes.width
    if sizes.has_cmvn:
        yield "encoder.global_cmvn.mean", (FEATURES,)
        yield "encoder.global_cmvn.istd", (FEATURES,)
    for index, (kernel, _) in enumerate(sizes.convolutions):
        yield f"encoder.embed.conv.{2 * index}.weight", (width, width if index else 1, kernel, kernel)
        yield f"encoder.embed.conv.{2 * index}.bias", (width,)
    yield from _linear(subsampling_linear(sizes), width, width * sizes.frames_of(FEATURES))
    for layer in range(sizes.layers):
        yield from _encoder_layer(f"encoder.encoders.{layer}", sizes)
    yield from _norm("encoder.after_norm", width)


def subsampling_linear(sizes: EncoderSizes) -> str:
    """The name of the linear layer behind the convolutions."""
    return "encoder.embed.out.0" if sizes.rate == 4 else "encoder.embed.linear"


def _encoder_layer(name: str, sizes: EncoderSizes) -> Named:
    width, conformer = sizes.width, sizes.is_conformer
    yield from _attention(f"{name}.self_attn", width)
    if sizes.relative:
        yield f"{name}.self_attn.linear_pos.weight", (width, width)
        for part in ("pos_bias_u", "pos_bias_v"):
            yield f"{name}.self_attn.{part}", (sizes.heads, width // sizes.heads)
    yield from _map_feed_forward(f"{name}.feed_forward", width, sizes.inner)
    if not conformer:
        yield from _norm(f"{name}.norm1", width)
        yield from _norm(f"{name}.norm2", width)
        return
    yield from _map_feed_forward(f"{name}.feed_forward_macaron", width, sizes.inner)
    module = f"{name}.conv_module"
    yield f"{module}.pointwise_conv1.weight", (2 * width, width, 1)
    yield f"{module}.pointwise_conv1.bias", (2 * width,)
    yield f"{module}.depthwise_conv.weight", (width, 1, sizes.kernel)
    yield f"{module}.depthwise_conv.bias", (width,)
    yield from _norm(f"{module}.norm", width)
    if sizes.batch_norm:
        yield from ((f"{module}.norm.{part}", (width,)) for part in ("running_mean", "running_var"))
    yield f"{module}.pointwise_conv2.weight", (width, width, 1)
    yield f"{module}.pointwise_conv2.bias", (width,)
    for norm in ("norm_ff", "norm_mha", "norm_ff_macaron", "norm_conv", "norm_final"):
        yield from _norm(f"{name}.{norm}", width)


def _decoder(sizes: DecoderSizes, width: int, vocabulary: int) -> Named:
    yield f"{sizes.name}.embed.0.weight", (vocabulary, width)
    for layer in range(sizes.layers):
        name = f"{sizes.name}.decoders.{layer}"
        yield from _attention(f"{name}.self_attn", width)
        yield from _attention(f"{name}.src_attn", width)
        yield from _map_feed_forward(f"{name}.feed_forward", width, sizes.inner)
        for norm in ("norm1", "norm2", "norm3"):
            yield from _norm(f"{name}.{norm}", width)
    yield from _norm(f"{sizes.name}.after_norm", width)
    yield from _linear(f"{sizes.name}.output_layer", vocabulary, width)
