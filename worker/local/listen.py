"""A process that hears a list of recordings with one model and prints their words as JSON.

    python -m worker.local.listen MODEL DTYPE|default cpu|default FILE…

On the CPU in float32 it gives the reference. A process of its own, since a device cannot be changed later.
"""

from worker.machine.blas import preload_blas

preload_blas()

import json  # noqa: E402 - the BLAS is loaded before MLX
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import mlx.core as mx  # noqa: E402

from worker.decode.types import SearchOptions  # noqa: E402
from worker.local.transcribe import transcribe_with  # noqa: E402
from worker.models.load import load_model  # noqa: E402

ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


def read_joules() -> float | None:
    """What the processor has used so far; None where the machine does not tell."""
    try:
        return int(ENERGY.read_text()) / 1e6
    except (OSError, ValueError):
        return None


def main(arguments: list[str]) -> None:
    """Prints {"words", "audio", "seconds", "joules", "dtype", "device", "quantised"}."""
    model, dtype, device, *names = arguments
    if device == "cpu":
        mx.set_default_device(mx.Device(mx.cpu))
    loaded = load_model(model, None if dtype == "default" else getattr(mx, dtype))
    files = [Path(name) for name in names]
    begun, energy = time.perf_counter(), read_joules()
    results = transcribe_with(loaded, files, SearchOptions())
    seconds, after = time.perf_counter() - begun, read_joules()
    transcripts = [result.transcript for result in results]
    audio = sum(each.audio.duration for each in transcripts if each is not None)
    used = None if energy is None or after is None or after < energy else after - energy
    words = {
        name: " ".join(word.text for word in each.words) if each is not None else ""
        for name, each in zip(names, transcripts, strict=True)
    }
    info = loaded.info
    described = {"dtype": info.dtype, "device": info.device, "quantised": info.quantised}
    answer = {"words": words, "audio": audio, "seconds": seconds, "joules": used}
    sys.stdout.write(json.dumps(answer | described) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
