"""Quantised weights: what is written, and that every family answers with it as with the same weights expanded
by hand."""

import json
import shutil
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

import worker.models.weights
from ops.testbed.invoking import invoke
from spool.errors import InvalidRequest, UnknownModel, WeightsMismatch
from tests.worker.models.canary import fixtures as canary
from tests.worker.models.golden import FOLDER
from tests.worker.models.qwen3_asr import tiny as qwen
from tests.worker.models.whisper import tiny
from worker.cli.main import main
from worker.models import (
    GRANITE,
    DecodeRequest,
    GraniteNetwork,
    ModelFiles,
    load_model,
    parse_granite,
    stored_shapes,
)
from worker.models.quantise import quantise

SAMPLES = [canary.sound(1.0), canary.sound(0.7, 1)]


def widened(tree: dict[str, Any], **sizes: int) -> dict[str, Any]:
    """Sections of a configuration, in which every setting of these names has this size."""
    return {
        key: widened(value, **sizes) if isinstance(value, dict) else sizes.get(key, value)
        for key, value in tree.items()
    }


# Groups have at least 32 weights.
QWEN = widened(
    qwen.CONFIG,
    d_model=32,
    encoder_ffn_dim=64,
    output_dim=64,
    hidden_size=64,
    intermediate_size=96,
    head_dim=32,
)


def write_granite(folder: Path) -> Path:
    """A model as wide as groups are, of random weights."""
    shutil.copytree(FOLDER / "granite" / "wide", folder)
    stated = json.loads((folder / "config.json").read_text())
    tree = widened(stated, hidden_size=32, intermediate_size=64, head_dim=16)
    (folder / "config.json").write_text(json.dumps(tree))
    front = json.loads((folder / "processor_config.json").read_text())
    shapes = stored_shapes(
        GraniteNetwork(parse_granite(tree, front.get("feature_extractor", front))), GRANITE
    )
    random = np.random.default_rng(3)
    tensors = {
        name: mx.array(np.abs(random.normal(size=shape)).astype(np.float32) * 0.1 + ("running_var" in name))
        if ".norm" in name
        else mx.array(random.normal(size=shape).astype(np.float32) * shape[-1] ** -0.5)
        for name, shape in shapes.items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def write_whisper(write: Callable[..., Path]) -> Callable[[Path], Path]:
    def into(folder: Path) -> Path:
        folder.mkdir()
        dims = tiny.make_dims()
        return write(folder, dims, tiny.make_tensors(dims))

    return into


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "nemo folder": lambda _: FOLDER / "hybrid",
    "nemo archive": lambda _: FOLDER / "causal.nemo",
    "canary folder": canary.write_folder,
    "canary archive": lambda path: canary.write_archive(path.with_suffix(".nemo"), canary.FLASH),
    "wenet": lambda _: FOLDER / "wenet" / "offline",
    "whisper of CTranslate2": write_whisper(tiny.write_ctranslate2),
    "whisper of Hugging Face": write_whisper(tiny.write_hugging_face),
    "whisper of OpenAI": write_whisper(tiny.write_checkpoint),
}

FAMILIES |= {
    "granite": lambda path: write_granite(path),
    "qwen3-asr": lambda path: qwen.write_folder(path, QWEN),
    "cohere": lambda _: FOLDER / "hub" / "cohere",
    "canary of transformers": lambda _: FOLDER / "hub" / "canary",
    "parakeet of transformers": lambda _: FOLDER / "hub" / "parakeet_rnnt",
}

OTHER_LAYOUTS = ("whisper of CTranslate2", "whisper of OpenAI")


def frames_of(folder: Path) -> np.ndarray:
    encoded: Any = load_model(folder, mx.float32).encode(SAMPLES)
    if hasattr(encoded, "frames"):
        frames = encoded.frames
    else:
        frames = encoded[0].batch.frames if hasattr(encoded[0], "batch") else encoded[0]
    return np.array(frames.astype(mx.float32))


def cross_of(folder: Path) -> list[np.ndarray]:
    """What an attention decoder makes of frames: the products of its shared layers."""
    model: Any = load_model(folder, mx.float32)
    head = model.heads.get("attention")
    if head is None:
        return []
    encoded = model.encode(SAMPLES[:1])
    if hasattr(head, "logits_after"):
        return [np.array(head.logits_after(encoded, [[1, 2, 3]]))]
    prompt = model.ask(encoded, [model.prepare(DecodeRequest())], [None])[0].prompts[0].tokens
    return [np.array(head.log_probabilities(encoded[0], prompt, [[1, 2, 3]])[0])]


