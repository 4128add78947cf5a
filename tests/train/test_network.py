"""What the network must keep whatever its weights: lengths, masks, names."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ops.train.model.network import Network, Shape, halved, relative_positions
from ops.train.model.weights import exported, load_into

SMALL = Shape(width=16, layers=2, heads=2, channels=4, prediction=8, joint=8, vocabulary=6)


@pytest.fixture
def network() -> Network:
    torch.manual_seed(0)
    network = Network(SMALL).eval()
    for layer in network.encoder.layers:
        layer.conv.batch_norm.running_mean.normal_()
        layer.conv.batch_norm.running_var.uniform_(0.5, 2.0)
        layer.self_attn.pos_bias_u.data.normal_()
        layer.self_attn.pos_bias_v.data.normal_()
    return network


def test_padding_changes_nothing(network: Network) -> None:
    x = torch.randn(2, 200, 80)
    lengths = torch.tensor([200, 117])
    x[1, 117:] = 9.0  # whatever stands there
    together, sizes = network.encoder(x, lengths)
    alone, size = network.encoder(x[1:, :117], torch.tensor([117]))
    assert sizes.tolist() == [25, 15]
    assert size.tolist() == [15]
    assert torch.allclose(together[1, :15], alone[0], atol=1e-5)


@pytest.mark.parametrize(("frames", "expected"), [(1, 1), (2, 1), (3, 2), (8, 4), (9, 5)])
def test_a_stage_of_subsampling_halves_the_length_upwards(frames: int, expected: int) -> None:
    assert halved(torch.tensor([frames])).item() == expected


def test_attention_gives_the_distance_its_own_score(network: Network) -> None:
    # Column j of row i of the shifted scores is the score of distance i - j.
    size, width = 5, 4
    table = torch.arange(2 * size - 1.0).expand(1, 1, size, -1)  # entry k: distance size - 1 - k
    attention = network.encoder.layers[0].self_attn
    shifted = attention._shifted(table.contiguous())[0, 0]
    for i in range(size):
        for j in range(size):
            assert shifted[i, j].item() == size - 1 - (i - j)
    positions = relative_positions(size, width, torch.device("cpu"))
    assert positions.shape == (2 * size - 1, width)
    assert positions[size - 1].tolist() == [0.0, 1.0, 0.0, 1.0]  # distance 0: sines, cosines


def test_the_blank_is_embedded_as_nothing_and_stays_so(network: Network) -> None:
    assert network.prediction.embed.weight[SMALL.vocabulary].abs().sum().item() == 0.0
    network.prediction(torch.tensor([[1, 2, 3]])).sum().backward()
    assert network.prediction.embed.weight.grad is not None
    assert network.prediction.embed.weight.grad[SMALL.vocabulary].abs().sum().item() == 0.0


def test_the_joint_gives_tokens_blank_and_durations(network: Network) -> None:
    outputs = network.prediction(torch.tensor([[1, 2, 3], [4, 5, 0]]))
    logits = network.joint(torch.randn(2, 7, SMALL.width), outputs)
    assert logits.shape == (2, 7, 4, SMALL.vocabulary + 1 + len(SMALL.durations))


def test_weights_come_back_from_an_export_but_for_their_rounding(network: Network, tmp_path: Path) -> None:
    save_file(exported(network.state_dict()), tmp_path / "model.safetensors")
    other = Network(SMALL)
    load_into(other, tmp_path / "model.safetensors")
    for name, value in network.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(other.state_dict()[name], value.half().float()), name


def test_a_file_without_a_tensor_is_refused_by_its_name(network: Network, tmp_path: Path) -> None:
    tensors = exported(network.state_dict())
    del tensors["joint.pred.bias"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(KeyError, match=r"joint\.pred\.bias"):
        load_into(Network(SMALL), tmp_path / "model.safetensors")
