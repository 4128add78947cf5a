"""What the fuzzers feed to which reader: good files to damage, and the reading that must survive them.

Knows where good files are and how small ones are made; knows no fuzzer. A reading ends, or raises SpoolError.
"""

import io
import json
import shutil
import tarfile
from pathlib import Path

import numpy as np
import soundfile

from ops.fuzz.mutation import Seed

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
MAX_SECONDS = 600.0
_FORMATS = (
    ("pcm16.wav", "WAV", "PCM_16"), ("float.wav", "WAV", "FLOAT"), ("ulaw.wav", "WAV", "ULAW"),
    ("adpcm.wav", "WAV", "IMA_ADPCM"), ("rf64.wav", "RF64", "PCM_16"), ("rifx.aiff", "AIFF", "PCM_16"),
    ("a.caf", "CAF", "ALAC_16"), ("a.au", "AU", "PCM_16"), ("a.flac", "FLAC", "PCM_16"),
    ("a.ogg", "OGG", "VORBIS"), ("b.ogg", "OGG", "OPUS"), ("a.mp3", "MP3", "MPEG_LAYER_III"),
)  # fmt: skip
_BY_FFMPEG = (
    ("aac.m4a", "mp4", "aac"),
    ("alac.m4a", "mp4", "alac"),
    ("a.webm", "webm", "libopus"),
    ("a.mkv", "matroska", "flac"),
)


