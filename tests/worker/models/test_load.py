"""Finding and fitting: folders, hub ids, configurations that are refused, weights that do not fit."""

import json
import shutil
from pathlib import Path

import mlx.core as mx
import pytest
import yaml

from ops.testbed.nemo_model import load_nemo
from spool.errors import ModelUnreadable, UnknownModel, WeightsMismatch
from tests.worker.models.golden import FOLDER, speech
from worker.models import load_model, parse_config, read_config


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a golden folder, to be spoilt."""
    return Path(shutil.copytree(FOLDER / "hybrid", tmp_path / "model"))


def change_config(folder: Path, path: str, value: object) -> None:
    tree = json.loads((folder / "config.json").read_text())
    *sections, last = path.split(".")
    section = tree
    for name in sections:
        section = section[name]
    section[last] = value
    (folder / "config.json").write_text(json.dumps(tree))


def change_weights(folder: Path, **changes: mx.array | None) -> None:
    stored = mx.load(str(folder / "model.safetensors"))
    assert isinstance(stored, dict)
    tensors = dict(stored)
    for name, tensor in changes.items():
        if tensor is None:
            del tensors[name]
        else:
            tensors[name] = tensor
    mx.eval(tensors)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)


def test_nothing_there() -> None:
    for place in ("no/such/folder/at/all", "nowhere", Path("missing.nemo")):
        with pytest.raises(UnknownModel, match=str(place)):
            load_model(place)


def test_a_folder_without_a_config_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel, match=r"holds no config\.json"):
        load_model(tmp_path)


def test_missing_and_broken_weights_are_named(folder: Path) -> None:
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    for raw in (b"", b"nonsense", whole[:1_000], whole[: len(whole) // 2]):
        weights.write_bytes(raw)
        with pytest.raises(ModelUnreadable, match=r"model\.safetensors"):
            load_model(folder)
    weights.unlink()
    with pytest.raises(ModelUnreadable, match=r"model\.safetensors: the weights are missing"):
        load_model(folder)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"a: [",
        b"\xff\xfe",
        b"{}",
        b"!!python/object:os.system x",
        b"[" * 300_000,
        b'{"a":' * 300_000,
    ],
)
def test_broken_configurations_are_named(folder: Path, raw: bytes) -> None:
    (folder / "config.json").write_bytes(raw)
    with pytest.raises(ModelUnreadable, match=r"config\.json"):
        load_model(folder)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("encoder.subsampling", "vggnet", "encoder.subsampling is 'vggnet'"),
        ("encoder.self_attention_model", "abs_pos", "'abs_pos'"),
        ("encoder.conv_norm_type", "group_norm4", "'group_norm4'"),
        ("encoder.global_tokens", 1, "global_tokens"),
        ("encoder.reduction", "pooling", "reduction"),
        ("encoder.d_model", 66, "no multiple"),
        ("encoder.d_model", "64", "not a size"),
        ("encoder.n_layers", 10**9, "not a size"),
        ("encoder.n_layers", 0, "not a size"),
        ("encoder.subsampling_factor", 6, "subsampling_factor"),
        ("encoder.att_context_size", [1, 2, 3], "not a pair"),
        ("encoder.att_context_style", "chunked_limited_with_rc", "att_context_style"),
        ("encoder.conv_context_size", [1, 1], "does not fit a kernel of 9"),
        ("preprocessor.sample_rate", 8000, "sample_rate is 8000"),
        ("preprocessor.normalize", "fixed", "normalize"),
        ("preprocessor.window", "hamming", "window"),
        ("preprocessor.log_zero_guard_value", "tiny", "log_zero_guard_value"),
        ("decoder.blank_as_pad", False, "blank_as_pad"),
        ("decoder.normalization_mode", "layer", "normalization_mode"),
        ("joint.jointnet.activation", "gelu", "activation is 'gelu'"),
        ("joint.num_extra_outputs", 3, "duration outputs"),
        ("tokenizer.type", "agg", "'agg'"),
        ("encoder", None, "no section `encoder`"),
        ("joint.vocabulary", ["a", "b"], "96 pieces"),
    ],
)
def test_what_is_not_computed_is_refused_in_words(folder: Path, path: str, value: object, said: str) -> None:
    change_config(folder, path, value)
    with pytest.raises(ModelUnreadable) as caught:
        load_model(folder)
    assert said in caught.value.message
    assert str(folder) in caught.value.message


def test_a_tensor_of_another_shape_is_named_with_both(folder: Path) -> None:
    change_weights(folder, **{"encoder.layers.1.self_attn.linear_q.weight": mx.zeros((64, 60))})
    with pytest.raises(WeightsMismatch) as caught:
        load_model(folder)
    assert (
        "encoder.layers.1.self_attn.linear_q.weight: expected [64, 64], found [64, 60]"
        in caught.value.message
    )
    assert "model.safetensors" in caught.value.message


def test_missing_and_surplus_tensors_are_named(folder: Path) -> None:
    change_weights(
        folder,
        **{"joint.enc.bias": None, "encoder.layers.2.norm_out.weight": mx.zeros((64,))},
    )
    with pytest.raises(WeightsMismatch) as caught:
        load_model(folder)
    assert "missing: joint.enc.bias [64]" in caught.value.message
    assert "surplus: encoder.layers.2.norm_out.weight [64]" in caught.value.message


def test_a_config_of_another_size_is_named_in_the_files_own_layout(folder: Path, tmp_path: Path) -> None:
    # Convolutions lie channels last here, and channels second in a .nemo: the message speaks of what is
    # stored.
    change_config(folder, "encoder.conv_kernel_size", 11)
    with pytest.raises(WeightsMismatch) as caught:
        load_model(folder)
    assert "depthwise_conv.weight: expected [64, 11, 1], found [64, 9, 1]" in caught.value.message
    change_config(folder, "encoder.conv_kernel_size", 9)
    change_config(folder, "encoder.n_layers", 3)
    with pytest.raises(WeightsMismatch, match=r"missing: encoder\.layers\.2"):
        load_model(folder)
    change_config(folder, "encoder.n_layers", 1)
    with pytest.raises(WeightsMismatch, match=r"surplus: encoder\.layers\.1.* and \d+ more"):
        load_model(folder)


def test_the_wrong_head_is_named(folder: Path) -> None:
    tree = json.loads((folder / "config.json").read_text())
    del tree["aux_ctc"]
    (folder / "config.json").write_text(json.dumps(tree))
    with pytest.raises(WeightsMismatch, match="surplus: ctc_decoder"):
        load_model(folder)


def test_a_folder_needs_no_tokenizer_file_when_the_config_has_the_vocabulary(folder: Path) -> None:
    (folder / "tokenizer.model").unlink()
    loaded = load_model(folder)
    assert loaded.tokenizer.decode([5]) == load_model(FOLDER / "hybrid").tokenizer.decode([5])
    for path in ("labels", "joint.vocabulary", "decoder.vocabulary", "aux_ctc.decoder.vocabulary"):
        change_config(folder, path, None)
    with pytest.raises(ModelUnreadable, match="neither a tokenizer"):
        load_model(folder)


def test_yaml_and_json_say_the_same(folder: Path) -> None:
    tree = json.loads((folder / "config.json").read_text())
    (folder / "model_config.yaml").write_text(yaml.safe_dump(tree))
    assert read_config(folder / "config.json") == read_config(folder / "model_config.yaml")


def test_nemos_defaults_and_spellings() -> None:
    config = parse_config(
        json.dumps(
            {
                "preprocessor": {
                    "n_window_size": 400,
                    "n_window_stride": 160,
                    "features": 80,
                    "normalize": "NA",
                },
                "encoder": {
                    "feat_in": 80,
                    "n_layers": 2,
                    "d_model": 64,
                    "subsampling": "dw_striding",
                    "subsampling_factor": 8,
                    "att_context_size": [[70, 13], [70, 0]],
                    "att_context_style": "chunked_limited",
                    "conv_context_size": "causal",
                },
                "decoder": {"num_classes": 2, "vocabulary": ["a", "b"]},
            }
        ).encode(),
        "config.json",
    )
    assert config.preprocessor.win_length == 400
    assert config.preprocessor.hop_length == 160
    assert config.preprocessor.fft_length == 512
    assert config.preprocessor.normalize is None
    assert config.encoder.att_context_size == (70, 13)
    assert config.encoder.convolution_padding == (30, 0)
    assert config.encoder.xscaling
    assert config.encoder.n_heads == 4
    assert config.has_ctc
    assert config.vocabulary == ("a", "b")


def test_the_weights_have_a_name_that_changes_with_them(folder: Path) -> None:
    before = load_nemo(folder)
    assert before.info.sha256 == load_nemo(FOLDER / "hybrid").info.sha256
    assert before.name == "model"
    change_weights(folder, **{"joint.enc.bias": mx.ones((64,))})
    assert load_nemo(folder).info.sha256 != before.info.sha256


def test_the_demo_model_loads() -> None:
    loaded = load_nemo(FOLDER.parents[1] / "models" / "demo")
    assert set(loaded.heads) == {"tdt", "ctc"}
    encoded = loaded.encode(speech()[:2])
    assert encoded.frames.shape[2] == loaded.config.encoder.d_model
