"""Memory and speed of telling speakers apart in long recordings, one process each.

    OPENBLAS_NUM_THREADS=1 python -m ops.bench.speakers.hour [--minutes 10 60] [--model SORTFORMER.nemo]

The recording is the clips of `samples/open` over and over, made while it is read, so that all memory is the
diarizer's. Prints the speakers heard, the real-time factor by processor time (reading the clips included),
and the process's memory after loading and at its peak. `--model` takes a Sortformer in place of the default
diarizer. Ends with an error where the longest recording takes more than `--growth` MB more than the shortest:
30 MB an hour by default, for what is kept of each window or frame.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from worker.machine.blas import preload_blas

preload_blas()

from worker.audio import SAMPLE_RATE, open_audio  # noqa: E402 - the BLAS is loaded before MLX
from worker.diarization.base import SpeakerBounds, run_here  # noqa: E402
from worker.diarization.registry import DEFAULT, load_diarization, load_network  # noqa: E402

CLIPS = Path(__file__).resolve().parents[3] / "samples" / "open"
MEGABYTE = 1 << 20


def peak_megabytes() -> float:
    """Of this process so far."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def recording(seconds: float) -> Iterator[NDArray[np.float32]]:
    """Blocks of the clips, one after another, until so much is over."""
    left = round(seconds * SAMPLE_RATE)
    clips = sorted(path for path in CLIPS.rglob("*") if path.suffix in (".flac", ".wav", ".ogg", ".mp3"))
    while left:
        for clip in clips:
            with open_audio(clip) as audio:
                for block in audio.blocks():
                    yield block[:left, 0]
                    left -= len(block[:left])
                    if not left:
                        return


def measure(minutes: float, name: str) -> dict[str, float]:
    """One recording in this process."""
    model = load_diarization(name)
    run = run_here(load_network(model.path))
    model.diarize(lambda: recording(40), run, SpeakerBounds())
    loaded, begun = peak_megabytes(), time.process_time()
    result = model.diarize(lambda: recording(minutes * 60), run, SpeakerBounds())
    spent = time.process_time() - begun
    return {
        "minutes": minutes,
        "speakers": result.speakers,
        "rtfx": minutes * 60 / spent,
        "loaded": loaded,
        "peak": peak_megabytes(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, nargs="+", default=[10, 60])
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--growth", type=float, default=30.0, help="MB an hour")
    parser.add_argument("--child", action="store_true")
    chosen = parser.parse_args()
    if chosen.child:
        print(json.dumps(measure(chosen.minutes[0], chosen.model)))
        return
    peaks = {}
    for minutes in sorted(chosen.minutes):
        words = ["--child", "--minutes", str(minutes), "--model", chosen.model]
        child = subprocess.run(
            [sys.executable, "-m", __spec__.name, *words], stdout=subprocess.PIPE, check=True
        )
        row = json.loads(child.stdout)
        peaks[minutes] = row["peak"]
        print(
            f"{minutes:g} min: {row['speakers']} speakers, {row['rtfx']:.0f} x real time, "
            f"{row['loaded']:.0f} MB after loading, {row['peak']:.0f} MB at the peak",
            flush=True,
        )
    hours = (max(peaks) - min(peaks)) / 60
    grown = peaks[max(peaks)] - peaks[min(peaks)]
    sys.exit(1 if grown > chosen.growth * max(hours, 1) else 0)


if __name__ == "__main__":
    main()
