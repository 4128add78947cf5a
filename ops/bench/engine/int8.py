"""An encoder's products in 8-bit integers beside float32: what a whole transcription takes, and its words.

    python -m ops.bench.engine.int8 MODEL [RECORDINGS…] [--rounds 3]

MODEL: a name of the catalogue, a folder, a `.nemo` file, or a transducer of random weights: `random-small` of
parakeet-tdt_ctc-110m's size, `random-large` of parakeet-tdt-0.6b-v2's. RECORDINGS: files; samples/open by
default. Both in this process, in turns, with one thread, from files to words; of each the round with the
fewest processor seconds counts. Needs a CPU with VNNI.
"""

# ruff: noqa: E402 - threads are counted and the BLAS is loaded before MLX is

import argparse
import os
import time
from pathlib import Path

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
    os.environ[_name] = "1"
from worker.machine.blas import preload_blas

preload_blas()

from kernels.nn.int8_products import can_run
from ops.bench.engine.random_model import LARGE, SMALL, random_model
from ops.bench.peers.speech import read_samples
from spool.wer import total_errors, word_errors
from worker.local.transcribe import transcribe_with
from worker.models.base import SpeechModel
from worker.models.compute_type import loading
from worker.models.load import load_model
from worker.models.requests import SearchOptions

RANDOM = {"random-small": SMALL, "random-large": LARGE}
OPEN = Path(__file__).parents[3] / "samples" / "open"
SUFFIXES = {".flac", ".m4a", ".mp3", ".ogg", ".opus", ".wav"}


def load(model: str, recording: Path, *, int8: bool) -> SpeechModel:
    """The model; one of random weights emits as many tokens of the recording as of speech."""
    if model not in RANDOM:
        return load_model(model, int8=int8)
    with loading(int8=int8):
        made = random_model(RANDOM[model], read_samples(recording), model)
        _ = made.info
    return made


def main() -> None:
    """Print both, and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.engine.int8", description=__doc__)
    parser.add_argument("model")
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not can_run():
        raise SystemExit("This CPU does not multiply 8-bit integers (VNNI), or there is no C++ compiler.")
    files = options.recordings or sorted(path for path in OPEN.rglob("*") if path.suffix in SUFFIXES)
    seconds = sum(len(read_samples(path)) for path in files) / 16_000
    models = {name: load(options.model, files[0], int8=name == "int8") for name in ("float32", "int8")}
    if models["int8"].info.dtype != "int8":
        raise SystemExit(f"The encoder of {options.model} has no products in 8-bit integers.")
    whole = dict.fromkeys(models, float("inf"))
    texts: dict[str, list[str]] = {}
    for _ in range(options.rounds):
        for name, model in models.items():
            begun = time.process_time()
            results = transcribe_with(model, files, SearchOptions())
            whole[name] = min(whole[name], time.process_time() - begun)
            texts[name] = [result.transcript.text if result.transcript else "" for result in results]
    errors = total_errors(word_errors(*pair) for pair in zip(texts["float32"], texts["int8"], strict=True))
    for name in models:
        print(f"{name:<8} {whole[name]:7.2f} s  RTFx {seconds / whole[name]:6.1f}")
    print(f"ratio {whole['float32'] / whole['int8']:.2f}")
    if options.model not in RANDOM:
        print(f"{errors.edits} words of {errors.words} differ")


if __name__ == "__main__":
    main()
