"""Reading `.nemo` files: real ones, broken ones, and ones made to do harm."""

import collections
import contextlib
import io
import os
import pickle
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import mlx.core as mx
import numpy as np
import pytest

from ops.testbed.torch_checkpoint import Call, handmade, pickled, tensor
from spool.errors import ModelError, ModelUnreadable
from tests.worker.models.golden import FOLDER
from worker.models import TensorUnpickler, TorchCheckpoint, load_model, open_nemo

NEMO = FOLDER / "hybrid.nemo"


def members(path: Path = NEMO) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        read = {member.name: archive.extractfile(member) for member in archive if member.isfile()}
        return {name: file.read() for name, file in read.items() if file is not None}


def write_tar(path: Path, files: dict[str, bytes], mode: Literal["w", "w:gz", "w:xz"] = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, raw in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    return path


def rewritten_zip(
    raw: bytes, change: Callable[[str, bytes], bytes | None], kind: int = zipfile.ZIP_STORED
) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as source, zipfile.ZipFile(out, "w", kind) as target:
        for name in source.namelist():
            changed = change(name, source.read(name))
            if changed is not None:
                target.writestr(name, changed)
    return out.getvalue()


def with_weights(tmp_path: Path, weights: bytes) -> Path:
    files = members()
    files["./model_weights.ckpt"] = weights
    return write_tar(tmp_path / "changed.nemo", files)


def with_pickle(tmp_path: Path, index: bytes) -> Path:
    weights = members()["./model_weights.ckpt"]
    change = lambda name, raw: index if name.endswith("data.pkl") else raw  # noqa: E731
    return with_weights(tmp_path, rewritten_zip(weights, change))


def test_what_a_real_file_holds() -> None:
    with open_nemo(NEMO) as archive:
        shapes = archive.weights.shapes
        assert shapes["encoder.pre_encode.conv.0.weight"] == (16, 1, 3, 3)
        assert shapes["encoder.layers.0.conv.batch_norm.num_batches_tracked"] == ()
        assert archive.weights.read("encoder.layers.0.conv.batch_norm.num_batches_tracked").item() == 1234
        embedding = archive.weights.read("decoder.prediction.embed.weight")
        assert embedding.dtype == mx.float16
        assert not np.array(embedding[-1]).any()
        assert archive.tokenizer(None) is not None


@pytest.mark.parametrize("mode", ["w:gz", "w:xz"])
def test_a_compressed_archive_reads_the_same(tmp_path: Path, mode: Literal["w:gz", "w:xz"]) -> None:
    path = write_tar(tmp_path / "packed.nemo", members(), mode)
    samples = [np.sin(np.arange(16_000, dtype=np.float32) * 0.1)]
    assert mx.array_equal(load_model(path).encode(samples).frames, load_model(NEMO).encode(samples).frames)


def test_every_dtype_and_strided_views_are_read(tmp_path: Path) -> None:
    # Given a checkpoint written by hand, with a transposed view and an offset
    storages = {
        "FloatStorage": np.arange(6, dtype="<f4"),
        "DoubleStorage": np.arange(6, dtype="<f8") / 3,
        "HalfStorage": np.arange(6, dtype="<f2"),
        "BFloat16Storage": np.array([0x3F80, 0x4000, 0x4040, 0xBF80, 0, 0x4080], "<u2"),
        "LongStorage": np.arange(6, dtype="<i8") - 3,
        "BoolStorage": np.array([1, 0, 1, 0, 1, 0], "|b1"),
    }
    raw = handmade({name: (name, values, 0, (3, 2), (1, 3)) for name, values in storages.items()})
    checkpoint = TorchCheckpoint(io.BytesIO(raw), "handmade")
    # Then each reads as the transposed view that it is
    for name, values in storages.items():
        found = checkpoint.read(name)
        if name == "BFloat16Storage":
            assert found.dtype == mx.bfloat16
            assert found.astype(mx.float32).tolist() == [[1, -1], [2, 0], [3, 4]]
        else:
            np.testing.assert_allclose(np.array(found), values.reshape(2, 3).T, rtol=1e-6)
    assert checkpoint.read("DoubleStorage").dtype == mx.float32


@pytest.mark.parametrize(
    ("module", "name", "argument"),
    [
        ("os", "system", "touch {marker}"),
        ("posix", "system", "touch {marker}"),
        ("builtins", "eval", "open('{marker}', 'w')"),
        ("builtins", "getattr", "x"),
        ("subprocess", "Popen", "touch {marker}"),
        ("torch", "load", "x"),
        ("torch._utils", "_rebuild_wrapper_subclass", "x"),
        ("torch.storage", "_load_from_bytes", "x"),
        ("numpy.core.multiarray", "_reconstruct", "x"),
        ("collections", "OrderedDict.__reduce__", "x"),
        ("worker.models.artifacts.nemo", "open_nemo", "x"),
    ],
)
def test_a_pickle_that_names_anything_else_is_refused(
    tmp_path: Path, module: str, name: str, argument: str
) -> None:
    # Given a checkpoint whose pickle calls a function
    marker = tmp_path / "marker"
    index = b"\x80\x02" + Call(module, name, argument.format(marker=marker)).opcodes() + b"."
    # When it is loaded
    with pytest.raises(ModelUnreadable) as caught:
        load_model(with_pickle(tmp_path, index))
    # Then it is refused by name and nothing ran
    assert f"{module}.{name}" in caught.value.message
    assert "changed.nemo" in caught.value.message
    assert not marker.exists()


def test_a_pickle_made_by_python_itself_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "made"),)

    for protocol in range(6):
        with pytest.raises(ModelUnreadable, match="mkdir"):
            TensorUnpickler(io.BytesIO(pickle.dumps({"weight": Evil()}, protocol))).load()
    assert not (tmp_path / "made").exists()


