"""What the speech detector and the voice encoder could do on this core, and what they do.

    OPENBLAS_NUM_THREADS=1 python -m ops.bench.speakers.roofline [--rounds 5] [--windows 75]

All by processor time of one thread, medians of rounds in turn: float32 products of the encoder's own shapes
alone (the roofline: an encoder that did nothing else could not be faster), the encoder, the tanh of its gates
alone, and the detector. From the operations that a second of speech takes follows how many times real time
each can be, by the seconds from window to window.
"""

import argparse
import statistics
import time
from collections.abc import Callable

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np  # noqa: E402 - the BLAS is loaded before it

from worker.audio.resample import SAMPLE_RATE  # noqa: E402
from worker.diarization.encoder import HOP, MELS, SIZE, VoiceEncoder  # noqa: E402
from worker.speech.detector import SpeechDetector  # noqa: E402

FRAMES = 160
LAYERS = 3
HOPS = (0.4, 0.8, 1.6)
"""Seconds from window to window: the default, half as many windows, windows that do not overlap."""


def window_operations() -> int:
    """Floating-point operations in the products of one window of 1.6 s."""
    inputs = MELS + (LAYERS - 1) * SIZE
    return FRAMES * 2 * 4 * SIZE * (inputs + LAYERS * SIZE)


def seconds_of(work: Callable[[], object]) -> float:
    """Processor seconds of this thread."""
    begun = time.thread_time()
    work()
    return time.thread_time() - begun


def products(windows: int) -> Callable[[], None]:
    """The products of `windows` windows and nothing else: two a layer and frame, as the encoder has them."""
    rng = np.random.default_rng(1)
    weights = rng.standard_normal((4 * SIZE, SIZE)).astype(np.float32)
    first = rng.standard_normal((4 * SIZE, MELS)).astype(np.float32)
    rows = rng.standard_normal((SIZE, windows)).astype(np.float32)
    mels = rng.standard_normal((MELS, windows)).astype(np.float32)
    out = np.empty((4 * SIZE, windows), np.float32)

    def work() -> None:
        for _ in range(FRAMES):
            np.matmul(first, mels, out=out)
            for _ in range(2 * LAYERS - 1):
                np.matmul(weights, rows, out=out)

    return work


def squashing(windows: int) -> Callable[[], None]:
    """The encoder's hyperbolic tangents and nothing else."""
    gates = np.random.default_rng(2).standard_normal((5 * SIZE, windows)).astype(np.float32)
    out = np.empty_like(gates)

    def work() -> None:
        for _ in range(FRAMES * LAYERS):
            np.tanh(gates, out=out)

    return work


def large_product() -> Callable[[], object]:
    """A square product of 2 * 1024 ** 3 operations: what this core can do at best."""
    side = np.random.default_rng(3).standard_normal((1024, 1024)).astype(np.float32)
    return lambda: side @ side


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--windows", type=int, default=75, help="encoded together; 75 are half a minute's")
    chosen = parser.parse_args()
    rng = np.random.default_rng(4)
    encoder, detector = VoiceEncoder.load(), SpeechDetector.load()
    windows = [np.abs(rng.standard_normal((FRAMES, MELS))).astype(np.float32) for _ in range(chosen.windows)]
    sound = (0.1 * rng.standard_normal(30 * SAMPLE_RATE)).astype(np.float32)
    works: dict[str, Callable[[], object]] = {
        "a large product": large_product(),
        "the encoder's products alone": products(chosen.windows),
        "its tanh alone": squashing(chosen.windows),
        "the encoder": lambda: encoder.encode(windows),
        "the detector, 30 s": lambda: detector.follow([sound]),
    }
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(chosen.rounds + 1):
        for name, work in works.items():
            taken[name].append(seconds_of(work))
    median = {name: statistics.median(times[1:]) for name, times in taken.items()}
    for name, seconds in median.items():
        print(f"{name}: {seconds * 1e3:.1f} ms")
    operations = window_operations()
    peak = 2 * 1024**3 / median["a large product"]
    print(f"a large product: {peak / 1e9:.0f} thousand million operations a second")
    print(f"a window: {operations / 1e6:.0f} million operations, {FRAMES * HOP / SAMPLE_RATE:.1f} s")
    detecting = median["the detector, 30 s"] / 30
    print(f"the detector: {1 / detecting:.0f} times real time")
    for hop in HOPS:
        at_best = operations / hop / peak
        alone, whole = (
            median[name] / chosen.windows / hop for name in ("the encoder's products alone", "the encoder")
        )
        print(
            f"a window every {hop} s of speech: the encoder at the core's best {1 / at_best:.0f} times real "
            f"time, its products alone {1 / alone:.0f}, as it is {1 / whole:.0f}; "
            f"with the detector {1 / (at_best + detecting):.0f}, {1 / (alone + detecting):.0f}, "
            f"{1 / (whole + detecting):.0f}"
        )


if __name__ == "__main__":
    main()
