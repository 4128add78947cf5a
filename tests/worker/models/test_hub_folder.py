"""A folder as the Hugging Face hub has it: every file that may lie there, and what is said of broken ones."""

import json
from pathlib import Path

import mlx.core as mx
import pytest
import tokenizers

from spool.errors import ModelUnreadable, UnknownModel, WeightsMismatch
from worker.models import HubFolder, ModelFiles, is_hub_folder

TENSORS = {"a.weight": mx.arange(6.0).reshape(2, 3), "b.bias": mx.ones((4,), mx.bfloat16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "config.json", {"model_type": "toy"})
    mx.save_safetensors(str(tmp_path / "model.safetensors"), TENSORS)
    tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0}, [])).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def shard(folder: Path) -> None:
    """One tensor a file, as large models are stored."""
    (folder / "model.safetensors").unlink()
    places = {}
    for number, (name, tensor) in enumerate(TENSORS.items(), 1):
        places[name] = f"model-0000{number}-of-00002.safetensors"
        mx.save_safetensors(str(folder / places[name]), {name: tensor})
    write(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": places})


def test_a_folder_is_known_by_its_model_type(folder: Path) -> None:
    assert is_hub_folder(ModelFiles(folder, "toy"), "other", "toy")
    assert not is_hub_folder(ModelFiles(folder, "toy"), "other")
    assert not is_hub_folder(ModelFiles(folder / "config.json", "toy"), "toy")


@pytest.mark.parametrize("is_sharded", [False, True])
def test_one_file_and_shards_hold_the_same_tensors(folder: Path, is_sharded: bool) -> None:
    if is_sharded:
        shard(folder)
    weights = HubFolder(folder).weights
    assert weights.shapes == {"a.weight": (2, 3), "b.bias": (4,)}
    assert mx.array_equal(weights.read("a.weight"), TENSORS["a.weight"])
    assert weights.read("b.bias").dtype == mx.bfloat16


def test_missing_shards_tensors_and_an_index_are_named(folder: Path) -> None:
    shard(folder)
    second = folder / "model-00002-of-00002.safetensors"
    whole = second.read_bytes()
    second.unlink()
    with pytest.raises(ModelUnreadable, match=r"model-00002-of-00002\.safetensors: the weights are missing"):
        _ = HubFolder(folder).weights
    mx.save_safetensors(str(second), {"other": TENSORS["b.bias"]})
    with pytest.raises(
        WeightsMismatch, match=r"names b\.bias, which model-00002-of-00002\.safetensors does not"
    ):
        _ = HubFolder(folder).weights
    second.write_bytes(whole)
    (folder / "model.safetensors.index.json").unlink()
    with pytest.raises(
        ModelUnreadable, match=r"index\.json: missing beside model-00001-of-00002\.safetensors"
    ):
        _ = HubFolder(folder).weights
    for path in folder.glob("model-*"):
        path.unlink()
    with pytest.raises(ModelUnreadable, match=r"the weights are missing; model\.safetensors or"):
        _ = HubFolder(folder).weights


@pytest.mark.parametrize("number", [float("nan"), float("-inf")])
def test_a_number_that_is_none_is_named_with_its_tensor(folder: Path, number: float) -> None:
    broken = mx.concatenate([mx.ones((3,)), mx.array([number])])
    mx.save_safetensors(str(folder / "model.safetensors"), TENSORS | {"b.bias": broken})
    with pytest.raises(
        WeightsMismatch, match=r"model\.safetensors: b\.bias \[4\] holds 1 numbers that are NaN"
    ):
        _ = HubFolder(folder).weights


def test_large_weights_are_finite(folder: Path) -> None:
    mx.save_safetensors(str(folder / "model.safetensors"), {"a": mx.full((4,), 3e38)})
    assert HubFolder(folder).weights.shapes == {"a": (4,)}


def test_the_processors_settings_win_over_the_older_file(folder: Path) -> None:
    assert HubFolder(folder).features == {}
    write(folder / "preprocessor_config.json", {"hop_length": 160})
    assert HubFolder(folder).features == {"hop_length": 160}
    write(folder / "processor_config.json", {"feature_extractor": {"hop_length": 80}})
    assert HubFolder(folder).features == {"hop_length": 80}


def test_a_tokenizer_that_is_missing_or_broken_is_named(folder: Path) -> None:
    assert HubFolder(folder).tokenizer.get_vocab_size() == 1
    (folder / "tokenizer.json").write_text("{")
    with pytest.raises(ModelUnreadable, match=r"tokenizer\.json: not a tokenizer"):
        _ = HubFolder(folder).tokenizer
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelUnreadable, match=r"tokenizer\.json: the tokenizer is missing"):
        _ = HubFolder(folder).tokenizer


def test_settings_that_are_no_json_are_named(folder: Path) -> None:
    (folder / "generation_config.json").write_text("[]")
    with pytest.raises(ModelUnreadable, match=r"generation_config\.json: holds no JSON object"):
        _ = HubFolder(folder).generation
    (folder / "config.json").unlink()
    with pytest.raises(UnknownModel, match=r"holds no config\.json"):
        _ = HubFolder(folder).config


def test_the_digest_of_shards_follows_each_of_them(folder: Path) -> None:
    before = HubFolder(folder).digests()
    assert set(before) == {"weights", "config", "tokenizer"}
    shard(folder)
    whole = HubFolder(folder).digests()["weights"]
    mx.save_safetensors(str(folder / "model-00002-of-00002.safetensors"), {"b.bias": mx.zeros((4,))})
    assert len({before["weights"], whole, HubFolder(folder).digests()["weights"]}) == 3
