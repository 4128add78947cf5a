"""The engine's numbers against NeMo's, each tensor within a tolerance that has a reason."""

import json
from dataclasses import replace

import mlx.core as mx
import numpy as np
import pytest

from ops.testbed.nemo_model import load_nemo
from tests.worker.models.golden import FOLDER, MODELS, model, numbers, speech
from worker.models import (
    AttentionContext,
    EncoderConfig,
    NemoModel,
    Positions,
    RelPositionAttention,
    RelPositionLocalAttention,
    position_table,
    read_config,
)

# Values of order one; measured 5e-5. Where a band's power is near the guard of the logarithm (2^-24), NeMo's
# own 32-bit transform is up to 2.1e-4 from exact arithmetic: some ten values of the clip `bed` are further
# from ours than 1e-4.
FEATURES = 1e-4
FEATURES_NEAR_GUARD = 2.5e-4
NEAR_GUARD = 2.0**-20
# Relative to the largest value of the tensor; measured 1e-5, and ten layers more would add as much again.
PRE_ENCODE = 2e-5
ENCODER = 2e-4
# A log-probability is a difference of two sums of 64 products of encoder values and weights of order one.
LOG_PROBS = 5e-4
# The same sums in another order.
REORDERED = 3e-6


def close(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


@pytest.mark.parametrize(("path", "name"), MODELS.items())
def test_features_are_nemos(path: str, name: str) -> None:
    found, lengths = model(path).features(speech())
    golden = numbers(f"features_{found.shape[2]}")
    rows = len(golden["features_len"])
    assert lengths[:rows].tolist() == golden["features_len"].tolist()
    for row, length in enumerate(golden["features_len"]):
        gaps = np.abs(np.array(found[row, :length]) - golden["features"][row, :length])
        power = np.exp(np.array(model(path).front_end.log_mel(speech()[row])))
        assert gaps[power >= NEAR_GUARD].max() <= FEATURES
        assert gaps.max() <= FEATURES_NEAR_GUARD


@pytest.mark.parametrize(("path", "name"), MODELS.items())
def test_subsampling_is_nemos(path: str, name: str) -> None:
    loaded, golden = model(path), numbers(name)
    features, lengths = loaded.features(speech())
    found = np.array(loaded.network.encoder.pre_encode(features, mx.array(lengths)))
    for row, length in enumerate(golden["encoder_len"]):
        assert close(found[row, :length], golden["pre_encode"][row, :length]) <= PRE_ENCODE


@pytest.mark.parametrize(("path", "name"), MODELS.items())
def test_encoder_is_nemos_on_a_padded_batch(path: str, name: str) -> None:
    golden = numbers(name)
    encoded = model(path).encode(speech())
    assert encoded.lengths.tolist() == golden["encoder_len"].tolist()
    assert encoded.lengths.dtype == np.int32
    for row, length in enumerate(encoded.lengths):
        frames = np.array(encoded.frames[row])
        assert close(frames[:length], golden["encoder"][row, :length]) <= ENCODER
        assert not frames[length:].any()


@pytest.mark.parametrize("name", ["tdt", "rnnt", "hybrid", "hybrid_local", "causal"])
def test_a_batch_as_a_gpu_takes_it_is_nemos(
    name: str, local_model: NemoModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given the path of a GPU: one padded array of a bucketed length
    monkeypatch.setattr("worker.models.conformer.encoder.on_gpu", lambda: True)
    golden = numbers(name)
    loaded = local_model if name == "hybrid_local" else model(f"{name}.nemo")
    # When the utterances are encoded together
    encoded = loaded.encode(speech())
    # Then they are NeMo's, and zero from each length on
    assert encoded.lengths.tolist() == golden["encoder_len"].tolist()
    for row, length in enumerate(encoded.lengths):
        frames = np.array(encoded.frames[row])
        assert close(frames[:length], golden["encoder"][row, :length]) <= ENCODER
        assert not frames[length:].any()


@pytest.mark.parametrize("path", ["ctc.nemo", "hybrid.nemo", "hybrid"])
def test_ctc_log_probabilities_are_nemos(path: str) -> None:
    golden = numbers(MODELS[path])
    encoded = model(path).encode(speech())
    head = model(path).ctc
    assert head is not None
    assert head.blank == golden["blank"]
    found = np.array(head.log_probs(encoded.frames))
    for row, length in enumerate(encoded.lengths):
        assert np.abs(found[row, :length] - golden["ctc_log_probs"][row, :length]).max() <= LOG_PROBS


@pytest.mark.parametrize("name", ["tdt", "rnnt", "hybrid"])
def test_both_layouts_hold_the_same_network(name: str) -> None:
    # Given the same weights as .nemo (PyTorch's layouts) and as a folder (MLX's)
    ours, theirs = model(f"{name}.nemo"), model(name)
    # When the same features go through both
    features, lengths = ours.features(speech()[:3])
    one, _ = ours.network.encoder(features, lengths)
    other, _ = theirs.network.encoder(features, lengths)
    # Then not a bit differs
    assert mx.array_equal(one, other)
    assert ours.tokenizer.pieces == theirs.tokenizer.pieces
    assert ours.heads.keys() == theirs.heads.keys()


@pytest.mark.parametrize("path", ["tdt.nemo", "rnnt.nemo", "hybrid.nemo", "causal.nemo"])
def test_a_batch_equals_each_alone(path: str) -> None:
    loaded = model(path)
    together = loaded.encode(speech())
    for row, samples in enumerate(speech()):
        alone = loaded.encode([samples])
        length = int(together.lengths[row])
        assert alone.lengths.tolist() == [length]
        assert mx.array_equal(together.frames[row, :length], alone.frames[0])


def test_nothing_of_a_neighbour_enters() -> None:
    # Given one utterance beside quiet and beside loud neighbours of the same lengths
    quiet = [samples * np.float32(1e-3) for samples in speech()[1:3]]
    loud = [samples * np.float32(3.0) + np.float32(0.1) for samples in speech()[1:3]]
    # When each batch is encoded
    one = model("hybrid.nemo").encode([speech()[0], *quiet])
    other = model("hybrid.nemo").encode([speech()[0], *loud])
    # Then not a bit of the first differs
    assert mx.array_equal(one.frames[0], other.frames[0])


@pytest.fixture(scope="module")
def local_model(tmp_path_factory: pytest.TempPathFactory) -> NemoModel:
    """The weights of `hybrid` under local attention, as anyone would change a config."""
    folder = tmp_path_factory.mktemp("local")
    for name in ("model.safetensors", "tokenizer.model"):
        (folder / name).write_bytes((FOLDER / "hybrid" / name).read_bytes())
    config = (FOLDER / "hybrid" / "config.json").read_text()
    config = config.replace(
        '"self_attention_model": "rel_pos"', '"self_attention_model": "rel_pos_local_attn"'
    )
    (folder / "config.json").write_text(_with_context(config, [8, 8]))
    return load_nemo(folder)


def _with_context(config: str, context: list[int]) -> str:
    tree = json.loads(config)
    tree["encoder"]["att_context_size"] = context
    return json.dumps(tree)


def test_local_attention_is_nemos(local_model: NemoModel) -> None:
    golden = numbers("hybrid_local")
    encoded = local_model.encode(speech())
    for row, length in enumerate(encoded.lengths):
        found, wanted = np.array(encoded.frames[row, :length]), golden["encoder"][row, :length]
        assert close(found, wanted) <= ENCODER


def test_local_attention_is_the_same_in_a_batch(local_model: NemoModel) -> None:
    together = local_model.encode(speech())
    for row, samples in enumerate(speech()):
        alone = local_model.encode([samples]).frames[0]
        assert mx.array_equal(together.frames[row, : alone.shape[0]], alone)


@pytest.mark.parametrize("context", [(8, 8), (5, 5), (1, 1), (100, 100), (9, 3), (2, 7), (12, 0)])
@pytest.mark.parametrize("frames", [1, 7, 16, 61])
def test_local_attention_equals_banded_full_attention(context: tuple[int, int], frames: int) -> None:
    # Given one set of random weights in both kinds of attention, and utterances shorter than the batch
    config = read_config(FOLDER / "hybrid" / "config.json").encoder
    full, local = RelPositionAttention(config), RelPositionLocalAttention(_local(config, context))
    mx.random.seed(3)
    for name in ("pos_bias_u", "pos_bias_v"):
        setattr(full, name, mx.random.normal(getattr(full, name).shape))
    local.update(full.parameters())
    x = mx.random.normal((3, frames, config.d_model))
    lengths = [frames, max(1, frames // 2), max(1, frames - 3)]
    valid = mx.arange(frames)[None] < mx.array(lengths)[:, None]
    # When full attention sees the band alone
    distance = mx.arange(frames)[:, None] - mx.arange(frames)[None]
    near = (distance <= context[0]) & (distance >= -context[1])
    positions = _positions(frames - 1, 1 - frames, config.d_model)
    mask, counts = near & valid[:, None, None, :], mx.array(lengths)
    wanted = full(x, positions, AttentionContext(mask, counts, None))
    found = local(
        x, _positions(context[0], -context[1], config.d_model), AttentionContext(valid, counts, None)
    )
    # Then both say the same of every frame of an utterance, and so does the band given by its width
    banded = full(x, positions, AttentionContext(mask, counts, context))
    for row, length in enumerate(lengths):
        assert np.abs(np.array(found[row, :length] - wanted[row, :length])).max() <= REORDERED
        assert np.abs(np.array(banded[row, :length] - wanted[row, :length])).max() <= REORDERED


def _local(config: EncoderConfig, context: tuple[int, int]) -> EncoderConfig:
    return replace(config, self_attention_model="rel_pos_local_attn", att_context_size=context)


def _positions(first: int, last: int, width: int) -> Positions:
    return Positions(position_table(first, last, width, mx.float32), first + 1, kept=False)
