"""How many launches a layer and the steps of a search take of an Apple GPU, by MLX's graph."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from kernels.runtime import use_backend
from tests.kernels.launches import as_on_gpu, launches
from worker.decode import BeamSearch, GreedySearch
from worker.models import (
    AttentionContext,
    ConformerLayer,
    EncoderConfig,
    FeatureExtractor,
    JointConfig,
    JointNetwork,
    Positions,
    PredictionConfig,
    PredictionNetwork,
    PreprocessorConfig,
    RelPositionAttention,
    Transducer,
    position_table,
)

WIDTH, FRAMES, ROOM, VOCABULARY = 32, 24, 32, 20
LENGTHS = np.array([24, 17, 0], np.int32)


def config(*, bias: bool) -> EncoderConfig:
    return EncoderConfig(
        feat_in=80,
        n_layers=1,
        d_model=WIDTH,
        n_heads=4,
        conv_kernel_size=9,
        subsampling_conv_channels=8,
        use_bias=bias,
    )


def filled(shape: tuple[int, ...], seed: int = 0) -> mx.array:
    return mx.array(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def surroundings() -> tuple[Positions, AttentionContext, mx.array]:
    valid = mx.arange(FRAMES)[None] < mx.array(LENGTHS)[:, None]
    mask = mx.broadcast_to(valid[:, None, None, :], (len(LENGTHS), 1, FRAMES, FRAMES))
    sight = AttentionContext(mask, mx.array(LENGTHS), (-1, -1))
    table = position_table(ROOM - 1, 1 - ROOM, WIDTH, mx.float32)
    mx.eval(table, sight.mask, sight.lengths, valid)
    return Positions(table, ROOM, kept=True), sight, valid[:, :, None]


def transducer(durations: tuple[int, ...]) -> Transducer:
    config = JointConfig(WIDTH, durations=durations)
    prediction = PredictionNetwork(PredictionConfig(WIDTH, 1), VOCABULARY)
    joint = JointNetwork(config, WIDTH, WIDTH, VOCABULARY)
    mx.eval(prediction.parameters(), joint.parameters())
    return Transducer(prediction, joint, config, VOCABULARY)


@pytest.fixture(autouse=True)
def _on_gpu() -> Iterator[None]:
    with as_on_gpu():
        yield


def test_what_counts_as_a_launch() -> None:
    x, weight = filled((4, 6)), filled((6, 6), 1)
    assert launches((x.T + 1).reshape(2, 12)[None, :, 3:]) == {"Add": 1}, "views, and one sum"
    assert launches(x.T.reshape(2, 12)) == {"Reshape": 1}, "a copy: it lay transposed"
    assert launches(x.reshape(2, 2, 6).swapaxes(0, 1).swapaxes(0, 1).reshape(-1)) == {}
    assert launches(mx.concatenate([x, x]) @ weight) == {"Concatenate": 2, "Matmul": 1}
    assert launches(mx.pad(x, 1)) == {"Pad": 2}
    (name,) = launches(mx.compile(lambda a: mx.tanh(a * 2) + 1)(x))
    assert name.startswith("Compiled")
    normed = mx.fast.layer_norm(x, weight[0, :], weight[0, :], 1e-5)
    assert sum(launches(normed).values()) == 1


@pytest.mark.parametrize("batch", [1, 5])
def test_the_features_of_a_batch_take_as_many_launches_as_those_of_one(batch: int) -> None:
    front_end = FeatureExtractor(PreprocessorConfig(window_size=0.025))
    front_end.host_spectra = None
    mx.eval(front_end.window, front_end.filters)
    samples = [filled((8_000 - 900 * row,), row) for row in range(batch)]
    made, _ = front_end.batch([np.array(each) for each in samples])
    counted = launches(made)
    assert sum(counted.values()) == 11, counted


@pytest.mark.parametrize("bias", [True, False])
def test_a_conformer_layer_takes_20_launches(bias: bool) -> None:
    layer = ConformerLayer(config(bias=bias))
    layer.fold(mx.float32)
    x = filled((len(LENGTHS), FRAMES, WIDTH))
    mx.eval(layer.parameters(), x)
    positions, sight, valid = surroundings()
    counted = launches(layer(x, positions, sight, valid))
    products = counted["AddMM"] + counted["Matmul"]
    assert (products, sum(counted.values())) == (9, 20), counted


@pytest.mark.parametrize(("causal", "takes"), [(True, 29), (False, 27)])
def test_wenets_layer_takes_so_many_launches(causal: bool, takes: int) -> None:
    padding = (8, 0) if causal else None
    layer = ConformerLayer(
        replace(
            config(bias=True),
            self_attention_model="rel_pos_unshifted",
            conv_pads="input",
            conv_context_size=padding,
            conv_norm_type="layer_norm",
        )
    )
    layer.fold(mx.float32)
    x, mask = filled((len(LENGTHS), FRAMES, WIDTH)), mx.zeros((len(LENGTHS), 1, 1, FRAMES))
    positions = Positions(filled((FRAMES, WIDTH)), FRAMES, kept=False)
    sight = AttentionContext(mask, mx.array(LENGTHS), None)
    mx.eval(layer.parameters(), x, mask, positions.table, sight.lengths)
    counted = launches(layer(x, positions, sight, mask))
    assert sum(counted.values()) == takes, counted


@pytest.mark.parametrize(("durations", "takes"), [((0, 1, 2, 3, 4), 48), ((), 44)], ids=["tdt", "rnnt"])
def test_a_round_of_greedy_takes_so_many_launches(durations: tuple[int, ...], takes: int) -> None:
    search = GreedySearch(transducer(durations), filled((3, FRAMES, WIDTH)), LENGTHS, 10, None, False)
    begun = search._start
    mx.eval(begun, search._encoder, search._lengths, search._durations, search._goes_on)
    counted = launches(search._round(begun), search._backtrace.latest(1))
    assert sum(counted.values()) == takes, counted


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("durations", [(0, 1, 2, 3, 4), ()], ids=["tdt", "rnnt"])
def test_a_step_of_a_beam_takes_24_launches(durations: tuple[int, ...], fixed: bool) -> None:
    head = transducer(durations)
    projected = head.project_encoder(filled((3, FRAMES, WIDTH)))
    search = BeamSearch(head, projected, LENGTHS, 4, 10, None, None, fixed)
    if search._durations is not None:
        mx.eval(search._durations)
    state = search.start()
    mx.eval(state, projected, search._encoder, search._limits)
    counted = launches(search._step(state), search.backtrace.latest(1))
    assert sum(counted.values()) == 24, counted


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_of_queries_keys_and_values_is_three(bias: bool) -> None:
    attention = RelPositionAttention(config(bias=bias))
    for seed, name in enumerate(("linear_q", "linear_k", "linear_v", "linear_pos", "linear_out")):
        linear = attention[name]
        linear.weight = filled(linear.weight.shape, seed) / WIDTH**0.5
        if "bias" in linear:
            linear.bias = filled(linear.bias.shape, seed + 10)
    attention.pos_bias_u, attention.pos_bias_v = filled((4, 8), 20), filled((4, 8), 21)
    x = filled((len(LENGTHS), FRAMES, WIDTH), 30)
    positions, sight, _ = surroundings()
    before = Counter({name: each.size for name, each in _weights(attention)})
    with use_backend("reference"):
        apart = np.array(attention(x, positions, sight))
        attention.fold()
        together = np.array(attention(x, positions, sight))
    assert Counter({name: each.size for name, each in _weights(attention)}) == before
    np.testing.assert_allclose(together[:2], apart[:2], atol=1e-5)


def _weights(attention: RelPositionAttention) -> Iterator[tuple[str, mx.array]]:
    for name, part in attention.items():
        if "weight" in part:
            yield name, part["weight"]
