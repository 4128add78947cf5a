"""Whether the encoder's memory stays flat over many batches of random lengths. Prints a line every so often.

    python -m ops.bench.memory.batches [--batches 500] [--frames 3000] [--as-on-a-gpu]

Random weights of the demo model's size over noise: batches of 1 to 16 utterances of 1 to 30 s, as many as fit
the budget of feature frames (padded). Prints how many shapes the encoder met, the memory that MLX holds, has
cached and peaked at, and the process's. `--as-on-a-gpu` takes the padded path with its buckets of lengths on
whatever device there is. Ends with an error where the process grew by a tenth after the first fifth.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx  # noqa: E402 - the BLAS is loaded before MLX

from kernels.runtime import device as encoder_module  # noqa: E402
from ops.bench.engine.random_model import SMALL, TINY, random_encoder  # noqa: E402

DEMO = replace(SMALL.encoder, n_layers=6, d_model=144, n_heads=4, subsampling_conv_channels=144)
GROWTH = 1.1


def resident_megabytes() -> float:
    """Of this process, now."""
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmRSS:"))
    return int(line.split()[1]) / 1024


def batches(count: int, budget: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Lengths in feature frames."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        lengths = rng.integers(100, 3000, rng.integers(1, 17))
        longest = min(int(lengths.max()), budget)
        yield np.minimum(lengths, longest)[: max(1, budget // longest)].astype(np.int32)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--batches", type=int, default=500)
    parser.add_argument("--frames", type=int, default=12_000, help="feature frames in a batch, padded")
    parser.add_argument("--as-on-a-gpu", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a model of no use, to try the script")
    chosen = parser.parse_args(arguments)
    config = TINY.encoder if chosen.tiny else DEMO
    encoder = random_encoder(config)
    if chosen.as_on_a_gpu:
        encoder_module.on_gpu = lambda: True
    given, made, sizes = set(), set(), []
    every = max(1, chosen.batches // 10)
    for number, lengths in enumerate(batches(chosen.batches, chosen.frames), 1):
        features = mx.random.normal((len(lengths), int(lengths.max()), config.feat_in))
        frames, _ = encoder(features, lengths)
        mx.eval(frames)
        given.add(features.shape[1])
        made.add(frames.shape[1])
        if number % every == 0:
            sizes.append(resident_megabytes())
            held, cached, peak = (
                size() / 1e6 for size in (mx.get_active_memory, mx.get_cache_memory, mx.get_peak_memory)
            )
            print(
                f"{number:5} batches, {len(given)} lengths in, {len(made)} out; MLX holds {held:.0f} MB, "
                f"cached {cached:.0f}, peak {peak:.0f}; process {sizes[-1]:.0f} MB",
                flush=True,
            )
    early, late = max(sizes[: max(1, len(sizes) // 5)]), max(sizes)
    print(f"process: {early:.0f} MB at most in the first fifth, {late:.0f} MB at most in all")
    sys.exit(1 if late > GROWTH * early else 0)


if __name__ == "__main__":
    main()
