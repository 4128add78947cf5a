"""What it is worth to compute the spectra of waiting utterances while the device runs others (CPU only).

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 SPOOL_KERNEL_THREADS=1 python -m ops.bench.engine.ahead

Two engines as in production, alike but for that thread, take turns over the same utterances of noise. Prints
for each round the audio a second of wall time, the share of the time in which the device ran nothing, and the
device's milliseconds a second of audio as the engine bills them. On a machine without a free core nothing can
be gained. `--processor` runs one batch in this process instead and prints the processor time of the device's
thread with the spectra in their turn and made before, the least of the rounds.
"""

import argparse
import os
import time

import numpy as np
from numpy.typing import NDArray

from ops.testbed.processes import ROOT
from worker.decode.types import DecodeRequest, SearchOptions
from worker.engine.client import Engine
from worker.engine.protocol import DEFAULT_LOADER, SAMPLE_RATE, EngineOptions, Recognizer

Samples = NDArray[np.float32]


def load_without(model: str) -> Recognizer:
    """The model's recognizer without its front."""
    from worker.engine.recognizer import ModelRecognizer
    from worker.models.load import load_model

    class Plain(ModelRecognizer):
        front = None

    return Plain(load_model(model))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(ROOT / "models" / "demo"))
    parser.add_argument("--utterances", type=int, default=48)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processor", action="store_true")
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    audio = (0.1 * random.standard_normal(round(arguments.seconds * SAMPLE_RATE))).astype(np.float32)
    if arguments.processor:
        _processor_time(arguments.model, [audio] * 16, arguments.rounds)
        return
    loaders = {"in its turn": "ops.bench.engine.ahead:load_without", "ahead": DEFAULT_LOADER}
    engines = {how: Engine(EngineOptions(loader=loader)).start() for how, loader in loaders.items()}
    print("| spectra | audio a second | device idle | device ms a second | load |\n|---|---|---|---|---|")
    try:
        for engine in engines.values():
            _run(engine, arguments.model, audio, 8)  # loads, and learns the pace
        for _ in range(arguments.rounds):
            for how, engine in engines.items():
                wall, busy = _run(engine, arguments.model, audio, arguments.utterances)
                seconds = arguments.utterances * arguments.seconds
                columns = f"{seconds / wall:.0f} | {1 - busy / wall:.1%} | {1000 * busy / seconds:.1f}"
                print(f"| {how} | {columns} | {os.getloadavg()[0]:.1f} |", flush=True)
    finally:
        for engine in engines.values():
            engine.close()


def _run(engine: Engine, model: str, audio: Samples, number: int) -> tuple[float, float]:
    """Seconds for so many utterances, and those of them in which the device was busy."""
    busy, began = engine.busy_ns, time.perf_counter()
    futures = [engine.submit(f"job-{n % 8}", audio, model, SearchOptions()) for n in range(number)]
    for future in futures:
        future.result()
    return time.perf_counter() - began, (engine.busy_ns - busy) / 1e9


def _processor_time(path: str, audio: list[Samples], rounds: int) -> None:
    from worker.machine.blas import preload_blas

    preload_blas()  # before MLX
    from worker.decode.utterances import decode_utterances
    from worker.models.base import ModelWithFront
    from worker.models.load import load_model

    model, asks = load_model(path), [DecodeRequest()] * len(audio)
    least: dict[str, float] = {}
    front = model.front if isinstance(model, ModelWithFront) else None
    assert front is not None, "the device computes the spectra"
    for _ in range(rounds):
        began = time.process_time()
        made = [front(each) for each in audio]
        times = {"spectra": time.process_time() - began}
        for how, ahead in (("in its turn", None), ("ahead", made)):
            began = time.process_time()
            decode_utterances(model, audio, SearchOptions(), asks, ahead)
            times[how] = time.process_time() - began
        least = {how: min(seconds, least.get(how, seconds)) for how, seconds in times.items()}
    seconds = sum(map(len, audio)) / SAMPLE_RATE
    print(f"{seconds:.0f} s of audio: " + ", ".join(f"{how} {1000 * s:.0f} ms" for how, s in least.items()))


if __name__ == "__main__":
    main()
