"""The kernels on an NVIDIA GPU, through MLX's CUDA backend, at the size of parakeet-tdt-0.6b in bfloat16.

    python -m ops.bench.engine.cuda_rtfx [--seconds 30] [--batches 1 4 16 64 256] [--rounds 5]

Makes an environment with MLX's CUDA wheel in a cache folder (glibc 2.35 or newer, a driver for CUDA 13), then
measures there, once with the kernels of `kernels/` (SPOOL_KERNELS=cuda) and once with their plain-MLX
references. For each batch: real-time factor (audio over wall seconds, everything computed) of encoder,
greedy, beam 4 and beam 8, and of encoder and beam 8 together; the encoder's share of the rate of a large
bfloat16 matrix product in the same run, by the operations that `flops.py` counts; the peak of memory. Before
that, how far kernels and references are apart. Weights are random, the audio is noise, and the head emits
0.3 tokens a frame. With an empty cache the first row comes after some two minutes: MLX compiles what it fuses
for 3 to 5 s each, and keeps it (MLX_PTX_CACHE_DIR), and our kernels for a second each, in every process.
"""

import argparse
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "spool" / "cuda"
# What the model and the searches import; the wheel brings cuBLAS, cuDNN, cuFFT and NVRTC.
PACKAGES = ["mlx[cuda13]==0.32.4", "numpy>=2", "pyyaml", "sentencepiece", "lazy_loader", "pydantic>=2.12"]
BATCHES = [1, 2, 4, 8, 16, 32, 64, 128, 256]
SEARCHES: dict[str, int | None] = {"greedy": None, "beam 4": 4, "beam 8": 8}


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each utterance")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument(
        "--python", type=Path, help="an interpreter with MLX for CUDA, instead of one made here"
    )
    parser.add_argument("--here", action="store_true", help="measure in this process, on its default device")
    parser.add_argument("--tiny", action="store_true", help="a model of no use, to try the script")
    return parser.parse_args(arguments)


def cuda_python(cache: Path) -> Path:
    """The interpreter of the environment with MLX for CUDA, made where it is missing or unfinished."""
    python, finished = cache / "bin" / "python", cache / "finished"
    if not finished.is_file():
        print(f"making an environment with MLX for CUDA in {cache}", file=sys.stderr, flush=True)
        venv.create(cache, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        finished.touch()
    return python


def fastest(rounds: int, call: Callable[[], object]) -> float:
    """Least wall seconds, after one call that compiles."""
    call()
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)


class GpuBench:
    """One backend on the default device."""

    def __init__(self, tiny: bool, rounds: int) -> None:
        import mlx.core as mx

        from kernels.runtime.device import dtype_name, kernel_status
        from ops.bench.engine.random_model import LARGE, TINY, random_encoder, random_head

        self.size, self.rounds = TINY if tiny else LARGE, rounds
        self.dtype = mx.float32 if tiny else mx.bfloat16  # a CPU has no 16-bit products to speak of
        side = 256 if tiny else 8192
        a = mx.random.normal((side, side)).astype(self.dtype)
        self.rate = 2 * side**3 / fastest(rounds, lambda: mx.eval(a @ a))
        print(*kernel_status(), f"{mx.default_device()}, MLX {version('mlx')}", sep="; ")
        print(f"product of {dtype_name(self.dtype)}, {side} square: {self.rate / 1e12:.2f} TFLOP/s")
        self.encoder = random_encoder(self.size.encoder, self.dtype)
        self.head = random_head(self.size, dtype=self.dtype)

    def agreement(self, seconds: float) -> str:
        """Kernels against references, over the same weights, in float32: in bfloat16 a layer's share of a
        random encoder's residual is lost in rounding, and so is what differs."""
        import mlx.core as mx

        from kernels.runtime.device import use_backend
        from ops.bench.engine.random_model import random_encoder, random_features

        encoder = random_encoder(self.size.encoder)
        features, lengths = random_features(2, seconds, self.size.encoder.feat_in)
        found, _ = encoder(features, lengths)
        with use_backend("reference"):
            wanted, _ = encoder(features, lengths)
            mx.eval(wanted)
        frames = min(found.shape[1], wanted.shape[1])
        gap = mx.abs(found[:, :frames] - wanted[:, :frames]).max()
        share = float(gap / mx.abs(wanted).max())
        return f"float32 encoder frames, kernels against references: {share:.1e} of the largest"

    def row(self, batch: int, seconds: float) -> str:
        """Real-time factors of one batch."""
        import mlx.core as mx

        from ops.bench.engine.flops import needed
        from ops.bench.engine.random_model import Frames, random_features
        from worker.decode.search import search
        from worker.models.requests import SearchOptions

        features, lengths = random_features(batch, seconds, self.size.encoder.feat_in, self.dtype)
        mx.clear_cache()
        mx.reset_peak_memory()
        encoder = fastest(self.rounds, lambda: mx.eval(self.encoder(features, lengths)[0]))
        frames = Frames(*self.encoder(features, lengths))
        taken = {}
        for name, beam in SEARCHES.items():
            options = SearchOptions() if beam is None else SearchOptions(decoder="beam", beam=beam)
            taken[name] = fastest(self.rounds, lambda options=options: search(self.head, frames, options))  # type: ignore[misc, arg-type]
        audio = batch * seconds
        work = sum(needed(self.size.encoder, int(length)).total for length in lengths)
        cells = "".join(
            f"{audio / each:10.0f}" for each in (encoder, *taken.values(), encoder + taken["beam 8"])
        )
        share = work / encoder / self.rate
        return f"{batch:5}{cells}{share:10.2f}{mx.get_peak_memory() / 2**30:10.1f}"


def measure(chosen: argparse.Namespace) -> None:
    """The table of one backend, on this process's device."""
    from worker.machine.blas import preload_blas

    preload_blas()
    bench = GpuBench(chosen.tiny, chosen.rounds)
    print(bench.agreement(chosen.seconds))
    names = ["encoder", *SEARCHES, "with beam 8"]
    print(
        f"{'batch':5}"
        + "".join(f"{name:>{10 + (name == 'with beam 8')}}" for name in names)
        + "     share       GiB"
    )
    for batch in chosen.batches:
        try:
            print(bench.row(batch, chosen.seconds), flush=True)
        except RuntimeError as error:  # what MLX raises where memory ends
            print(f"{batch:5} {' '.join(str(error).split())[:100]}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    if chosen.here:
        measure(chosen)
        return
    python = chosen.python or cuda_python(chosen.cache)
    for backend in ("cuda", "reference"):
        print(f"\nSPOOL_KERNELS={backend}", flush=True)
        command = [str(python), "-m", "ops.bench.engine.cuda_rtfx", "--here", *sys.argv[1:]]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"SPOOL_KERNELS": backend}, check=True)


if __name__ == "__main__":
    main()