def _tuple_of_tuples(levels: int) -> bytes:
    """A tuple that holds its predecessor twice, `levels` deep: 2^levels tuples to whoever hashes it."""
    return b")" + b"".join(b"q%ch%c\x86" % (level, level) for level in range(levels))


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        (b"}" + _tuple_of_tuples(60) + b"Ns", "unfolds to more than"),
        (b"}" + _tuple_of_tuples(3) + b"Ns", "neither a name nor a number"),
        (b"ccollections\nOrderedDict\n(](" + (b"(" + _tuple_of_tuples(15) + b"Nt") * 20 + b"etR", "unfolds"),
        (b"}r\0\0\0\x40", r"LONG_BINPUT \(1073741824\)"),
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f", "damaged|BINBYTES8"),
        (b"\x8e\0\0\0\x40\0\0\0\0" + bytes(64), "damaged|BINBYTES8"),
        (b"\x8b\xff\xff\xff\x7f", "damaged|LONG4"),
        (b"\x8a\xff" + bytes(254) + b"\x01", "LONG1"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f", "damaged|BINUNICODE8"),
        (b"](" + b"]" * 250_000 + b"e", "more than 200000 steps"),
        (b"(" * 90_000 + b"N" + b"l" * 90_000, "LIST"),
        (b"ccollections\nOrderedDict\n](N" + b"\x85" * 200_000 + b"N\x86e\x85R", "32 levels"),
    ],
)
def test_a_pickle_costs_no_more_than_its_size(tmp_path: Path, bomb: bytes, reason: str) -> None:
    begun = time.process_time()
    with pytest.raises(ModelUnreadable, match=reason):
        load_model(with_pickle(tmp_path, b"\x80\x02" + bomb + b"."))
    assert time.process_time() - begun < 8.0


def test_a_pickle_cannot_alter_what_stands_for_torch() -> None:
    # BUILD sets attributes of whatever lies on the stack: the stand-ins have none to set.
    for module, name in (("torch._utils", "_rebuild_tensor_v2"), ("collections", "OrderedDict")):
        state = b"(N}" + pickled("__call__") + pickled("x") + b"st"
        raw = b"\x80\x02c" + f"{module}\n{name}\n".encode() + state + b"b."
        with pytest.raises((AttributeError, TypeError, pickle.UnpicklingError)):
            TensorUnpickler(io.BytesIO(raw)).load()
    assert collections.OrderedDict(a=1) == {"a": 1}


@pytest.mark.parametrize(
    "shape_of_lie",
    [
        ("FloatStorage", 4, 0, (1 << 40,), (0,)),  # a stride of zero claims any size
        ("FloatStorage", 4, 0, (5,), (1,)),
        ("FloatStorage", 4, 2, (3,), (1,)),
        ("FloatStorage", 4, -1, (2,), (1,)),
        ("FloatStorage", 4, 0, (2, 2), (3, 1)),
        ("FloatStorage", 4, 0, (-2,), (1,)),
        ("FloatStorage", 4, 0, (2,), (-1,)),
        ("FloatStorage", 1 << 60, 0, (2,), (1,)),  # the record is not that long
    ],
)
def test_tensors_that_reach_beyond_their_numbers_are_refused(shape_of_lie: tuple[Any, ...]) -> None:
    kind, count, offset, shape, stride = shape_of_lie
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        index = b"\x80\x02}(" + pickled("w") + tensor(kind, "0", count, offset, shape, stride) + b"u."
        archive.writestr("archive/data.pkl", index)
        archive.writestr("archive/data/0", bytes(16))
    with pytest.raises((ModelUnreadable, pickle.UnpicklingError)):
        TorchCheckpoint(io.BytesIO(out.getvalue()), "handmade").read("w")