def expand_by_hand(folder: Path, target: Path, bits: int) -> Path:
    """The folder with its packed matrices multiplied out, as if it had never been quantised."""
    target.mkdir()
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            (target / path.name).write_bytes(path.read_bytes())
    stored: Any = mx.load(str(folder / "model.safetensors"))
    config = folder / "config.json"
    stated = json.loads(config.read_text()).pop("quantization") if config.is_file() else {}
    if stated:
        tree = json.loads(config.read_text())
        del tree["quantization"]
        (target / "config.json").write_text(json.dumps(tree))
    tensors = {}
    for name, value in stored.items():
        layer = name.removesuffix(".weight")
        if f"{layer}.scales" in stored and name.endswith(".weight"):
            scales, biases = (
                np.array(stored[f"{layer}.{kind}"]).astype(np.float32) for kind in ("scales", "biases")
            )
            packed = np.array(value)
            steps = (packed[:, :, None] >> np.arange(0, 32, bits, dtype=np.uint32)) & ((1 << bits) - 1)
            steps = steps.reshape(len(packed), scales.shape[1], -1).astype(np.float32)
            expanded = steps * scales[..., None] + biases[..., None]
            tensors[name] = mx.array(expanded.reshape(len(packed), -1).astype(np.float16))
        elif not name.endswith((".scales", ".biases")):
            tensors[name] = value
    mx.save_safetensors(str(target / "model.safetensors"), tensors)
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "bits"),
    [
        pytest.param(family, bits, marks=pytest.mark.long if family in OTHER_LAYOUTS else ())
        for family, bits in [*zip(FAMILIES, cycle([8, 4]), strict=False), ("nemo folder", 4), ("granite", 4)]
    ],
)
def test_a_quantised_model_answers_as_its_weights_expanded_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, bits: int
) -> None:
    source = FAMILIES[family](tmp_path / "model")
    folder = tmp_path / f"in-{bits}"
    written = quantise(ModelFiles(source, source.stem), folder, bits)
    assert written.matrices > 3
    model = load_model(folder)
    assert model.info.bits == bits
    assert model.info.digest != load_model(source).info.digest
    by_hand = expand_by_hand(folder, tmp_path / "by-hand", bits)
    assert load_model(by_hand).info.bits is None
    assert np.array_equal(frames_of(folder), frames_of(by_hand))
    for one, other in zip(cross_of(folder), cross_of(by_hand), strict=True):
        assert np.array_equal(one, other)
    # Packed, as on a GPU: the same sums in another order, of scales that are not rounded once more.
    expected, logits = frames_of(folder), cross_of(folder)
    monkeypatch.setattr(worker.models.weights, "stays_packed", lambda: True)
    assert load_model(folder, mx.float32).info.size < model.info.size
    assert np.abs(frames_of(folder) - expected).max() < 5e-3 * np.abs(expected).max()
    for one, other in zip(cross_of(folder), logits, strict=True):
        assert np.abs(one - other).max() < 5e-3 * np.abs(other).max()


def test_embeddings_outputs_norms_and_convolutions_stay(tmp_path: Path) -> None:
    source = FAMILIES["canary folder"](tmp_path / "model")
    quantise(ModelFiles(source, "canary"), tmp_path / "8", 8)
    stored: Any = mx.load(str(tmp_path / "8" / "model.safetensors"))
    names = {name.removesuffix(".scales") for name in stored if name.endswith(".scales")}
    assert "transf_decoder._decoder.layers.0.first_sub_layer.query_net" in names
    kept = {name for name in stored if name.removesuffix(".weight") not in names}
    assert {canary.EMBEDDING, "log_softmax.mlp.layer0.weight"} <= kept
    assert not any("norm" in name or "conv" in name for name in names)
    assert stored["transf_decoder._decoder.layers.0.first_sub_layer.query_net.scales"].dtype == mx.float16


def test_the_files_beside_the_weights_go_along(tmp_path: Path) -> None:
    quantise(ModelFiles(FOLDER / "wenet" / "offline", "offline"), tmp_path / "8", 8)
    names = {path.name for path in (FOLDER / "wenet" / "offline").iterdir()} - {"final.pt"}
    assert {path.name for path in (tmp_path / "8").iterdir()} == names | {"model.safetensors"}


