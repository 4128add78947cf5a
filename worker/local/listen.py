"""A process that transcribes recordings with one model and prints their words as JSON.

    python -m worker.local.listen MODEL DTYPE|default cpu|default FILE…

On the CPU in float32 it gives the reference. It is a separate process because a process cannot change its
device later. Prints one line of JSON per recording as soon as it is done, and one with the model's facts. A
CPU takes the recordings one by one, since each may take minutes there in 16 bits; a GPU takes them together.
"""

from spool.domain.spacing import join_words
from worker.machine.blas import preload_blas

preload_blas()

import json  # noqa: E402 - the BLAS is loaded before MLX
import resource  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import mlx.core as mx  # noqa: E402

from spool.domain.fleet.quality import INT8  # noqa: E402
from spool.settings import load_settings  # noqa: E402
from worker.local.report import FileResult  # noqa: E402
from worker.local.transcribe import transcribe_with  # noqa: E402
from worker.models.attention.layers import is_cpu  # noqa: E402
from worker.models.base import SpeechModel  # noqa: E402
from worker.models.load import load_model  # noqa: E402
from worker.models.requests import SearchOptions  # noqa: E402

ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


def read_joules() -> float | None:
    """The processor's energy counter; None if the machine does not report it."""
    try:
        return int(ENERGY.read_text()) / 1e6
    except (OSError, ValueError):
        return None


def load_as(model: str, dtype: str) -> SpeechModel:
    """The model in a dtype; `default`: as a worker uses it that has measured it."""
    if dtype in ("default", INT8):
        return load_model(model, int8=dtype == INT8 or load_settings().compute_type != "float32")
    return load_model(model, getattr(mx, dtype))


def main(arguments: list[str]) -> None:
    """Prints {"file", "words", "audio", "seconds"} for each, then {"seconds", "processor_seconds", "joules",
    "dtype", "device", "bits", "weight_bytes", "peak_bytes"}; `seconds` of a GPU's recordings are those of all
    together, `peak_bytes` is the most memory that this process had."""
    model, dtype, device, *names = arguments
    if device == "cpu":
        mx.set_default_device(mx.Device(mx.cpu))
    loaded = load_as(model, dtype)
    info, energy = loaded.info, read_joules()
    seconds, processor = 0.0, time.process_time()
    for group in [[name] for name in names] if is_cpu() else [names]:
        begun = time.perf_counter()
        results = transcribe_with(loaded, [Path(name) for name in group], SearchOptions())
        taken = time.perf_counter() - begun
        seconds += taken
        for name, result in zip(group, results, strict=True):
            _print(file=name, seconds=taken, **_summarize(result))
    after = read_joules()
    used = None if energy is None or after is None or after < energy else after - energy
    unit = 1 if sys.platform == "darwin" else 1024
    _print(
        seconds=seconds,
        processor_seconds=time.process_time() - processor,
        joules=used,
        dtype=info.dtype,
        device=info.device,
        bits=info.bits,
        weight_bytes=info.size,
        peak_bytes=unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
    )


def _summarize(result: FileResult) -> dict[str, str | float]:
    if result.transcript is None:
        return {"words": "", "audio": 0.0}
    words = join_words(word.text for word in result.transcript.words)
    return {"words": words, "audio": result.transcript.audio.duration}


def _print(**facts: str | float | bool | None) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
