"""How well the default diarizer tells speakers apart, and how fast: the figures of docs/speakers.md.

    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.diarization.speakers SPEECH [--noise -46]
    OPENBLAS_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.diarization.speakers --words models/demo

SPEECH is the folder with `manifest.jsonl`. Prints a row for each mixture, then the means; some two minutes
of one core. With `--words` conversations are mixed from whole clips of `samples/open`, transcribed with that
model and diarized as `spool-worker transcribe --diarize` does: word errors by speaker too.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.accuracy.diarization.der import diarization_error
from ops.accuracy.diarization.mixtures import (
    Mixture,
    Reference,
    activity,
    read_manifest,
    tuning_mixtures,
    unseen_mixtures,
)
from ops.accuracy.diarization.speaker_words import concatenated_word_errors, word_diarization_error
from spool.domain.archive.diarization import Diarization
from spool.wer import WordErrors, normal_words, word_errors
from worker.diarization.clustering import ClusterOptions
from worker.diarization.diarizer import DiarizeOptions, Diarizer
from worker.diarization.windows import WindowOptions

OPEN = Path(__file__).parents[3] / "samples" / "open"
Row = tuple[float, float, bool]
"""Error rate with a collar of 0.25 s, without one, and whether the speakers were counted right."""


def blocks_of(samples: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for at in range(0, len(samples), 16_000):
        yield samples[at : at + 16_000]


def measure(diarizer: Diarizer, mixture: Mixture, options: DiarizeOptions) -> Row:
    result = diarizer.diarize(lambda: blocks_of(mixture.samples), options)
    guess = [(segment.start, segment.end, segment.speaker) for segment in result.segments]
    rates = [diarization_error(mixture.reference, guess, collar).total for collar in (0.25, 0.0)]
    return rates[0], rates[1], result.speakers == len({name for *_, name in mixture.reference})


def open_conversations() -> Iterator[tuple[str, NDArray[np.float32], Reference, list[tuple[str, str]]]]:
    """Name, samples, who speaks when, and the words with their speakers, of conversations of whole clips."""
    entries = [json.loads(line) for line in (OPEN / "manifest.jsonl").read_text().splitlines()]
    clips = {
        entry["speakers"][0]: entry
        for entry in entries
        if entry["file"].startswith(("readers/", "second-language/")) and len(entry["speakers"]) == 1
    }
    names = sorted(clips)
    for first, count in ((0, 2), (2, 3), (5, 4), (0, 6), (6, 6), (0, 12)):
        people = names[first : first + count]
        order = [*people, *reversed(people), *people] if count < 6 else [*people, *reversed(people)]
        parts, reference, words, at = [], Reference(), list[tuple[str, str]](), 0.0
        for name in order:
            clip, rate = soundfile.read(OPEN / clips[name]["file"], dtype="float32")
            assert rate == 16_000
            reference += [(at + start, at + end, name) for start, end in activity(clip)]
            words += [(word, name) for word in normal_words(clips[name]["text"])]
            parts += [clip, np.zeros(8_000, np.float32)]
            at += len(clip) / 16_000 + 0.5
        samples = np.concatenate(parts)
        noise = np.random.default_rng(count).normal(0, 1e-3, len(samples))
        yield f"{count} people", (samples + noise).astype(np.float32), reference, words


def measure_words(model: Path) -> None:
    from worker.local.transcribe import transcribe_files
    from worker.models.requests import SearchOptions

    for known in (False, True):
        wrong = aligned = 0
        plain, by_speaker = WordErrors(0, 0), WordErrors(0, 0)
        rates: list[tuple[float, float]] = []
        for name, samples, reference, words in open_conversations():
            speakers = len({who for *_, who in reference}) if known else None
            with tempfile.NamedTemporaryFile(suffix=".wav") as file:
                soundfile.write(file.name, samples, 16_000, subtype="FLOAT")
                (result,) = transcribe_files(
                    [Path(file.name)], str(model), SearchOptions(), diarization=Diarization(speakers=speakers)
                )
            assert result.transcript is not None, result.error
            guess = [(turn.start, turn.end, turn.speaker) for turn in result.transcript.turns]
            rates.append(
                (
                    diarization_error(reference, guess, 0.25).total,
                    diarization_error(reference, guess, 0).total,
                )
            )
            heard = [
                (text, word.speaker) for word in result.transcript.words for text in normal_words(word.text)
            ]
            counts = word_diarization_error(words, heard)
            wrong, aligned = wrong + counts[0], aligned + counts[1]
            errors = concatenated_word_errors(words, heard)
            by_speaker += errors
            plain += word_errors(" ".join(w for w, _ in words), " ".join(w for w, _ in heard))
            print(
                f"{name}: {len(result.transcript.speakers)} told apart, DER {100 * rates[-1][0]:.1f} %, "
                f"{counts[0]} of {counts[1]} words with the wrong speaker, cpWER {100 * errors.rate:.1f} %",
                flush=True,
            )
        collar, bare = np.array(rates).T
        print(
            f"number {'known' if known else 'unknown'}: DER {100 * collar.mean():.1f} % (+-0.25 s), "
            f"{100 * bare.mean():.1f} % (no collar), WDER {100 * wrong / aligned:.1f} %, "
            f"cpWER {100 * by_speaker.rate:.1f} %, WER {100 * plain.rate:.1f} %"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.diarization.speakers", description=__doc__)
    parser.add_argument("speech", type=Path, nargs="?")
    parser.add_argument("--words", type=Path, metavar="MODEL", help="measure words too, on samples/open")
    parser.add_argument("--set", choices=("tuning", "unseen"), default="unseen")
    parser.add_argument(
        "--noise", type=float, help="pink noise in dBFS in place of -54 to -48 (unseen alone)"
    )
    parser.add_argument("--hop", type=float, default=0.4, help="seconds from window to window")
    asked = parser.parse_args()
    if asked.words is not None:
        measure_words(asked.words)
        return
    if asked.speech is None:
        parser.error("give SPEECH or --words MODEL")
    diarizer, windows = Diarizer(), WindowOptions(hop=asked.hop)
    manifest = read_manifest(asked.speech)
    unseen = asked.set == "unseen"
    mixtures = (
        unseen_mixtures(asked.speech, manifest, asked.noise)
        if unseen
        else tuning_mixtures(asked.speech, manifest)
    )
    rows: dict[str, list[Row]] = {"number unknown": [], "number known": []}
    seconds = busy = 0.0
    for mixture in mixtures:
        speakers = len({name for *_, name in mixture.reference})
        known = ClusterOptions(min_speakers=speakers, max_speakers=speakers)
        began = time.process_time()
        for title, clusters in zip(rows, (ClusterOptions(), known), strict=True):
            rows[title].append(measure(diarizer, mixture, DiarizeOptions(windows=windows, clusters=clusters)))
        busy += time.process_time() - began
        seconds += 2 * len(mixture.samples) / 16_000
        print(
            mixture.name,
            *(f"{title} {100 * row[-1][0]:.1f} %" for title, row in rows.items()),
            sep=", ",
            flush=True,
        )
    for title, results in rows.items():
        collar, plain, right = np.array(results, float).T
        print(
            f"{title}: DER {100 * collar.mean():.1f} % (+-0.25 s), {100 * plain.mean():.1f} % (no collar), "
            f"speakers counted right in {int(right.sum())} of {len(right)}"
        )
    print(f"{seconds / busy:.0f} times real time, processor time of all threads, scoring included")


if __name__ == "__main__":
    main()
