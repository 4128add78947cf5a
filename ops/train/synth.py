"""Synthetic speech by espeak-ng, seeded: many voices saying spans of the training texts, digits and words.

Voices and texts of the held-out set are in no other. Writes features into the cache, and the held-out set
also as files, for `evaluate`. Also writes the set of sound without words (`noises`), to which speech in
languages the model does not know belongs. espeak-ng must be on PATH.
"""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import soundfile
import soxr

from ops.train import cache, noises
from ops.train.features import RATE, Audio, log_mel, read_audio
from ops.train.prepare import manifest
from ops.train.voices import ACCENTS, FOREIGN, HELD_LANGUAGES, HELD_VARIANTS, VARIANTS

Rng = np.random.Generator
DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
WORDS = ["bed", "cat", "happy"]


def say(text: str, voice: str, rng: Rng) -> Audio | None:
    """The text in that voice at a random rate and pitch, float32 at 16 kHz; None where espeak-ng fails."""
    rate, pitch, loud = int(rng.integers(115, 215)), int(rng.integers(15, 86)), int(rng.integers(60, 160))
    settings = ["-s", str(rate), "-p", str(pitch), "-a", str(loud), "-g", str(rng.choice([0, 0, 1, 2, 4, 8]))]
    command = ["espeak-ng", "-v", voice, *settings, "--stdout", text]
    sound = subprocess.run(command, capture_output=True, check=False).stdout
    try:
        samples, source_rate = soundfile.read(io.BytesIO(sound), dtype="float32")
    except soundfile.LibsndfileError:
        return None
    samples = soxr.resample(samples, source_rate, RATE, "MQ")
    if len(samples) < RATE // 5:
        return None
    before, after = (np.zeros(int(rng.uniform(0.02, 0.5) * RATE), np.float32) for _ in range(2))
    return np.concatenate([before, samples, after]).astype(np.float32)


def placed(samples: Audio, rng: Rng) -> Audio:
    """In a room, at times, and over a faint floor."""
    if rng.random() < 0.4:
        size = int(rng.uniform(0.05, 0.5) * RATE)
        tail = rng.standard_normal(size) * np.exp(-6.9 * np.arange(size) / size) * rng.uniform(0.01, 0.08)
        tail[0] = 1.0
        count = len(samples) + size
        samples = np.fft.irfft(np.fft.rfft(samples, count) * np.fft.rfft(tail, count), count)[: len(samples)]
    floor = 10.0 ** rng.uniform(-5.0, -2.5)
    return (samples + floor * rng.standard_normal(len(samples))).astype(np.float32)


def sentences(texts: list[str], rng: Rng) -> Iterator[str]:
    """Without end: spans of the texts, words of them in no order, strings of digits, command words."""
    vocabulary = sorted({word for text in texts for word in text.split()})
    while True:
        kind = rng.random()
        if kind < 0.6:
            words = texts[int(rng.integers(len(texts)))].split()
            size = int(rng.integers(2, 15))
            start = int(rng.integers(0, max(1, len(words) - size + 1)))
            yield " ".join(words[start : start + size])
        elif kind < 0.75:
            yield " ".join(rng.choice(vocabulary, int(rng.integers(1, 7))))
        elif kind < 0.95:
            yield " ".join(rng.choice(DIGITS, int(rng.integers(1, 9))))
        else:
            yield " ".join(rng.choice(WORDS, int(rng.integers(1, 4))))


def spoken(texts: list[str], variants: list[str], seed: int) -> Iterator[tuple[str, str, Audio]]:
    """Without end: text, voice, samples. The same for the same seed."""
    source = sentences(texts, np.random.default_rng(seed))

    def one(job: tuple[int, str]) -> tuple[str, str, Audio] | None:
        number, text = job
        rng = np.random.default_rng((seed, number))
        voice = f"{rng.choice(ACCENTS)}+{rng.choice(variants)}"
        samples = say(text, voice, rng)
        return None if samples is None else (text, voice, placed(samples, rng))

    number = 0
    with ThreadPoolExecutor(1) as pool:
        while True:
            jobs = list(enumerate(islice(source, 64), number))
            number += len(jobs)
            yield from (item for item in pool.map(one, jobs) if item is not None)


