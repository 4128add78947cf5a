"""Memory, words and speed of models with their weights as published, in 8 bits and in 4.

    python -m ops.accuracy.whisper.bits whisper-tiny.en whisper-base [--recordings 8]

Over the recordings of samples/open. The first row of a model is float32, the reference of the others; models
are fetched and quantised where they are missing (`spool models get NAME --bits 8`). Each runs in a process of
its own, one recording at a time.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

from spool.catalogue import open_store
from spool.settings import load_settings
from worker.diagnostics.confirm.quality import compare_words, listen, listen_reference, spoken_words, spread

Heard = dict[str, Any]
TITLES = ("Model", "Weights", "On disk", "In memory here", "Peak", "WER", "No worse", "Speed")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.bits", description=__doc__)
    parser.add_argument("models", nargs="+", help="names of the catalogue")
    parser.add_argument("--recordings", type=int, default=0, help="only this many, spread over the set")
    options = parser.parse_args()
    store, known = open_store(load_settings()), spoken_words()
    spoken = spread(known, options.recordings or len(known))
    print(f"| {' | '.join(TITLES)} |\n|{'---|' * len(TITLES)}", flush=True)
    for model in options.models:
        stored = store.get(model)
        reference = listen_reference(model, spoken, _progress)
        _print(model, "float32", stored, spoken, reference, reference)
        for bits in (8, 4):
            path = store.get(f"{model}-{bits}bit")
            heard = listen(f"{model}-{bits}bit", "default", "default", spoken, _progress)
            _print("", f"{bits} bits", path, spoken, heard, reference)


def _print(
    model: str, weights: str, path: Path, spoken: dict[str, str], heard: Heard, reference: Heard
) -> None:
    no_worse, errors, _, _ = compare_words(spoken, heard["words"], reference["words"])
    files = [path] if path.is_file() else [each for each in path.iterdir() if each.suffix in _WEIGHTS]
    row = (
        f"`{model}`" if model else "",
        weights,
        f"{sum(file.stat().st_size for file in files) / 1e6:.1f} MB",
        f"{heard['weight_bytes'] / 1e6:.1f} MB",
        f"{heard['peak_bytes'] / 1e6:,.0f} MB",
        f"{100 * errors.rate:.1f} %",
        f"{no_worse} of {len(spoken)}",
        f"{heard['processor_seconds'] / heard['audio']:.3f} s",
    )
    print(f"| {' | '.join(row)} |", flush=True)


_WEIGHTS = (".safetensors", ".npz", ".bin", ".pt")


def _progress(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
