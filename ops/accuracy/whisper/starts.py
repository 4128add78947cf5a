"""How far the times of a model's words are off, in a recording whose word times are known.

    python -m ops.accuracy.whisper.starts MODEL FOLDER/NAME.json [--span FIRST-LAST] [--beam N] [--worst N]

NAME.json, beside its recording, has `audio` (a file name) and `words` of `w`, `start` and `end` in seconds.
The recording is transcribed in Spool's own chunks, and words that both texts have are compared. --span takes
a part of the recording, --worst prints the words that are furthest off.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
import tempfile
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile

from ops.accuracy.whisper.oracle import RATE, read_recording
from spool.wer import normal_words
from worker.local.transcribe import transcribe_with
from worker.models.load import load_model
from worker.models.requests import SearchOptions

TimedWord = tuple[str, float, float]


def pair_words(known: Sequence[TimedWord], heard: Sequence[TimedWord]) -> list[tuple[TimedWord, TimedWord]]:
    """The words that both have in the same order, spelling without marks and capitals."""
    left, right = (["".join(normal_words(word)) for word, _, _ in row] for row in (known, heard))
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    return [
        (known[block.a + at], heard[block.b + at])
        for block in blocks
        for at in range(block.size)
        if left[block.a + at]
    ]


def read_words(path: Path, first: float, last: float) -> list[TimedWord]:
    """The known words that lie wholly between two seconds, from the first of them on."""
    rows = json.loads(path.read_text())["words"]
    return [
        (row["w"], row["start"] - first, row["end"] - first)
        for row in rows
        if row["start"] >= first and row["end"] <= last
    ]


def main() -> None:
    """Transcribe, compare and print."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.whisper.starts", description=__doc__)
    parser.add_argument("model", help="folder of the model")
    parser.add_argument("times", type=Path, help="the JSON with the words' times")
    parser.add_argument("--span", default="0-1e9", help="seconds of the recording, as 1.63-168.84")
    parser.add_argument("--beam", type=int, default=1, help="hypotheses; 1 is greedy")
    parser.add_argument("--worst", type=int, default=0, help="words to print")
    options = parser.parse_args()
    first, last = map(float, options.span.split("-"))
    name = json.loads(options.times.read_text())["audio"]
    known = read_words(options.times, first, last)
    whole = "@" + options.span if last < 1e9 else ""
    samples = read_recording(options.times.parent, name + whole)
    search = (
        SearchOptions(decoder="beam", beam=options.beam)
        if options.beam > 1
        else SearchOptions(decoder="greedy")
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recording.wav"
        soundfile.write(file, samples, RATE, subtype="FLOAT")
        transcript = transcribe_with(load_model(options.model), [file], search)[0].transcript
    if transcript is None:
        raise SystemExit(f"{name} could not be transcribed")
    pairs = pair_words(known, [(word.text, word.start, word.end) for word in transcript.words])
    print(f"{len(known)} words, {len(pairs)} of them heard")
    edges: dict[str, Callable[[TimedWord], float]] = {
        "starts": lambda word: word[1],
        "ends": lambda word: word[2],
    }
    for edge, at in edges.items():
        off = np.array([at(heard) - at(word) for word, heard in pairs])
        print(
            f"{edge:7s} off by {np.median(np.abs(off)):.3f} s in the median, 90 % within "
            f"{np.quantile(np.abs(off), 0.9):.3f} s, bias {np.median(off):+.3f} s"
        )
    pairs.sort(key=lambda pair: -abs(pair[1][1] - pair[0][1]))
    for word, heard in pairs[: options.worst]:
        print(f"{heard[1] - word[1]:+.2f} s  {word[0]:16s} {word[1]:7.2f} - {word[2]:.2f}  {heard}")


if __name__ == "__main__":
    main()
