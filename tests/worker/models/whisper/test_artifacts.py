"""Every layout gives the same tensors; what does not fit is refused by name."""

import json
import zipfile
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from ops.testbed.torch_checkpoint import Call, handmade, pickled
from spool.errors import ModelUnreadable, UnknownModel, WeightsMismatch
from tests.worker.models.whisper.tiny import (
    HEADS,
    SUPPRESS,
    hugging_face_name,
    make_dims,
    make_tensors,
    tokenizer_text,
    write_checkpoint,
    write_ctranslate2,
    write_hugging_face,
    write_mlx,
    write_openai,
)
from worker.models import ModelFiles, SpecialTokens, Whisper, open_folder

DIMS = make_dims()
WRITERS = {
    "hugging-face": write_hugging_face,
    "openai": write_openai,
    "mlx": write_mlx,
    "ctranslate2": write_ctranslate2,
    "checkpoint": write_checkpoint,
}


@pytest.mark.parametrize("layout", WRITERS)
def test_every_layout_gives_the_same_model(tmp_path: Path, layout: str) -> None:
    tensors = make_tensors(DIMS)
    folder = WRITERS[layout](tmp_path, DIMS, tensors)
    assert Whisper().matches(ModelFiles(folder, folder.name))
    artifacts = open_folder(folder)
    assert artifacts.dims == DIMS
    assert artifacts.bits is None
    if layout != "checkpoint":  # which states sizes alone
        assert artifacts.settings.alignment_heads == tuple(map(tuple, HEADS))
    ids = SpecialTokens(DIMS.n_vocab)
    stated = SUPPRESS if layout != "checkpoint" else []
    assert set(artifacts.settings.suppress) >= {*stated, ids.sot, ids.no_speech, ids.translate}
    assert artifacts.settings.suppress_first == (220, ids.eot)
    for name, value in tensors.items():
        if layout == "mlx" and name == "encoder.positional_embedding":
            continue  # not stored there: sinusoids
        assert np.array_equal(np.array(artifacts.tensors[name].astype(mx.float32)), value), name


@pytest.mark.parametrize("layout", sorted(WRITERS.keys() - {"checkpoint"}))
def test_a_folder_without_its_weights_is_known_by_its_configuration(tmp_path: Path, layout: str) -> None:
    folder = WRITERS[layout](tmp_path, DIMS, make_tensors(DIMS))
    for path in folder.iterdir():
        if path.suffix in (".bin", ".npz", ".safetensors"):
            path.unlink()
    assert Whisper().matches(ModelFiles(folder, folder.name))
    with pytest.raises(ModelUnreadable, match="the weights are missing; one of"):
        open_folder(folder)


