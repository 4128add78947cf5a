"""Builds samples/: a small archive of real speech, from the speech folder's test speakers.

    .venv/bin/python -m ops.train.data.make_samples --speech SPEECH --out samples/demo-tdt

Clips are drawn by kind with a fixed seed; nothing is looked at but kind, speaker and length, and no model is
asked. Needs the worker's packages (soundfile, soxr, av), not PyTorch.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.train.data.features import RATE, Audio, read_audio
from ops.train.data.prepare import manifest
from ops.train.data.sample_files import write_audio

Rng = np.random.Generator
SEED = 20261120
WORDS = ("bed", "cat", "happy")
DIGITS = frozenset(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "oh"])
CREDITS = {
    "words": ("CC-BY-4.0", "Speech Commands v0.01 (P. Warden, Google)"),
    "so762": ("CC-BY-4.0", "speechocean762 (Zhang et al. 2021, SpeechOcean / Xiaomi)"),
    "digits": ("CC-BY-SA-4.0", "Free Spoken Digit Dataset (Z. Jackson et al.)"),
}


@dataclass(frozen=True)
class Piece:
    """A clip of the speech folder."""

    audio: Audio
    text: str
    speaker: str
    domain: str


@dataclass(frozen=True)
class Sample:
    """A recording to be written: float32 [n] or [n, channels] at 16 kHz, and how."""

    file: str
    audio: Audio
    text: str
    domains: frozenset[str]
    rate: int = RATE
    subtype: str = "PCM_16"

    def line(self) -> dict[str, Any]:
        owed = [CREDITS[domain] for domain in sorted(self.domains)]
        licence = "CC-BY-SA-4.0" if "digits" in self.domains else "CC-BY-4.0"
        return {
            "file": self.file,
            "text": self.text,
            "licence": licence,
            "source": "; ".join(name for _, name in owed),
        }


def draw(speech: Path, rng: Rng) -> dict[str, list[Piece]]:
    """Test (and for strings of digits also dev) clips by kind, in a seeded order."""
    rows = sorted(manifest(speech), key=lambda row: row["id"])
    kinds: dict[str, list[dict[str, Any]]] = {kind: [] for kind in (*WORDS, "string", "digit")}
    for row in rows:
        if row["domain"] == "words" and row["split"] == "test":
            kinds[row["text"]].append(row)
        elif row["domain"] == "digits" and row["split"] == "test":
            kinds["digit"].append(row)
        elif (
            row["domain"] == "so762"
            and row["split"] in ("test", "dev")
            and set(row["text"].split()) <= DIGITS
        ):
            kinds["string"].append(row)
    out = {}
    for kind, found in kinds.items():
        chosen = [found[int(i)] for i in rng.permutation(len(found))[:40]]
        out[kind] = [
            Piece(read_audio(speech / r["path"]), r["text"], r["speaker"], r["domain"]) for r in chosen
        ]
    return out


def levelled(audio: Audio) -> Audio:
    """Loudest sample at -3 dBFS, so that clips of several archives can follow one another."""
    return (audio * (0.7 / (np.abs(audio).max() + 1e-6))).astype(np.float32)


def in_turn(pieces: Sequence[Piece], pauses: Sequence[float], rng: Rng, bed: float = -62.0) -> Audio:
    """The pieces with those pauses before them, over a noise bed of so many dBFS. float32 [n]."""
    parts: list[Audio] = []
    for piece, pause in zip(pieces, pauses, strict=True):
        parts += [np.zeros(int(pause * RATE), np.float32), levelled(piece.audio)]
    audio = np.concatenate([*parts, np.zeros(RATE // 2, np.float32)])
    return (audio + 10 ** (bed / 20) * rng.standard_normal(len(audio))).astype(np.float32)


def single_words(kinds: dict[str, list[Piece]]) -> list[Sample]:
    return [
        Sample(f"words/{word}-{number}.flac", piece.audio, piece.text, frozenset({"words"}))
        for word in WORDS
        for number, piece in enumerate(kinds[word][:2], 1)
    ]


def strings(kinds: dict[str, list[Piece]]) -> list[Sample]:
    return [
        Sample(f"digits/string-{number}.flac", piece.audio, piece.text, frozenset({"so762"}))
        for number, piece in enumerate(kinds["string"][:4], 1)
    ]


def mixed_turns(kinds: dict[str, list[Piece]], start: int, words: int, digits: int, rng: Rng) -> list[Piece]:
    """Words from the given place on, as many of each kind, and strings of digits, in a random order."""
    chosen = [kinds[WORDS[n % 3]][start + n // 3] for n in range(words)]
    chosen = [chosen[int(place)] for place in rng.permutation(words)]
    for number in range(digits):
        place = int(rng.integers(0, len(chosen) + 1))
        chosen.insert(place, kinds["string"][(start + number) % len(kinds["string"])])
    return chosen


def oddities(kinds: dict[str, list[Piece]], rng: Rng) -> list[Sample]:
    """A long recording, a phone call's format, a studio's, a player's, and two speakers on two channels."""
    both = frozenset({"words", "so762"})
    turns = mixed_turns(kinds, 4, 15, 6, rng)
    pauses = [float(rng.uniform(0.6, 2.0)) for _ in turns]
    for place in rng.choice(np.arange(1, len(turns)), 4, replace=False):
        pauses[int(place)] = float(rng.uniform(4.0, 8.0))
    samples = [Sample("long/pauses.flac", in_turn(turns, pauses, rng), text_of(turns), both)]
    dialled = kinds["digit"][:12]
    phone = in_turn(dialled, [0.25] * len(dialled), rng, -50.0)
    samples.append(
        Sample("share-alike/phone.wav", phone, text_of(dialled), frozenset({"digits"}), 8_000, "ULAW")
    )
    row = kinds["digit"][12:20]
    samples.append(
        Sample(
            "share-alike/row.flac", in_turn(row, [0.2] * len(row), rng), text_of(row), frozenset({"digits"})
        )
    )
    studio = mixed_turns(kinds, 12, 3, 1, rng)
    audio = in_turn(studio, [0.4] * len(studio), rng, -80.0)
    samples.append(Sample("formats/studio-96k-24bit.flac", audio, text_of(studio), both, 96_000, "PCM_24"))
    player = mixed_turns(kinds, 16, 6, 2, rng)
    samples.append(
        Sample("formats/player.m4a", in_turn(player, [0.5] * len(player), rng), text_of(player), both)
    )
    return [*samples, two_channels(kinds, rng)]


