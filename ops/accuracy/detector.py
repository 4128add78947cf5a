"""What the speech detector changes in transcripts: words lost in speech, words invented elsewhere.

    OMP_NUM_THREADS=1 .venv/bin/python -m ops.accuracy.detector SPEECH --model whisper-tiny.en

SPEECH is the folder with `manifest.jsonl` and `long/`. Transcribes the long recordings, the test clips of
LibriSpeech and of mixed sources, and a minute of each synthetic sound, with the detector and without.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
from numpy.typing import NDArray

from spool.domain.transcript import Transcript
from spool.wer import normal_words, total_errors, word_errors
from worker.local.transcribe import transcribe_with
from worker.models.base import SpeechModel
from worker.models.load import load_model
from worker.models.requests import SearchOptions
from worker.segmentation.chunker import plan_chunks
from worker.speech.listener import listeners

RATE = 16_000
SECONDS = 60
DOMAINS = ("libri", "misc")
Floats = NDArray[np.floating]


def recordings(speech: Path) -> Mapping[Path, str]:
    """Each recording's reference."""
    texts = {
        path.with_suffix(".flac"): json.loads(path.read_text())["text"]
        for path in sorted((speech / "long").glob("*.json"))
    }
    for line in (speech / "manifest.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["split"] == "test" and row["domain"] in DOMAINS:
            texts[speech / row["path"]] = row["text"]
    return texts


def sounds(folder: Path) -> Iterator[Path]:
    """A minute each of what is no speech, at -20, -40 and -62 dBFS."""
    rng, count = np.random.default_rng(3), RATE * SECONDS
    at = np.arange(count) / RATE
    white = rng.standard_normal(count)
    spectrum = np.fft.rfft(white)
    pink = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), count)
    beat = at % 0.5
    root = 220 * 2 ** (np.array([0, 5, 7, 3])[(at * 2).astype(int) % 4] / 12)
    chords = sum(np.sin(2 * np.pi * root * ratio * beat) for ratio in (1, 1.25, 1.5, 2)) * np.exp(-4 * beat)
    made: dict[str, Floats] = {
        "white": white,
        "pink": pink,
        "pulsed": pink * (1 + np.sin(2 * np.pi * 3 * at)),
        "hum": np.sin(2 * np.pi * 50 * at) + 0.3 * np.sin(2 * np.pi * 150 * at),
        "tone": np.sin(2 * np.pi * 440 * at),
        "chords": np.asarray(chords),
        "siren": np.sin(2 * np.pi * 700 * at + 60 * np.sin(2 * np.pi * 0.5 * at)),
    }
    for level in (-20, -40, -62):
        for name, samples in made.items():
            scaled = samples * 10 ** (level / 20) / np.sqrt(np.mean(samples**2))
            path = folder / f"{name}{level}.wav"
            soundfile.write(path, np.clip(scaled, -1, 1).astype(np.float32), RATE, subtype="FLOAT")
            yield path


def transcripts(model: SpeechModel, files: Sequence[Path], detector: bool) -> list[Transcript]:
    """The files' transcripts by the greedy search."""
    results = transcribe_with(model, files, SearchOptions(), detector=detector)
    return [result.transcript for result in results if result.transcript is not None]


def words_lost(speech: Path) -> tuple[int, int]:
    """Words of the long recordings that lie in no decoded chunk, and all of them."""
    lost = total = 0
    for path in sorted((speech / "long").glob("*.json")):
        samples, _ = soundfile.read(path.with_suffix(".flac"), dtype="float32")
        (listener,) = listeners(1)
        spans = [chunk.span for chunk in plan_chunks([samples], listener=listener)]
        silent = [(span.core_start / RATE, span.core_end / RATE) for span in spans if not span.speech]
        for word in json.loads(path.read_text())["words"]:
            total += 1
            lost += any(word["start"] < end and start < word["end"] for start, end in silent)
    return lost, total


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.detector", description=__doc__)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--model", required=True)
    asked = parser.parse_args()
    model = load_model(asked.model)
    print("words of the long recordings in no decoded chunk: {} of {}".format(*words_lost(asked.speech)))
    texts = recordings(asked.speech)
    deaf, listening = (transcripts(model, list(texts), detector) for detector in (False, True))
    for name, found in (("without", deaf), ("with", listening)):
        pairs = zip(texts.values(), found, strict=True)
        share = total_errors(word_errors(text, each.text) for text, each in pairs).rate
        decoded = sum(each.coverage.speech_seconds for each in found)
        words = sum(len(each.words) for each in found)
        print(f"{name}: WER {share:.2%}, {words} words, {decoded:.0f} s decoded")
    for path, before, after in zip(texts, deaf, listening, strict=True):
        old, new = normal_words(before.text), normal_words(after.text)
        for tag, a, b, c, d in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            if tag == "delete":
                print(f"  {path.name}: {' '.join(old[a:b])!r} -> {' '.join(new[c:d])!r}")
        for gone in after.dropped:
            print(f"  {path.name}: dropped at {gone.start:.1f} s: {gone.text!r}")
    with tempfile.TemporaryDirectory() as folder:
        files = list(sounds(Path(folder)))
        for name, detector in (("without", False), ("with", True)):
            found = transcripts(model, files, detector)
            decoded = sum(each.coverage.speech_seconds for each in found)
            words = sum(len(each.words) for each in found)
            speaking = [path.stem for path, each in zip(files, found, strict=True) if each.words]
            total = SECONDS * len(files)
            print(f"sounds {name}: {words} words, {decoded:.0f} of {total} s decoded; {speaking}")


if __name__ == "__main__":
    main()
