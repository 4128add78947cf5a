"""A WeNet model's folder: what is read, and what is refused by name."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import yaml

from ops.testbed.torch_checkpoint import Call, pickled
from spool.errors import InvalidRequest, ModelUnreadable, SpoolError, UnknownModel, WeightsMismatch
from worker.decode import check_options
from worker.decode.search import search
from worker.models import DecodeRequest, SearchOptions, TorchCheckpoint, UnitTokenizer, load_model, read_units

GOLDEN = Path(__file__).parents[3] / "golden" / "wenet"


def copied(tmp_path: Path, name: str = "offline") -> Path:
    folder = tmp_path / name
    shutil.copytree(GOLDEN / name, folder)
    return folder


def rewritten(folder: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    tree = yaml.safe_load((folder / "train.yaml").read_text())
    change(tree)
    (folder / "train.yaml").write_text(yaml.safe_dump(tree))
    return folder


def tensors_of(folder: Path) -> dict[str, mx.array]:
    with (folder / "final.pt").open("rb") as file:
        checkpoint = TorchCheckpoint(file, "final.pt")
        return {name: checkpoint.read(name) for name in checkpoint.shapes}


def test_safetensors_answer_as_the_pickle_does(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    tensors = tensors_of(folder)
    (folder / "final.pt").unlink()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    samples = [np.random.default_rng(0).normal(0, 0.1, 16000).astype(np.float32)]
    safe, plain = load_model(folder), load_model(GOLDEN / "offline")
    assert np.array_equal(np.array(safe.encode(samples).frames), np.array(plain.encode(samples).frames))
    assert safe.info.digest != plain.info.digest


def test_what_the_weights_were_normalised_with_may_be_missing(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    tensors = {name: each for name, each in tensors_of(folder).items() if "global_cmvn" not in name}
    (folder / "final.pt").unlink()
    mx.save_safetensors(str(folder / "final.safetensors"), tensors)
    assert not load_model(folder).config.encoder.has_feature_norm  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        (None, "encoder", "squeezeformer"),
        (None, "model", "paraformer"),
        ("dataset_conf", "feats_type", "log_mel_spectrogram"),
        ("encoder_conf", "input_layer", "linear"),
        ("encoder_conf", "pos_enc_layer_type", "rope_pos"),
        ("encoder_conf", "static_chunk_size", 16),
    ],
)
def test_what_is_not_computed_is_refused_by_its_name(
    section: str | None, name: str, value: object, tmp_path: Path
) -> None:
    def change(tree: dict[str, Any]) -> None:
        (tree if section is None else tree[section])[name] = value

    whole_name = name if section is None else f"{section}.{name}"
    with pytest.raises(ModelUnreadable, match=rf"{whole_name}: '?{value}'? is not supported"):
        load_model(rewritten(copied(tmp_path), change))


def test_other_predictors_are_refused_by_name(tmp_path: Path) -> None:
    folder = rewritten(copied(tmp_path, "rnnt"), lambda tree: tree.update(predictor="conv"))
    with pytest.raises(ModelUnreadable, match="predictor: 'conv' is not supported, only rnn"):
        load_model(folder)


def test_a_size_that_the_weights_have_not_is_named(tmp_path: Path) -> None:
    folder = rewritten(copied(tmp_path), lambda tree: tree["encoder_conf"].update(cnn_module_kernel=31))
    with pytest.raises(WeightsMismatch, match=r"encoder_conf\.cnn_module_kernel is 31, the weights have 15"):
        load_model(folder)


def test_tensors_that_are_missing_or_unknown_are_named(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    tensors = tensors_of(folder)
    tensors["encoder.adapter.weight"] = tensors.pop("encoder.encoders.0.norm_ff.bias")
    (folder / "final.pt").unlink()
    mx.save_safetensors(str(folder / "final.safetensors"), tensors)
    with pytest.raises(WeightsMismatch, match=r"missing: .*norm_ff\.bias .*surplus: encoder\.adapter"):
        load_model(folder)


def test_a_pickle_that_calls_something_is_refused(tmp_path: Path) -> None:
    import zipfile

    folder = copied(tmp_path)
    with zipfile.ZipFile(folder / "final.pt", "w") as archive:
        archive.writestr("final/data.pkl", b"\x80\x02" + pickled(Call("os", "system", "true")) + b".")
    with pytest.raises(ModelUnreadable, match=r"final\.pt: the checkpoint's pickle asks for os.system"):
        load_model(folder)


@pytest.mark.parametrize("name", ["train.yaml", "units.txt"])
def test_what_a_folder_lacks_is_named(name: str, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / name).unlink()
    with pytest.raises(UnknownModel, match=f"a WeNet model needs {name} beside final.pt"):
        load_model(folder)


def test_a_folder_of_torchscript_names_the_other_file(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "final.pt").rename(folder / "final.zip")
    with pytest.raises(ModelUnreadable, match=r"final\.zip .*use the model's final\.pt"):
        load_model(folder)
    (folder / "final.zip").unlink()
    with pytest.raises(UnknownModel, match=r"holds none of final\.safetensors"):
        load_model(folder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            SearchOptions(decoder="rescore", beam=4, reverse_weight=0.3),
            "reverse_weight: the model has no decoder",
        ),
        (
            SearchOptions(decoder="beam", beam=4, reverse_weight=0.3),
            "reverse_weight: the beam search of a ctc head",
        ),
        (
            SearchOptions(decoder="attention", beam=4, beta=1.0),
            "beta: the attention search of a ctc.attention head",
        ),
        (SearchOptions(decoder="beam", head="rnnt"), "the model has no rnnt head"),
        (
            SearchOptions(decoder="beam", head="attention"),
            "unknown decoder 'beam' for a ctc.attention head: resc",
        ),
    ],
)
def test_what_a_search_does_not_take_is_refused_without_audio(options: SearchOptions, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_options(load_model(GOLDEN / "offline"), options)


def test_lattices_need_the_best_alignment() -> None:
    model = load_model(GOLDEN / "offline")
    with pytest.raises(InvalidRequest, match=r"lattice: it keeps no lattice.*best alignment"):
        check_options(model, SearchOptions(decoder="beam"), DecodeRequest(lattice=5.0))
    check_options(model, SearchOptions(decoder="beam", alignments="best"), DecodeRequest(lattice=5.0))


def test_attention_takes_no_phrases() -> None:
    model = load_model(GOLDEN / "offline")
    ask = DecodeRequest(phrases=("的",))
    with pytest.raises(SpoolError, match="takes no language model and no phrases"):
        check_options(model, SearchOptions(decoder="attention"), ask)
    encoded = model.encode([np.random.default_rng(0).normal(0, 0.1, 8000).astype(np.float32)])
    assert search(model, encoded, SearchOptions(decoder="rescore"), [ask])


PIECES = ["<blank>", "<unk>", "▁", "▁THE", "S", "▁A", "T", "E", "中", "国", "<sos/eos>"]


def test_units_are_joined_as_they_are_written() -> None:
    tokens = UnitTokenizer(PIECES)
    assert tokens.decode([3, 5, 6, 4, 1, 8, 9, 10]) == "the ats中国"
    assert tokens.decode([8, 3]) == "中the"
    assert [(span.text, span.first, span.last) for span in tokens.words([3, 4, 8, 9, 5])] == [
        ("thes", 0, 2),
        ("中", 2, 3),
        ("国", 3, 4),
        ("a", 4, 5),
    ]
    assert tokens.encode("the a") == [3, 5]
    assert tokens.encode("中国 at") == [8, 9, 5, 6]
    with pytest.raises(InvalidRequest, match="'dog' holds what the model has no unit for"):
        tokens.encode("dog")
    with pytest.raises(IndexError):
        tokens.decode([11])


def test_a_broken_list_of_units_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "units.txt"
    path.write_text("<blank> 0\n<unk> 1\na 3\n")
    with pytest.raises(ModelUnreadable, match="line 3: expected a unit and its id 2"):
        read_units(path, None)