def two_channels(kinds: dict[str, list[Piece]], rng: Rng) -> Sample:
    """Words on the left, strings of digits on the right, turn by turn."""
    turns = [p for n in range(3) for p in (kinds[WORDS[n]][20], kinds["string"][5 + n])]
    sides = [np.zeros((0, 2), np.float32)]
    for number, piece in enumerate(turns):
        pair = np.zeros((len(piece.audio) + RATE // 2, 2), np.float32)
        pair[RATE // 2 :, number % 2] = levelled(piece.audio)
        sides.append(pair)
    whole = np.concatenate(sides)
    audio = (whole + 10 ** (-62 / 20) * rng.standard_normal(whole.shape)).astype(np.float32)
    return Sample("formats/two-channels.flac", audio, text_of(turns), frozenset({"words", "so762"}))


def text_of(pieces: Sequence[Piece]) -> str:
    return " ".join(piece.text for piece in pieces)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ops.train.data.make_samples", description=__doc__)
    parser.add_argument("--speech", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("samples/demo-tdt"))
    asked = parser.parse_args()
    rng = np.random.default_rng(SEED)
    kinds = draw(asked.speech, rng)
    samples = [*single_words(kinds), *strings(kinds), *oddities(kinds, rng)]
    for sample in samples:
        write_audio(asked.out / sample.file, sample.audio, sample.rate, sample.subtype)
    lines = "".join(json.dumps(sample.line()) + "\n" for sample in samples)
    (asked.out / "manifest.jsonl").write_text(lines)
    seconds = sum(len(sample.audio) for sample in samples) / RATE
    print(f"{len(samples)} files, {seconds:.0f} s, in {asked.out}")


if __name__ == "__main__":
    main()
