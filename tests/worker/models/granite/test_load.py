"""Folders that are not what they should be: one sentence that says what and where."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest

from spool.errors import ModelUnreadable, SpoolError, WeightsMismatch
from worker.models import GraniteConfig, load_model, parse_granite

GOLDEN = Path(__file__).parents[3] / "golden" / "granite"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / "wide", tmp_path / "wide"))


def change(folder: Path, file: str, edit: Callable[[dict[str, Any]], object]) -> None:
    tree = json.loads((folder / file).read_text())
    edit(tree)
    (folder / file).write_text(json.dumps(tree))


def refuse(folder: Path, error: type[SpoolError], pattern: str) -> None:
    with pytest.raises(error, match=pattern) as caught:
        load_model(folder)
    assert str(folder) in caught.value.message, "it says where"
    assert "\n" not in caught.value.message


def test_missing_settings_are_transformers_own() -> None:
    config = parse_granite({"model_type": "granite_speech5_ctc"}, {})
    encoder = config.encoder
    assert isinstance(config, GraniteConfig)
    assert (encoder.n_layers, encoder.d_model, encoder.n_heads, encoder.head_width) == (16, 1024, 8, 128)
    assert (encoder.inner, encoder.block, encoder.pos_emb_max_len, encoder.feat_in) == (4096, 128, 512, 320)
    assert (encoder.conv_kernel_size, encoder.conv_width, encoder.pooled_layers) == (7, 2048, (0, 1))
    assert (config.vocabulary, config.is_tied, config.frame_seconds) == (16_384, True, 0.08)
    assert config.features.frames_of(16_001) == 50


@pytest.mark.parametrize(
    ("section", "pattern"),
    [
        ({"hidden_size": 24}, "weights do not fit"),
        ({"context_size": 12}, "context_size 12 is more than max_position_embeddings 9"),
        ({"subsample_layers": [1, 5]}, r"subsample_layers is \[1, 5\], not some of 5 layers"),
        ({"subsample_layers": [1, 1]}, "names a layer twice"),
        ({"num_key_value_heads": 1}, "num_key_value_heads is 1"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"conv_kernel_size": 4}, "conv_kernel_size is 4, an even number"),
        ({"num_mel_bins": 80}, "num_mel_bins is 80, that of the features is 24"),
        ({"vocab_size": 271}, "vocab_size is 271"),
        ({"num_hidden_layers": "5"}, "num_hidden_layers is '5', not a size"),
        ({"attention_bias": "x"}, "attention_bias is 'x'"),
    ],
)
def test_a_configuration_that_contradicts_itself_or_the_weights_is_named(
    folder: Path, section: dict[str, object], pattern: str
) -> None:
    change(folder, "config.json", lambda tree: tree["encoder_config"].update(section))
    error = WeightsMismatch if "fit" in pattern else ModelUnreadable
    refuse(folder, error, pattern)


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"sampling_rate": 8000}, "sampling_rate is 8000"),
        ({"win_length": 600}, "a window of 600 samples does not fit"),
        ({"logmel_floor_db": "8"}, "logmel_floor_db is '8'"),
        ({"delta_win_length": 1}, "delta_win_length is 1"),
    ],
)
def test_features_that_are_not_computed_are_named(
    folder: Path, settings: dict[str, object], pattern: str
) -> None:
    change(folder, "processor_config.json", lambda tree: tree["feature_extractor"].update(settings))
    refuse(folder, ModelUnreadable, pattern)


@pytest.mark.parametrize("unit", [-1, 1_000_000, "0", None])
def test_a_blank_outside_the_vocabulary_is_refused(folder: Path, unit: object) -> None:
    change(folder, "config.json", lambda tree: tree.update({"pad_token_id": unit}))
    refuse(folder, ModelUnreadable, f"pad_token_id, which is blank, is {unit!r} in a vocabulary of")


def test_a_blank_that_is_a_token_is_refused(folder: Path) -> None:
    change(folder, "config.json", lambda tree: tree.update({"pad_token_id": 7}))
    refuse(folder, ModelUnreadable, r"token 7 is .+ and not blank")


def test_a_tokenizer_of_another_vocabulary_is_refused(folder: Path) -> None:
    change(folder, "tokenizer.json", lambda tree: tree["model"]["vocab"].update({"new": 270}))
    refuse(folder, ModelUnreadable, r"tokenizer\.json: a tokenizer of another vocabulary: 271 tokens")
    shutil.copy(GOLDEN / "wide" / "tokenizer.json", folder)
    change(folder, "tokenizer.json", lambda tree: tree.update({"added_tokens": []}))
    refuse(folder, ModelUnreadable, r"token 0 is '<\|blank\|>' and not blank")


def test_half_the_shards_are_not_enough(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "first", tmp_path / "first"))
    (folder / "model-00002-of-00002.safetensors").unlink()
    refuse(folder, ModelUnreadable, r"model-00002-of-00002\.safetensors: the weights are missing")


def rewrite(folder: Path, edit: Callable[[dict[str, mx.array]], object]) -> None:
    path = folder / "model.safetensors"
    stored = mx.load(str(path))
    assert isinstance(stored, dict)
    tensors = dict(stored)
    edit(tensors)
    mx.eval(tensors)
    mx.save_safetensors(str(path), tensors)


def test_weights_that_are_missing_surplus_or_no_numbers_are_named(folder: Path) -> None:
    name = "encoder.layers.2.conv.norm.running_var"
    rewrite(folder, lambda tensors: tensors.update({name: mx.full((20,), float("nan"))}))
    refuse(
        folder, WeightsMismatch, r"layers\.2\.conv\.norm\.running_var \[20\] holds 20 numbers that are NaN"
    )
    rewrite(folder, lambda tensors: tensors.pop(name))
    refuse(folder, WeightsMismatch, r"missing: encoder\.layers\.2\.conv\.norm\.running_var \[20\]")
    rewrite(folder, lambda tensors: tensors.update({name: mx.ones((20,)), "extra": mx.ones((1,))}))
    refuse(folder, WeightsMismatch, r"surplus: extra \[1\]")


def test_a_head_of_its_own_is_needed_where_none_is_tied(folder: Path) -> None:
    rewrite(folder, lambda tensors: tensors.pop("ctc_head.weight"))
    refuse(folder, WeightsMismatch, r"missing: ctc_head\.weight \[270, 20\]")