def _speech(texts: list[str], hours: float, seed: int) -> Iterator[cache.Named]:
    total = 0
    for number, (text, voice, samples) in enumerate(spoken(texts, VARIANTS, seed)):
        yield cache.Named(f"synth-{number}", text, "synth", "train", voice, log_mel(samples))
        total += len(samples)
        if total >= hours * 3600 * RATE:
            return


def wordless(speech: Path, minutes: float, seed: int) -> Iterator[tuple[str, Audio]]:
    """Kind and samples of sound without words, a few to twenty seconds each, that many minutes in all."""
    rng = np.random.default_rng((seed, 1))
    rows = [
        row for row in manifest(speech) if row["split"] == "train" and row["domain"] in ("so762", "libri")
    ]
    voices = [read_audio(speech / rows[int(i)]["path"]) for i in rng.choice(len(rows), 80, replace=False)]
    languages = [name for name in FOREIGN if name not in HELD_LANGUAGES]
    left = minutes * 60
    while left > 0:
        count = int(rng.uniform(0.5, 15.0) * RATE)
        kind = str(
            rng.choice(
                [*noises.KINDS, "babble", "foreign"], p=[0.12, 0.2, 0.12, 0.12, 0.12, 0.18, 0.08, 0.06]
            )
        )
        if kind == "babble":
            samples = noises.babble(count, rng, voices)
        elif kind == "foreign":
            language = str(rng.choice(languages))
            said = say(str(rng.choice(FOREIGN[language])), f"{language}+{rng.choice(VARIANTS)}", rng)
            if said is None:
                continue
            samples = placed(said, rng)
        else:
            samples = noises.KINDS[kind](count, rng)
        left -= len(samples) / RATE
        yield kind, samples


def synthesise(speech: Path, folder: Path, hours: float, minutes: float, seed: int) -> None:
    """Writes the sets `synth` and `wordless` and the folder `synth_test`, unless they are there."""
    rows = manifest(speech)
    texts = [row["text"] for row in rows if row["split"] == "train" and row["domain"] in ("so762", "libri")]
    if not (folder / "wordless.jsonl").exists():
        named = (
            cache.Named(f"wordless-{n}", "", kind, "train", "", log_mel(samples))
            for n, (kind, samples) in enumerate(wordless(speech, minutes, seed))
        )
        print(f"wordless: {cache.write(folder, 'wordless', named) / 6000:.0f} minutes", flush=True)
    if not (folder / "synth.jsonl").exists():
        print(
            f"synth: {cache.write(folder, 'synth', _speech(texts, hours, seed)) / 360_000:.2f} h", flush=True
        )
    known = set(texts)
    unseen = [row["text"] for row in rows if row["split"] == "test" and row["domain"] == "so762"]
    write_held(folder / "synth_test", [text for text in unseen if text not in known], seed)


def write_held(folder: Path, texts: list[str], seed: int, count: int = 150) -> None:
    """Held-out sentences in held-out voices as FLAC, with a manifest as in the speech folder."""
    if (folder / "manifest.jsonl").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for number, text in enumerate(texts[:count]):
        rng = np.random.default_rng((seed, 2, number))
        samples = say(text, f"{rng.choice(ACCENTS)}+{rng.choice(HELD_VARIANTS)}", rng)
        if samples is not None:
            soundfile.write(folder / f"{number:03}.flac", np.clip(placed(samples, rng), -1, 1), RATE)
            rows.append({"path": f"{number:03}.flac", "text": text, "domain": "synth", "split": "test"})
    (folder / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
