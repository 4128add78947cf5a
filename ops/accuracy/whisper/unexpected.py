"""Whether jobs whose model knows only English are warned of another language, and only of another one.

    apt-get install espeak-ng
    python -m ops.accuracy.whisper.unexpected MODEL SPEECH

MODEL listens as it does for a worker's jobs (`worker.jobs.identify`). SPEECH is a folder of English clips
with a `manifest.jsonl`: those of each speaker are one recording. Of other languages there are the synthetic
voices of `ops.accuracy.whisper.languages`.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from worker.machine.blas import preload_blas

preload_blas()

import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.accuracy.whisper.languages import ESPEAK, SAID, VOICES, speak
from spool.domain.transcript import LanguageSpan
from spool.settings import load_settings
from worker.audio import SAMPLE_RATE
from worker.jobs.identify import LONGEST_SECONDS, span_of, warn_of_language
from worker.jobs.places import Places
from worker.models.whisper.model import WhisperModel, load_whisper
from worker.segmentation.chunker import ChunkOptions, plan_chunks

PAUSE = np.zeros(SAMPLE_RATE // 2, np.float32)
Samples = NDArray[np.float32]


def main() -> None:
    """Print each recording that is warned of, and the counts by domain."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("speech", type=Path)
    parser.add_argument("--speakers", type=int, default=40, help="of each domain, at most")
    arguments = parser.parse_args()
    model = load_whisper(arguments.model)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    surest: dict[str, float] = defaultdict(float)
    for domain, name, samples in (*english(arguments.speech, arguments.speakers), *others()):
        heard = listen(model, samples)
        warning = warn_of_language("JOB", "MODEL", heard, load_settings())
        count = counts[domain]
        count[0] += 1
        count[1] += warning is not None
        count[2] += len(heard)
        foreign = [span.probability or 0.0 for span in heard if span.read_as is not None]
        surest[domain] = max(surest[domain], *foreign, 0.0)
        if warning is not None or domain not in ("so762", "libri", "misc"):
            print(domain, name, [(span.language, span.probability) for span in heard], warning)
    for domain, (recordings, warned, places) in counts.items():
        print(
            f"{domain}: {warned} of {recordings} recordings warned of, {places} places, "
            f"another language with at most {surest[domain]:.2f}"
        )


def listen(model: WhisperModel, samples: Samples) -> list[LanguageSpan]:
    """What a job saves of this recording."""
    places, longest = Places(), round(LONGEST_SECONDS * SAMPLE_RATE)
    for _ in places.pick_from(plan_chunks([samples], ChunkOptions())):
        pass
    answers = model.identify_languages([chunk.samples[:longest] for chunk in places.picked])
    pairs = zip(places.picked, answers, strict=True)
    return [span_of(chunk, answer, "en") for chunk, answer in pairs if answer is not None]


def english(folder: Path, most: int) -> Iterator[tuple[str, str, Samples]]:
    """The clips of each speaker, one after another."""
    speakers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in (folder / "manifest.jsonl").read_text().splitlines():
        clip = json.loads(line)
        if clip["domain"] in ("so762", "libri", "misc"):
            speakers[clip["domain"], clip["speaker"]].append(clip["path"])
    done: dict[str, int] = defaultdict(int)
    for (domain, speaker), paths in sorted(speakers.items()):
        clips = [soundfile.read(folder / path, dtype="float32")[0] for path in paths[:40]]
        samples = np.concatenate([part for clip in clips for part in (clip, PAUSE)])
        if len(samples) >= 20 * SAMPLE_RATE and done[domain] < most:
            done[domain] += 1
            yield domain, speaker, samples


def others() -> Iterator[tuple[str, str, Samples]]:
    """The synthetic voices."""
    for code, text in SAID.items():
        for voice in VOICES:
            samples = speak(text, f"{ESPEAK.get(code, code)}+{voice}")
            domain = "English voices" if code == "en" else "other voices"
            yield domain, f"{code} {voice}", np.tile(np.concatenate([samples, PAUSE]), 4)


if __name__ == "__main__":
    main()
