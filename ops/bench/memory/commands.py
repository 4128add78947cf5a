"""The most memory that a whole command takes, by the length of a recording.

    python -m ops.bench.memory.commands [--models models/demo whisper-tiny.en granite …] [--minutes 5 40]

`spool-worker transcribe` with its defaults and one thread, a process for each model and length, over all
speech of `samples/open` repeated to that length. A model is a folder, a name of the catalogue, or one of
`LAYERS`: random weights of the published size, made with transformers (2 to 8 GB each at the first run).
Resident memory is the most that the system counted for the process. Needs no quiet machine.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

from ops.bench.peers.compare import CACHE
from ops.bench.peers.environment import peer_python
from ops.bench.peers.hub.compare import FAMILIES, make_model
from ops.bench.peers.speech import read_speech
from worker.audio import SAMPLE_RATE
from worker.machine.huge_pages import with_huge_pages

ROOT = Path(__file__).parents[3]
SPEECH = ROOT / "samples" / "open"
WORKER = Path(sys.executable).parent / "spool-worker"
LAYERS = {name: family.layers for name, family in FAMILIES.items()} | {"canary": 32, "parakeet": 24}
"""Of the published encoders."""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "SPOOL_KERNEL_THREADS")


def most_memory(model: str, recording: Path) -> int:
    """Bytes that transcribing a recording took at most. Raises SystemExit if it fails."""
    environment = with_huge_pages(os.environ | dict.fromkeys(THREADS, "1"))
    command = [str(WORKER), "transcribe", "--model", model, str(recording)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", default=["models/demo", "whisper-tiny.en"])
    parser.add_argument("--minutes", nargs="+", type=float, default=[5.0, 40.0])
    chosen = parser.parse_args(arguments)
    sound = np.concatenate(read_speech([SPEECH], max(chosen.minutes) * 60))
    with tempfile.TemporaryDirectory(prefix="spool-memory-") as folder:
        print(f"{'MB resident at most':24}", *(f"{minutes:6g} min" for minutes in chosen.minutes))
        for model in chosen.models:
            place, cells = model, []
            if model in LAYERS:
                python = peer_python("transformers", CACHE)
                place = str(make_model(python, model, LAYERS[model], CACHE))
            for minutes in chosen.minutes:
                path = Path(folder) / f"{minutes:g}.flac"
                if not path.exists():
                    soundfile.write(path, np.resize(sound, round(minutes * 60 * SAMPLE_RATE)), SAMPLE_RATE)
                cells.append(f"{most_memory(place, path) / 1e6:10.0f}")
            print(f"{model:24}", *cells, flush=True)


if __name__ == "__main__":
    main()