def test_weights_in_shards_are_known_by_all_of_them(tmp_path: Path) -> None:
    digests = []
    for seed in (0, 1):
        tensors = make_tensors(DIMS, seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        shard = "model-00001-of-00001.safetensors"
        (write_hugging_face(folder, DIMS, tensors) / "model.safetensors").rename(folder / shard)
        index = {"weight_map": {hugging_face_name(name): shard for name in tensors}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        digests.append(open_folder(folder).files)
    first, second = digests
    assert {role for role in first if first[role] != second[role]} == {"weights"}


@pytest.mark.parametrize(("kind", "step"), [("int8", 1 / 127), ("int16", 1 / 32767)])
def test_quantised_weights_are_read_to_half_a_step(tmp_path: Path, kind: str, step: float) -> None:
    tensors = make_tensors(DIMS)
    artifacts = open_folder(write_ctranslate2(tmp_path, DIMS, tensors, kind))
    assert artifacts.bits == 8 * np.dtype(kind).itemsize
    value = tensors["decoder.blocks.1.mlp.2.weight"]
    gap = np.abs(np.array(artifacts.tensors["decoder.blocks.1.mlp.2.weight"]) - value)
    largest = np.abs(value).max(axis=1, keepdims=True) if kind == "int8" else np.abs(value).max()
    # Half a step, and float32's rounding of the scale and the quotient.
    assert (gap <= largest * step * 0.501).all()


def test_float32_ctranslate2(tmp_path: Path) -> None:
    tensors = make_tensors(make_dims(51864))
    artifacts = open_folder(write_ctranslate2(tmp_path, make_dims(51864), tensors, "float32"))
    assert artifacts.dims.n_vocab == 51864
    assert not SpecialTokens(51864).multilingual


def test_a_missing_and_a_misshapen_tensor_are_named(tmp_path: Path) -> None:
    tensors = dict(make_tensors(DIMS))
    del tensors["decoder.blocks.1.attn.out.bias"]
    tensors["encoder.conv1.bias"] = np.zeros(7, np.float32)
    tensors["encoder.extra"] = np.zeros(3, np.float32)
    with pytest.raises(WeightsMismatch) as error:
        open_folder(write_openai(tmp_path, DIMS, tensors))
    text = error.value.message
    assert "encoder.conv1.bias: expected [128], found [7]" in text
    assert "missing: decoder.blocks.1.attn.out.bias [128]" in text
    assert "surplus: encoder.extra [3]" in text


def test_ctranslate2_tensor_that_is_missing_is_named(tmp_path: Path) -> None:
    tensors = {name: value for name, value in make_tensors(DIMS).items() if name != "encoder.ln_post.bias"}
    with pytest.raises(WeightsMismatch, match=r"missing: encoder\.ln_post\.bias"):
        open_folder(write_ctranslate2(tmp_path, DIMS, tensors))


def test_a_binary_without_its_number_of_heads_is_refused(tmp_path: Path) -> None:
    folder = write_ctranslate2(tmp_path, DIMS, make_tensors(DIMS))
    data = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(data.replace(b"encoder/num_heads", b"encoder/num_hands", 1))
    with pytest.raises(WeightsMismatch, match="encoder/num_heads is missing"):
        open_folder(folder)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_half_a_binary_is_refused(tmp_path: Path, share: float) -> None:
    folder = write_ctranslate2(tmp_path, DIMS, make_tensors(DIMS))
    data = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ModelUnreadable, match=r"model\.bin: cut off"):
        open_folder(folder)


def test_bytes_behind_a_binary_and_another_spec_are_refused(tmp_path: Path) -> None:
    folder = write_ctranslate2(tmp_path, DIMS, make_tensors(DIMS))
    data = (folder / "model.bin").read_bytes()
    (folder / "model.bin").write_bytes(data + b"x")
    with pytest.raises(ModelUnreadable, match="1 bytes behind the end"):
        open_folder(folder)
    (folder / "model.bin").write_bytes(data.replace(b"WhisperSpec", b"WhisperSqec", 1))
    with pytest.raises(ModelUnreadable, match="a WhisperSqec, not a WhisperSpec"):
        open_folder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_folder_with_a_file_missing_is_refused(tmp_path: Path, name: str) -> None:
    folder = write_hugging_face(tmp_path, DIMS, make_tensors(DIMS))
    (folder / name).unlink()
    with pytest.raises((ModelUnreadable, UnknownModel), match=r"missing|holds no config"):
        open_folder(folder)


def test_a_tokenizer_of_another_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = write_hugging_face(tmp_path, DIMS, make_tensors(DIMS))
    (folder / "tokenizer.json").write_text(tokenizer_text(51864))
    with pytest.raises(ModelUnreadable, match="a tokenizer of another vocabulary"):
        open_folder(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelUnreadable, match="not a tokenizer"):
        open_folder(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("vocab_size", 32000, "n_vocab is 32000"),
        ("num_mel_bins", 64, "n_mels is 64"),
        ("d_model", 100, "n_audio_state is 100; this engine computes 128"),
        ("encoder_layers", 0, "encoder_layers is 0, not a size"),
        ("max_source_positions", 750, "n_audio_ctx is 750"),
    ],
)
def test_a_configuration_that_is_no_whisper_is_refused(
    tmp_path: Path, key: str, value: int, message: str
) -> None:
    folder = write_hugging_face(tmp_path, DIMS, make_tensors(DIMS))
    config = json.loads((folder / "config.json").read_text()) | {key: value}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelUnreadable, match=message):
        open_folder(folder)


