"""How near the encoder comes to what its machine can do. Run by hand; prints a table.

    python -m ops.bench.engine.limits [--threads 1] [--rounds 5] [--batches 1x20 8x20 32x10]

Before each encoding, in the same minute, the machine is asked for its own limits: the rate of a large matrix
product (float32 on a CPU: MLX over the same BLAS as the encoder's products) and of a copy (bytes read and
written). The encoder's rate is the operations it needs (`flops.py` says which count) over its processor
seconds; its share of the product's rate is what is compared across machines. Weights are random, of the size
of parakeet-tdt_ctc-110m.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--batches", nargs="+", default=["1x20", "8x10", "8x20", "8x30", "32x10"], help="NxSECONDS"
    )
    parser.add_argument("--tiny", action="store_true", help="a model of no use, to try the script")
    return parser.parse_args(arguments)


def fastest(rounds: int, call: Callable[[], object]) -> tuple[float, float]:
    """Least processor and wall seconds."""
    taken = []
    for _ in range(rounds):
        begun = time.process_time(), time.perf_counter()
        call()
        taken.append((time.process_time() - begun[0], time.perf_counter() - begun[1]))
    return min(cpu for cpu, _ in taken), min(wall for _, wall in taken)


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = parse(arguments)
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS"):
        os.environ[name] = str(chosen.threads)
    # Threads are counted and the BLAS is found before MLX is loaded.
    from worker.machine.blas import preload_blas

    print(preload_blas())
    import mlx.core as mx
    import numpy as np

    from ops.bench.engine.flops import needed
    from ops.bench.engine.random_model import SMALL, TINY, random_encoder, random_features

    size = TINY if chosen.tiny else SMALL
    side = 256 if chosen.tiny else 2048
    a, b = mx.random.normal((side, side)), mx.random.normal((side, side))
    source = np.ones(side * side * 16, np.float32)  # 256 MB: far beyond any cache
    target = np.zeros_like(source)
    mx.eval(a, b)
    encoder = random_encoder(size.encoder)
    print(f"{'batch':8}{'needs':>10}{'product':>20}{'copy':>12}{'encoder':>22}{'share':>8}{'of wall':>9}")
    print(f"{'':8}{'GFLOP':>10}{'GFLOP / cpu s':>20}{'GB / s':>12}{'cpu s  GFLOP / cpu s':>22}")
    for text in chosen.batches:
        batch, _, seconds = text.partition("x")
        features, lengths = random_features(int(batch), float(seconds), size.encoder.feat_in)
        work = sum(needed(size.encoder, int(length)).total for length in lengths)
        mx.eval(encoder(features, lengths)[0])
        products, copies, encodings = [], [], []
        for _ in range(chosen.rounds):
            products.append(fastest(3, lambda: mx.eval(a @ b)))
            copies.append(fastest(3, lambda: np.copyto(target, source)))
            encodings.append(fastest(1, lambda: mx.eval(encoder(features, lengths)[0])))  # noqa: B023 - called here
        product, copy, encoding = (
            tuple(map(min, zip(*each, strict=True))) for each in (products, copies, encodings)
        )
        rates = [2 * side**3 / seconds / 1e9 for seconds in product]
        found = [work / seconds / 1e9 for seconds in encoding]
        moved = 2 * source.nbytes / copy[1] / 1e9
        print(
            f"{text:8}{work / 1e9:10.1f}{rates[0]:20.1f}{moved:12.1f}{encoding[0]:12.2f}{found[0]:10.1f}"
            f"{found[0] / rates[0]:8.2f}{found[1] / rates[1]:9.2f}",
            flush=True,
        )
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