def recordings(folder: Path) -> list[Seed]:
    """The repository's own recordings, and two seconds of one in every container that Spool reads."""
    from ops.testbed.bad_audio import write_av

    own = [path for path in sorted((ROOT / "samples" / "demo-tdt").rglob("*")) if path.suffix in _SUFFIXES]
    small = [path for path in own if path.stat().st_size < 200_000]
    speech, rate = soundfile.read(
        next(path for path in own if path.suffix in {".flac", ".wav"}), dtype="float32"
    )
    speech = speech.reshape(len(speech), -1)[: 2 * rate, 0]
    at_48k = np.repeat(speech, 48_000 // rate)
    for name, container, subtype in _FORMATS:
        path = folder / name
        sound, hertz = (at_48k, 48_000) if subtype == "OPUS" else (speech, rate)
        soundfile.write(path, np.stack([sound, sound], 1), hertz, format=container, subtype=subtype)
        small.append(path)
    for name, container, codec in _BY_FFMPEG:
        small.append(write_av(folder / name, container, codec, at_48k, 48_000))
    return [Seed.of(path) for path in small]


_SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a", ".mp4", ".webm", ".aac"}


def models(_folder: Path) -> list[Seed]:
    """The golden checkpoints, and a folder's weights and configuration."""
    weights = GOLDEN / "tdt" / "model.safetensors"
    header = Seed("model.safetensors", weights.read_bytes(), tuple(range(0, 6000, 97)))
    others = [GOLDEN / "tdt" / "config.json", GOLDEN / "tdt" / "tokenizer.model"]
    return (
        [Seed.of(path) for path in sorted(GOLDEN.glob("*.nemo"))]
        + [header]
        + [Seed.of(path) for path in others]
    )


def read_recording(path: Path) -> None:
    """Read all of it, as a job does."""
    from worker.audio import open_audio

    for channels in ("mix", "separate"):
        with open_audio(path, channels=channels, max_seconds=MAX_SECONDS) as stream:
            for block in stream.blocks():
                assert block.dtype == np.float32
                assert np.isfinite(block).all()


def read_model(path: Path) -> None:
    """Load it: a `.nemo`, or the file of that name among the good files of a folder."""
    from worker.models.load import load_model

    if path.suffix == ".nemo":
        load_model(path)
        return
    folder = path.parent / "model"
    shutil.copytree(GOLDEN / "tdt", folder, dirs_exist_ok=True)
    shutil.copy(path, folder / path.name)
    load_model(folder)


def manifests(folder: Path) -> list[Seed]:
    """A manifest with everything that a line may hold."""
    path = folder / "manifest.jsonl"
    lines = [
        {"source": "s3://archive/1974/reel 1.flac", "custom_id": "r-1", "tags": {"box": "7"}},
        {
            "source": "https://example.org/a.wav?x=1",
            "name": "Größe",
            "options": {"decoder": "beam", "beam": 4},
        },
        {"source": "file:///archive/Gespr%E4ch.wav"},
    ]
    path.write_text("\n".join(json.dumps(line) for line in lines * 3), encoding="utf-8")
    return [Seed.of(path)]


def read_manifest(path: Path) -> None:
    """Read every line; bad ones are reported, in JSON that can be sent."""
    from spool.domain.manifest import BadLine, ManifestReport, manifest_lines

    report, lines = ManifestReport(), 0
    with path.open("rb") as stream:
        for _, line in manifest_lines(stream, report):
            lines += 1
            if isinstance(line, BadLine):
                report.add(line)
    assert lines == report.lines
    json.dumps(
        [vars(line) if hasattr(line, "__dict__") else repr(line) for line in report.bad_lines]
    ).encode()


def language_models(folder: Path) -> list[Seed]:
    """The golden model's file, and a short one in NeMo's spelling."""
    pieces = _pieces()
    short = folder / "short.arpa"
    one = [(-1.0, "<s>", -0.3), (-1.5, "</s>", 0.0), (-2.0, "<unk>", 0.0)]
    one += [(-1.2, chr(100 + number), -0.2) for number in range(min(6, len(pieces)))]
    two = [f"-0.5\t<s> {chr(100)}", f"-0.7\t{chr(100)} {chr(101)}", f"-0.9\t{chr(101)} </s>"]
    lines = ["\\data\\", f"ngram 1={len(one)}", f"ngram 2={len(two)}", "", "\\1-grams:"]
    lines += [f"{prob}\t{word}\t{backoff}" for prob, word, backoff in one]
    lines += ["", "\\2-grams:", *two, "", "\\end\\", ""]
    short.write_text("\n".join(lines), encoding="utf-8")
    return [Seed.of(GOLDEN / "lm.arpa"), Seed.of(short)]


def read_language_model(path: Path) -> None:
    """Read it for the golden model's tokens."""
    from worker.decode.fusion.arpa import read_arpa

    assert read_arpa(path, _pieces()).order > 0


def _pieces() -> tuple[str, ...]:
    global _known
    if _known is None:
        from worker.models.tokenizers.pieces import Tokenizer

        _known = tuple(Tokenizer.from_file(GOLDEN / "tdt" / "tokenizer.model").pieces)
    return _known


_known: tuple[str, ...] | None = None


def small_archives(folder: Path) -> list[Seed]:
    """A `.nemo` of a few kilobytes, plain and compressed, with real configuration and tokenizer."""
    from ops.testbed.torch_checkpoint import handmade

    values = np.arange(24, dtype=np.float32)
    kinds = {"FloatStorage": "<f4", "HalfStorage": "<f2", "LongStorage": "<i8"}
    weights = handmade(
        {
            f"encoder.{kind}": (kind, values.astype(dtype), 0, (2, 3, 4), (12, 4, 1))
            for kind, dtype in kinds.items()
        }
    )
    with tarfile.open(GOLDEN / "hybrid.nemo") as real:
        kept = {m.name: _content(real, m) for m in real if m.isfile() and "weights" not in m.name}
    seeds = []
    for mode in ("w", "w:gz"):
        path = folder / f"small.{mode[2:] or 'tar'}.nemo"
        with tarfile.open(path, mode) as archive:
            for name, raw in {**kept, "./model_weights.ckpt": weights}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(raw)
                archive.addfile(entry, io.BytesIO(raw))
        seeds.append(Seed.of(path))
    return seeds


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = archive.extractfile(member)
    return file.read() if file else b""


def read_archive(path: Path) -> None:
    """Everything of a `.nemo` that loading touches, but the network itself."""
    from worker.models.artifacts.nemo import open_nemo
    from worker.models.nemo.config import parse_config
    from worker.models.tokenizers.pieces import Tokenizer

    with open_nemo(path) as archive:
        for name in archive.weights.shapes:
            archive.weights.read(name)
        tokenizer = archive.tokenizer(None)
        if tokenizer is not None:
            Tokenizer.from_bytes(tokenizer[1], tokenizer[0])
        parse_config(archive.config, "config")


def small_safetensors(folder: Path) -> list[Seed]:
    """A file of three tensors."""
    import mlx.core as mx

    path = folder / "small.safetensors"
    mx.save_safetensors(
        str(path),
        {"a.weight": mx.zeros((2, 3)), "b.bias": mx.ones(4).astype(mx.bfloat16), "c": mx.arange(5)},
        metadata={"format": "pt"},
    )
    return [Seed.of(path)]


def read_safetensors(path: Path) -> None:
    """Every tensor of it, as the loader reads it."""
    import mlx.core as mx

    from worker.models.artifacts.safetensors import read_tensors

    weights = read_tensors(path)
    for name in weights.shapes:
        mx.eval(weights.read(name))