def test_layers_may_have_bits_of_their_own(tmp_path: Path) -> None:
    """As mlx-community's mixed recipes state them."""
    quantise(ModelFiles(FOLDER / "hybrid", "hybrid"), tmp_path / "8", 8)
    path = tmp_path / "8" / "model.safetensors"
    stored: Any = mx.load(str(path))
    layer = "encoder.layers.0.self_attn.linear_q"
    plain = mx.array(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))
    parts = mx.quantize(plain, group_size=32, bits=4)
    mx.eval(stored)
    mx.save_safetensors(
        str(path),
        stored
        | dict(zip((f"{layer}.{kind}" for kind in ("weight", "scales", "biases")), parts, strict=True)),
    )
    config = json.loads((tmp_path / "8" / "config.json").read_text())
    config["quantization"][layer] = {"group_size": 32, "bits": 4}
    (tmp_path / "8" / "config.json").write_text(json.dumps(config))
    assert load_model(tmp_path / "8").info.bits == 4


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"group_size": 32, "bits": 8},
            r"linear1\.weight is not quantised as stated, with 8 bits in groups of 32",
        ),
        (
            {"group_size": 64, "bits": 4},
            r"not quantised as stated, with 4 bits in groups of 64: its shape is \[",
        ),
        (
            {"group_size": 64, "bits": 7},
            "with 7 bits in groups of 64; this engine reads mode 'affine', 2, 3, 4, 5",
        ),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, "is quantised in mode 'mxfp4'"),
        ({}, "does not say under 'quantization' with how many 'bits'"),
    ],
)
def test_weights_that_are_not_as_stated_are_refused(
    tmp_path: Path, stated: dict[str, Any], message: str
) -> None:
    quantise(ModelFiles(FOLDER / "hybrid", "hybrid"), tmp_path / "8", 8)
    config = json.loads((tmp_path / "8" / "config.json").read_text()) | {"quantization": stated or "yes"}
    (tmp_path / "8" / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsMismatch, match=message) as caught:
        load_model(tmp_path / "8")
    assert "model.safetensors" in caught.value.message


def test_packed_weights_that_are_none_are_refused(tmp_path: Path) -> None:
    quantise(ModelFiles(FOLDER / "hybrid", "hybrid"), tmp_path / "8", 8)
    path = tmp_path / "8" / "model.safetensors"
    stored: Any = mx.load(str(path))
    name = "encoder.layers.0.feed_forward1.linear1.weight"
    stored[name] = stored[name].astype(mx.float32)
    mx.eval(stored)
    mx.save_safetensors(str(path), stored)
    with pytest.raises(WeightsMismatch, match=r"linear1\.weight has scales beside it, but holds float32"):
        load_model(tmp_path / "8")


def test_what_cannot_be_quantised_is_refused_in_words(tmp_path: Path) -> None:
    hybrid = ModelFiles(FOLDER / "hybrid", "hybrid")
    with pytest.raises(InvalidRequest, match="8 or 4 bits, not with 3"):
        quantise(hybrid, tmp_path / "3", 3)
    quantise(hybrid, tmp_path / "8", 8)
    with pytest.raises(
        InvalidRequest, match="quantised already, with 8 bits; name the model that it was made from"
    ):
        quantise(ModelFiles(tmp_path / "8", "8"), tmp_path / "4", 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        UnknownModel, match=r"holds none of model\.bin, final\.safetensors, model\.safetensors"
    ):
        quantise(ModelFiles(tmp_path / "empty", "empty"), tmp_path / "4", 4)
    stored: Any = mx.load(str(FOLDER / "hybrid" / "model.safetensors"))
    broken = tmp_path / "broken"
    broken.mkdir()
    spoilt = stored | {"encoder.layers.0.feed_forward1.linear1.weight": mx.full((256, 64), mx.nan)}
    mx.eval(spoilt)
    mx.save_safetensors(str(broken / "model.safetensors"), spoilt)
    with pytest.raises(WeightsMismatch, match=r"feed_forward1\.linear1\.weight holds numbers that are NaN"):
        quantise(ModelFiles(broken, "broken"), tmp_path / "4", 4)


def test_the_command_writes_a_folder_and_says_how_much(tmp_path: Path) -> None:
    result = invoke(main, ["quantise", str(FOLDER / "hybrid"), str(tmp_path / "8"), "--bits", "8"])
    assert result.exit_code == 0
    told = json.loads(result.stdout)
    assert told["matrices"] > 3
    assert 0 < told["bytes"] < (tmp_path / "8" / "model.safetensors").stat().st_size
    again = invoke(main, ["quantise", str(FOLDER / "hybrid"), str(tmp_path / "8")])
    assert again.exit_code == 2
    assert "is not an empty folder; name a new one" in again.stderr
    file = tmp_path / "file"
    file.touch()
    assert "is not an empty folder" in invoke(main, ["quantise", str(FOLDER / "hybrid"), str(file)]).stderr
