"""Synthetic speech, seeded, saying sentences: many voices of espeak-ng (which must be on PATH), a few of
flite and Pico where they are installed (`engines`).

Voices and texts of the held-out set are in no other. Writes features into the cache, and the held-out set
also as files, for `evaluate`. Also writes the set of sound without words (`noises`), to which speech in
languages the model does not know belongs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.train.data import cache, engines, noises
from ops.train.data.engines import say
from ops.train.data.features import RATE, Audio, Mels, log_mel, read_audio
from ops.train.data.prepare import manifest
from ops.train.data.texts import Sentences, messages
from ops.train.data.voices import (
    ACCENTS,
    FLITE,
    FOREIGN,
    HELD_VARIANTS,
    PICO,
    PICO_FOREIGN,
    TRAINED_LANGUAGES,
    VARIANTS,
)

Rng = np.random.Generator
FLITE_SHARE, PICO_SHARE = 0.1, 0.18  # of the texts, where the engine is installed
PICO_FOREIGN_SHARE = 0.6  # of the languages that Pico speaks
HELD_SEED = 7  # of the test set, which stays the same whatever training's seed


def placed(samples: NDArray[np.floating[Any]], rng: Rng) -> Audio:
    """In a room, at times, and over a faint floor."""
    if rng.random() < 0.4:
        size = int(rng.uniform(0.05, 0.5) * RATE)
        tail = rng.standard_normal(size) * np.exp(-6.9 * np.arange(size) / size) * rng.uniform(0.01, 0.08)
        tail[0] = 1.0
        count = len(samples) + size
        samples = np.fft.irfft(np.fft.rfft(samples, count) * np.fft.rfft(tail, count), count)[: len(samples)]
    floor = 10.0 ** rng.uniform(-5.0, -2.5)
    return (samples + floor * rng.standard_normal(len(samples))).astype(np.float32)


def utter(job: tuple[int, int, str]) -> tuple[str, Mels] | None:
    """Voice and log-mel of text `number` of a seed; the same for the same job."""
    seed, number, text = job
    rng = np.random.default_rng((seed, number))
    kind = rng.random()
    if kind < FLITE_SHARE and engines.has_flite():
        voice = str(rng.choice(sorted(FLITE)))
        samples = engines.say_flite(text, voice, rng)
    elif kind > 1 - PICO_SHARE and engines.has_pico():
        voice = str(rng.choice(PICO))
        samples = engines.say_pico(text, voice, rng)
    else:
        voice = f"{rng.choice(ACCENTS)}+{rng.choice(VARIANTS)}"
        samples = say(text, voice, rng)
    return None if samples is None else (voice, log_mel(placed(samples, rng)))


def _speech(source: Sentences, hours: float, seed: int, workers: int) -> Iterator[cache.Named]:
    rng, total, number = np.random.default_rng(seed), 0, 0
    with ProcessPoolExecutor(workers) as pool:
        while total < hours * 360_000:
            jobs = [(seed, number + k, source.draw(rng)) for k in range(512)]
            for (_, place, text), said in zip(jobs, pool.map(utter, jobs, chunksize=16), strict=True):
                if said is not None:
                    yield cache.Named(f"synth-{place}", text, "synth", "train", *said)
                    total += len(said[1])
            number += len(jobs)


def foreign(texts: dict[str, list[str]], rng: Rng) -> Audio | None:
    """One to three sentences of a language that is in no test, in one voice; None where espeak-ng fails."""
    language = str(rng.choice(sorted(texts)))
    lines = texts[language]
    text = ". ".join(lines[int(rng.integers(len(lines)))] for _ in range(int(rng.integers(1, 4))))
    voice = PICO_FOREIGN.get(language)
    if voice and rng.random() < PICO_FOREIGN_SHARE and engines.has_pico():
        samples = engines.say_pico(text, voice, rng)
    else:
        samples = say(text, f"{language}+{rng.choice(VARIANTS)}", rng)
    return None if samples is None else placed(samples[: 20 * RATE], rng)


def foreign_texts() -> dict[str, list[str]]:
    """Sentences by espeak-ng's name of the language."""
    by_voice = {voice: messages(folder) for voice, folder in TRAINED_LANGUAGES.items()}
    return {
        voice: lines + FOREIGN.get(voice, [])
        for voice, lines in by_voice.items()
        if lines or voice in FOREIGN
    }


def wordless(speech: Path, minutes: float, seed: int) -> Iterator[tuple[str, Audio]]:
    """Kind and samples of sound without words, a few to twenty seconds each, that many minutes in all."""
    rng = np.random.default_rng((seed, 1))
    rows = [
        row for row in manifest(speech) if row["split"] == "train" and row["domain"] in ("so762", "libri")
    ]
    voices = [read_audio(speech / rows[int(i)]["path"]) for i in rng.choice(len(rows), 80, replace=False)]
    texts = foreign_texts()
    left = minutes * 60
    while left > 0:
        count = int(rng.uniform(0.5, 15.0) * RATE)
        shares = [0.04, 0.07, 0.04, 0.04, 0.04, 0.06, 0.04, 0.67]
        kind = str(rng.choice([*noises.KINDS, "babble", "foreign"], p=shares))
        if kind == "babble":
            samples = noises.babble(count, rng, voices)
        elif kind == "foreign":
            text = foreign(texts, rng)
            if text is None:
                continue
            samples = text
        else:
            samples = noises.KINDS[kind](count, rng)
        left -= len(samples) / RATE
        yield kind, samples


def synthesise(speech: Path, folder: Path, hours: float, minutes: float, seed: int, workers: int = 1) -> None:
    """Writes the sets `synth` and `wordless` and the folder `synth_test`, unless they are there."""
    rows = manifest(speech)
    texts = [row["text"] for row in rows if row["split"] == "train" and row["domain"] in ("so762", "libri")]
    held = {
        row["text"] for row in rows if row["split"] != "train" and row["domain"] not in ("digits", "words")
    }
    unseen = [row["text"] for row in rows if row["split"] == "test" and row["domain"] == "so762"]
    write_held(folder / "synth_test", [text for text in unseen if text not in set(texts)])
    if not (folder / "wordless.jsonl").exists():
        named = (
            cache.Named(f"wordless-{n}", "", kind, "train", "", log_mel(samples))
            for n, (kind, samples) in enumerate(wordless(speech, minutes, seed))
        )
        print(f"wordless: {cache.write(folder, 'wordless', named) / 6000:.0f} minutes", flush=True)
    if not (folder / "synth.jsonl").exists():
        source = Sentences(texts, held)
        frames = cache.write(folder, "synth", _speech(source, hours, seed, workers))
        print(f"synth: {frames / 360_000:.2f} h", flush=True)


def write_held(folder: Path, texts: list[str], count: int = 150) -> None:
    """Held-out sentences in held-out voices as FLAC, with a manifest as in the speech folder."""
    if (folder / "manifest.jsonl").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, text in enumerate(texts[:count]):
        rng = np.random.default_rng((HELD_SEED, 2, number))
        samples = say(text, f"{rng.choice(ACCENTS)}+{rng.choice(HELD_VARIANTS)}", rng)
        if samples is not None:
            soundfile.write(folder / f"{number:03}.flac", np.clip(placed(samples, rng), -1, 1), RATE)
            rows.append({"path": f"{number:03}.flac", "text": text, "domain": "synth", "split": "test"})
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
