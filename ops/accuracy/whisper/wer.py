"""Word error rates of a Whisper in Spool's own chunks and engine, by domain and in total.

    pip install whisper-normalizer
    python -m ops.accuracy.whisper.wer MODEL MANIFEST --speech FOLDER [--beam N] [--language en] …

A line of the manifest is JSON: `recording` (`a.flac` or `a.flac@12.5-40.25` in seconds, 16 kHz mono, within
FOLDER), `text` and `domain`. Words are compared as Whisper's English normaliser writes them, each digit a
word. The normaliser is not a dependency of the project.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
import re
import resource
import tempfile
from collections import defaultdict
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile

from ops.accuracy.whisper.oracle import RATE, read_recording
from worker.local.transcribe import transcribe_with
from worker.models.load import load_model
from worker.models.requests import DecodeRequest, SearchOptions

try:
    from whisper_normalizer.english import EnglishTextNormalizer
except ImportError as error:
    raise SystemExit("The package whisper-normalizer is missing: pip install whisper-normalizer") from error


def edits(reference: list[str], hypothesis: list[str]) -> tuple[int, int, int]:
    """All errors, the deletions and the insertions among them, of a best alignment."""
    row = [(count, 0, count) for count in range(len(hypothesis) + 1)]
    for index, expected in enumerate(reference, start=1):
        above, row = row, [(index, index, 0)]
        for position, word in enumerate(hypothesis, start=1):
            substituted, deleted, inserted = above[position - 1], above[position], row[-1]
            row.append(
                min(
                    (substituted[0] + (expected != word), *substituted[1:]),
                    (deleted[0] + 1, deleted[1] + 1, deleted[2]),
                    (inserted[0] + 1, inserted[1], inserted[2] + 1),
                )
            )
    return row[-1]


def main() -> None:
    """Transcribe every recording of the manifest and print the rates."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.wer", description=__doc__)
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--speech", type=Path, required=True, help="folder of the recordings")
    parser.add_argument("--beam", type=int, default=1, help="hypotheses; 1 is greedy")
    parser.add_argument("--language", help="of all recordings; detected in each chunk unless given")
    parser.add_argument("--no-detector", action="store_true", help="leave the speech detector out")
    parser.add_argument("--each", action="store_true", help="print every recording that has errors")
    options = parser.parse_args()
    search = (
        SearchOptions(decoder="beam", beam=options.beam)
        if options.beam > 1
        else SearchOptions(decoder="greedy")
    )
    ask = DecodeRequest(language=options.language)
    lines = [json.loads(line) for line in options.manifest.read_text().splitlines() if line.strip()]
    model, normalise = load_model(options.model), EnglishTextNormalizer()
    with tempfile.TemporaryDirectory() as folder:
        files, seconds = [], 0.0
        for index, line in enumerate(lines):
            samples = read_recording(options.speech, line["recording"])
            seconds += len(samples) / RATE
            files.append(Path(folder) / f"{index}.wav")
            soundfile.write(files[-1], samples, RATE, subtype="FLOAT")
        before = resource.getrusage(resource.RUSAGE_SELF)
        results = transcribe_with(model, files, search, ask=ask, detector=not options.no_detector)
        after = resource.getrusage(resource.RUSAGE_SELF)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    totals: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(4, int))
    for line, result in zip(lines, results, strict=True):
        if result.error is not None or result.transcript is None:
            raise SystemExit(f"{line['recording']}: {result.error}")
        reference, hypothesis = (
            re.sub(r"(\d)", r" \1 ", normalise(text)).split()
            for text in (line["text"], result.transcript.text)
        )
        row = np.array([len(reference), *edits(reference, hypothesis)])
        totals[line["domain"]] += row
        totals["all"] += row
        if options.each and row[1]:
            print(f"{row[1]}/{row[0]} {line['recording']}")
            print(f"  - {' '.join(reference)}\n  + {' '.join(hypothesis)}")
    for domain, (words, errors, deleted, inserted) in totals.items():
        rates = [100 * count / words for count in (errors, deleted, inserted)]
        print(f"{domain:12s} {words:6d} words: WER %.2f %% (deleted %.2f, inserted %.2f)" % tuple(rates))
    print(f"{seconds:.0f} s of audio, {seconds / busy:.1f} times real time by CPU seconds")


if __name__ == "__main__":
    main()