@pytest.mark.parametrize(("bits", "most"), [(8, 1 / 255), (4, 1 / 15)])
def test_mlx_groups_are_read_to_half_a_step(tmp_path: Path, bits: int, most: float) -> None:
    tensors = make_tensors(DIMS)
    artifacts = open_folder(write_mlx(tmp_path, DIMS, tensors, bits))
    for name in ("decoder.token_embedding.weight", "encoder.blocks.0.mlp.0.weight"):
        value = tensors[name].reshape(-1, 64)
        gap = np.abs(np.array(artifacts.tensors[name]).reshape(-1, 64) - value)
        steps = (value.max(axis=1) - value.min(axis=1)) * most
        # MLX moves the grid so that zero lies on it: a whole step at an end.
        assert (gap.max(axis=1) <= steps * 1.01).all()
        assert np.median(gap) <= np.median(steps) * 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"decoder.blocks.0.mlp1.biases": None}, r"decoder\.blocks\.0\.mlp1\.biases is missing beside"),
        ({"decoder.blocks.0.mlp1.scales": None}, r"decoder\.blocks\.0\.mlp1\.biases has no scales"),
        ({"decoder.blocks.0.mlp1.scales": np.ones((512, 5))}, r"mlp1\.weight is not quantised as stated"),
    ],
)
def test_mlx_groups_that_do_not_fit_are_named(
    tmp_path: Path, change: dict[str, np.ndarray | None], message: str
) -> None:
    folder = write_mlx(tmp_path, DIMS, make_tensors(DIMS), 8)
    with np.load(folder / "weights.npz") as stored:
        named: dict[str, np.ndarray | None] = {**stored, **change}
    kept = {name: value for name, value in named.items() if value is not None}
    np.savez(folder / "weights.npz", **kept)  # type: ignore[arg-type]
    with pytest.raises(WeightsMismatch, match=message):
        open_folder(folder)


def test_mlx_groups_need_their_size_in_the_configuration(tmp_path: Path) -> None:
    folder = write_mlx(tmp_path, DIMS, make_tensors(DIMS), 8)
    config = json.loads((folder / "config.json").read_text())
    del config["quantization"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsMismatch, match="does not say under 'quantization'"):
        open_folder(folder)


def test_a_checkpoint_without_sizes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(tokenizer_text(DIMS.n_vocab))
    weights: dict[str, Any] = {"w": ("FloatStorage", np.ones(1, np.float32), 0, (1,), (1,))}
    (tmp_path / "model.pt").write_bytes(handmade(weights))
    with pytest.raises(ModelUnreadable, match=r"model\.pt: it holds no 'dims'"):
        open_folder(tmp_path)
    (tmp_path / "model.pt").write_bytes(b"no zip")
    with pytest.raises(ModelUnreadable, match="not a readable checkpoint"):
        open_folder(tmp_path)


def test_a_checkpoint_that_calls_a_function_is_refused(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path, DIMS, make_tensors(DIMS))
    data = (folder / "tiny.pt").read_bytes()
    with zipfile.ZipFile(folder / "tiny.pt") as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    records["tiny/data.pkl"] = b"\x80\x02" + pickled(Call("os", "system", "true")) + b"."
    with zipfile.ZipFile(folder / "tiny.pt", "w") as archive:
        for name, record in records.items():
            archive.writestr(name, record)
    assert (folder / "tiny.pt").read_bytes() != data
    with pytest.raises(ModelUnreadable, match=r"tiny\.pt: the checkpoint's pickle asks for os\.system"):
        open_folder(folder)


def test_a_checkpoint_with_a_tensor_too_few_is_refused_by_name(tmp_path: Path) -> None:
    tensors = {name: value for name, value in make_tensors(DIMS).items() if name != "decoder.ln.bias"}
    with pytest.raises(WeightsMismatch, match=r"missing: decoder\.ln\.bias \[128\]"):
        open_folder(write_checkpoint(tmp_path, DIMS, tensors))


def test_a_setting_outside_the_model_is_refused(tmp_path: Path) -> None:
    folder = write_hugging_face(tmp_path, DIMS, make_tensors(DIMS))
    (folder / "generation_config.json").write_text(json.dumps({"alignment_heads": [[9, 0]]}))
    with pytest.raises(ModelUnreadable, match=r"no alignment head \(9, 0\)"):
        open_folder(folder)
    (folder / "generation_config.json").write_text(json.dumps({"suppress_tokens": [99999]}))
    with pytest.raises(ModelUnreadable, match="99999 is no token"):
        open_folder(folder)
