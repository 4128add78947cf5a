"""Fuzzes the readers with damaged real files: `python -m ops.bench.fuzz audio --seconds 300 --seed 1`.

A child process reads one damaged file after the other. Only a reading or an error of ours (`SpoolError`) that
does not ask for a retry is a good answer: another exception, a signal, a minute of silence or a gigabyte of
memory is a finding, and its file is kept under `--keep`. Exit code 1 when there was one. The same seed tries
the same files.
"""

import argparse
import collections
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import soundfile

from ops.bench.mutation import Seed, mutated
from spool.errors import SpoolError

ROOT = Path(__file__).resolve().parents[2]
SILENT_S = 60.0
GROWTH_BYTES = 1 << 30
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
    from tests.worker.bad_audio import write_av

    own = [path for path in sorted((ROOT / "samples").rglob("*")) if path.suffix in _SUFFIXES]
    found = [path for path in own if path.stat().st_size < 200_000]
    speech, rate = soundfile.read(
        next(path for path in own if path.suffix in {".flac", ".wav"}), dtype="float32"
    )
    speech = speech.reshape(len(speech), -1)[: 2 * rate, 0]
    at_48k = np.repeat(speech, 48_000 // rate)
    for name, container, subtype in _FORMATS:
        path = folder / name
        sound, hertz = (at_48k, 48_000) if subtype == "OPUS" else (speech, rate)
        soundfile.write(path, np.stack([sound, sound], 1), hertz, format=container, subtype=subtype)
        found.append(path)
    for name, container, codec in _BY_FFMPEG:
        found.append(write_av(folder / name, container, codec, at_48k, 48_000))
    return [Seed.of(path) for path in found]


_SUFFIXES = {".wav", ".flac", ".ogg", ".opus", ".mp3", ".m4a", ".mp4", ".webm", ".aac"}


def models(_folder: Path) -> list[Seed]:
    """The golden checkpoints, and a folder's weights and configuration."""
    golden = ROOT / "tests" / "golden"
    weights = golden / "tdt" / "model.safetensors"
    header = Seed("model.safetensors", weights.read_bytes(), tuple(range(0, 6000, 97)))
    others = [golden / "tdt" / "config.json", golden / "tdt" / "tokenizer.model"]
    return (
        [Seed.of(path) for path in sorted(golden.glob("*.nemo"))]
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
    from worker.model.load import load_model

    if path.suffix == ".nemo":
        load_model(path)
        return
    folder = path.parent / "model"
    shutil.copytree(ROOT / "tests" / "golden" / "tdt", folder, dirs_exist_ok=True)
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
    from spool.batches import Report, manifest_lines

    report = Report()
    with path.open("rb") as stream:
        good = sum(1 for _ in manifest_lines(stream, report))
    assert good + report.bad == report.lines
    json.dumps(
        [vars(line) if hasattr(line, "__dict__") else repr(line) for line in report.bad_lines]
    ).encode()


TARGETS = {
    "manifest": (manifests, read_manifest),
    "audio": (recordings, read_recording),
    "model": (models, read_model),
}


def _child(target: str, pipe: Connection) -> None:
    read = TARGETS[target][1]
    while (path := pipe.recv()) is not None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read(path)
            answer, good = "read", True
        except SpoolError as error:
            answer, good = type(error).__name__, not error.retryable
        except BaseException:  # noqa: BLE001 - whatever it is, it is a finding
            answer, good = traceback.format_exc(), False
        growth = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
        if growth > GROWTH_BYTES:
            answer, good = f"{answer}, and {growth >> 20} MiB of memory", False
        pipe.send((answer, good))


class Reader:
    """The child that reads; started anew when it dies or falls silent."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_child, args=(self._target, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def read(self, path: Path) -> tuple[str, bool]:
        self._pipe.send(path)
        try:
            if self._pipe.poll(SILENT_S):
                answer: tuple[str, bool] = self._pipe.recv()
                return answer
            answer = f"silent for {SILENT_S:g} s", False
        except EOFError:
            self._process.join()
            answer = f"the process ended with {self._process.exitcode}", False
        self.close()
        self._start()
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()


def fuzz(target: str, seconds: float, seed: int, keep: Path, first: int, count: int | None) -> int:
    answers: collections.Counter[str] = collections.Counter()
    findings = 0
    with tempfile.TemporaryDirectory() as scratch:
        seeds = TARGETS[target][0](Path(scratch))
        reader = Reader(target)
        end = time.monotonic() + seconds
        number = first
        while time.monotonic() < end and (count is None or number < first + count):
            name, content = mutated(seeds, seed, number)
            path = Path(scratch) / name
            path.write_bytes(content)
            answer, good = reader.read(path)
            answers[answer.strip().splitlines()[-1]] += 1
            if not good:
                findings += 1
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{target}-{seed}-{number}-{name}").write_bytes(content)
                print(f"FINDING {target} seed {seed} number {number} of {name}: {answer}", flush=True)
            number += 1
        reader.close()
    print(f"{target}: {number - first} files, seed {seed}, {findings} findings")
    for answer, times in answers.most_common():
        print(f"  {times:7d}  {answer}")
    return 1 if findings else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first file")
    parser.add_argument("--count", type=int, help="files to try at most")
    parser.add_argument("--keep", type=Path, default=Path("var/fuzz"), help="where findings are kept")
    told = parser.parse_args()
    return fuzz(told.target, told.seconds, told.seed, told.keep, told.first, told.count)


if __name__ == "__main__":
    sys.exit(main())
