"""What a Whisper job keeps of its engine's speed: `spool-worker transcribe` against the bare engine.

    python -m ops.bench.engine.job_fraction [RECORDINGS…] [--model whisper-tiny.en] [--rounds 2]

The job: files through reading, detector, chunks, engine, word times and transcript, greedy, in this process,
with the encoder's context by default and in full.
The bare engine: the same sound end to end in full windows of 30 s, 16 a batch, each encoded and searched once
without times. In turns; of each the round with the fewest processor seconds counts, of one thread. Windows:
how many were encoded; their fill bounds the fraction.
"""

# ruff: noqa: E402 - threads are counted and the BLAS is loaded before MLX is

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
    os.environ[_name] = "1"
from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx
import numpy as np

from ops.bench.peers.speech import read_samples
from worker.decode.attention.beam import AttentionSearch, BeamSettings, SearchRequest
from worker.local.transcribe import transcribe_with
from worker.models.attention.state import EncodedWindow
from worker.models.front_ends.whisper_mel import SAMPLE_RATE, WINDOW_SAMPLES
from worker.models.load import model_files
from worker.models.requests import DecodeRequest, SearchOptions
from worker.models.weights import default_dtype
from worker.models.whisper.artifacts import open_folder
from worker.models.whisper.model import WhisperModel
from worker.models.whisper.rules import WhisperOptions

ROOT = Path(__file__).parents[3]
BATCH = 16
SUFFIXES = {".flac", ".m4a", ".mp3", ".ogg", ".opus", ".wav"}


class CountedWhisper(WhisperModel):
    """Counts the windows that it encodes."""

    encoded = 0

    def encode(
        self, windows: Sequence[np.ndarray], full: Sequence[bool] | None = None
    ) -> list[EncodedWindow]:
        self.encoded += len(windows)
        return super().encode(windows, full)


def run_engine(model: CountedWhisper, sound: np.ndarray) -> None:
    """Ask every window of 30 s once."""
    prompt = tuple(model.ids.prompt("en", "transcribe", timestamps=False))
    windows = [sound[at : at + WINDOW_SAMPLES] for at in range(0, len(sound), WINDOW_SAMPLES)]
    for first in range(0, len(windows), BATCH):
        encoded = model.encode(windows[first : first + BATCH])
        search = AttentionSearch(model.head, model.rules, BeamSettings())
        search.run(
            SearchRequest(row, each, prompt, WhisperOptions(timestamps=False))
            for row, each in enumerate(encoded)
        )


def run_job(model: CountedWhisper, files: Sequence[Path], ask: DecodeRequest | None = None) -> None:
    """Transcribe the files."""
    results = transcribe_with(model, files, SearchOptions(decoder="greedy"), ask=ask or DecodeRequest())
    failed = [str(each.error) for each in results if each.transcript is None]
    if failed:
        raise SystemExit("\n".join(failed))


def seconds_of(model: CountedWhisper, run: Callable[[], None]) -> tuple[float, int]:
    """Processor seconds, and how many windows were encoded."""
    model.encoded, begun = 0, time.process_time()
    run()
    return time.process_time() - begun, model.encoded


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("recordings", nargs="*", type=Path, help="files or folders (samples/open)")
    parser.add_argument("--model", default="whisper-tiny.en", help="of the catalogue, or a folder")
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    model = CountedWhisper(open_folder(model_files(chosen.model).path), default_dtype(mx.float16))
    files = [
        path
        for each in chosen.recordings or [ROOT / "samples" / "open"]
        for path in (sorted(each.rglob("*")) if each.is_dir() else [each])
        if path.suffix in SUFFIXES
    ]
    sound = np.concatenate([read_samples(path) for path in files])
    run_engine(model, sound[:WINDOW_SAMPLES])  # builds what has to be built
    best: dict[str, tuple[float, int]] = {}
    for turn in range(chosen.rounds):
        for name, run in (
            ("engine", lambda: run_engine(model, sound)),
            ("job", lambda: run_job(model, files)),
            ("job full", lambda: run_job(model, files, DecodeRequest(audio_context="full"))),
        ):
            best[name] = min(best.get(name, (float("inf"), 0)), seconds_of(model, run))
            print(f"round {turn + 1}: {name}, {best[name][0]:.1f} s at best", file=sys.stderr, flush=True)
    length = len(sound) / SAMPLE_RATE
    print(f"{len(files)} recordings, {length / 60:.1f} min, load {os.getloadavg()[0]:.1f}")
    for name, (busy, windows) in best.items():
        fill = length / (windows * WINDOW_SAMPLES / SAMPLE_RATE)
        print(f"{name:8} {busy:7.1f} s  RTFx {length / busy:6.1f}  windows {windows:4}  fill {fill:.2f}")
    bare, bare_windows = best.pop("engine")
    for name, (job, job_windows) in best.items():
        by_window = bare / bare_windows * job_windows / job
        print(f"{name} of engine {bare / job:.2f}; window by window {by_window:.2f}")


if __name__ == "__main__":
    main()