@pytest.mark.parametrize("keep", [0, 1, 100, 512, 10_000, 200_000, -100_000, -30_000])
def test_a_truncated_file_is_named(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "short.nemo"
    path.write_bytes(NEMO.read_bytes()[:keep])
    with pytest.raises(ModelUnreadable, match=r"short\.nemo"):
        load_model(path)


def test_truncated_compression_is_named(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "whole.nemo", members(), "w:gz").read_bytes()
    for keep in (20, len(whole) // 2, len(whole) - 10_000):
        path = tmp_path / "short.nemo"
        path.write_bytes(whole[:keep])
        with pytest.raises(ModelUnreadable, match=r"short\.nemo"):
            load_model(path)


def test_noise_and_other_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "noise.nemo"
    for raw in (
        np.random.default_rng(0).bytes(5_000),
        b"RIFF....WAVE",
        b"\x1f\x8b broken gzip",
        b"PK\x03\x04",
    ):
        path.write_bytes(raw)
        with pytest.raises(ModelUnreadable, match=r"noise\.nemo"):
            load_model(path)


def test_flipped_bytes_never_do_worse_than_refuse(tmp_path: Path) -> None:
    # Given the weights with bytes flipped in the index and the zip's directory
    weights = members()["./model_weights.ckpt"]
    generator = np.random.default_rng(1)
    for _ in range(40):
        broken = bytearray(weights)
        for place in generator.integers(0, 16_000, 3):
            broken[place] ^= 1 << int(generator.integers(8))
        broken[-int(generator.integers(1, 4_000))] ^= 0xFF
        # When they are read: a model comes out, or one of our errors
        with_error = with_weights(tmp_path, bytes(broken))
        with contextlib.suppress(ModelError):
            load_model(with_error)


@pytest.mark.parametrize("missing", ["./model_config.yaml", "./model_weights.ckpt"])
def test_a_missing_part_is_named(tmp_path: Path, missing: str) -> None:
    files = members()
    del files[missing]
    with pytest.raises(ModelUnreadable, match=missing.removeprefix("./")):
        load_model(write_tar(tmp_path / "part.nemo", files))


def test_without_its_tokenizer_the_vocabulary_of_the_config_serves(tmp_path: Path) -> None:
    files = {name: raw for name, raw in members().items() if not name.endswith("tokenizer.model")}
    loaded = load_model(write_tar(tmp_path / "plain.nemo", files))
    assert loaded.tokenizer.pieces == load_model(NEMO).tokenizer.pieces


def test_links_and_paths_out_of_the_archive_are_passed_over(tmp_path: Path) -> None:
    # Given an archive whose parts are a link, an absolute path and a way up
    secret = tmp_path / "secret"
    secret.write_text("{}")
    path = tmp_path / "links.nemo"
    with tarfile.open(path, "w") as archive:
        link = tarfile.TarInfo("model_config.yaml")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
        for name in ("../model_weights.ckpt", "/model_weights.ckpt", "up/../model_weights.ckpt"):
            raw = members()["./model_weights.ckpt"]
            entry = tarfile.TarInfo(name)
            entry.size = len(raw)
            archive.addfile(entry, io.BytesIO(raw))
    before = sorted(tmp_path.rglob("*"))
    # When it is loaded, then nothing of it counts and nothing was written
    with pytest.raises(ModelUnreadable, match="holds no"):
        load_model(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    files = members()
    files["./model_weights.ckpt"] = bytes(60 << 20)
    path = write_tar(tmp_path / "bomb.nemo", files, "w:gz")
    assert path.stat().st_size < 2 << 20
    with pytest.raises(ModelUnreadable, match="expands to"):
        load_model(path)


def test_compressed_records_are_refused(tmp_path: Path) -> None:
    weights = members()["./model_weights.ckpt"]
    packed = rewritten_zip(weights, lambda _, raw: raw, zipfile.ZIP_DEFLATED)
    with pytest.raises(ModelUnreadable, match="compressed inside their zip"):
        load_model(with_weights(tmp_path, packed))


def test_a_missing_record_and_a_short_one_are_named(tmp_path: Path) -> None:
    weights = members()["./model_weights.ckpt"]
    for change in (
        lambda name, raw: None if name.endswith("data/7") else raw,
        lambda name, raw: raw[:-2] if name.endswith("data/7") else raw,
        lambda name, raw: raw + b"xx" if name.endswith("data/7") else raw,
    ):
        with pytest.raises(ModelUnreadable, match=r"changed\.nemo: encoder\.pre_encode\.conv\.2\.bias"):
            load_model(with_weights(tmp_path, rewritten_zip(weights, change)))


def test_a_legacy_checkpoint_and_a_big_endian_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelUnreadable, match=r"changed\.nemo"):
        load_model(with_weights(tmp_path, pickle.dumps({"weight": 1})))
    weights = members()["./model_weights.ckpt"]
    change = lambda name, raw: b"big" if name.endswith("byteorder") else raw  # noqa: E731
    with pytest.raises(ModelUnreadable, match="big endian"):
        load_model(with_weights(tmp_path, rewritten_zip(weights, change)))
