"""Recordings of known speech for the witness: clips of a manifest one after another, with pauses and sounds.

Each tape has clips of a few speakers over a bed of faint noise, pauses of 0.3 to 4 s, and one stretch of 7 s
of a sound without words: noise, music, a babble of other speakers. Tapes of tuning and test share no speaker.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from ops.accuracy.whisper.sounds import hum, music, room_tone, white_noise

RATE = 16_000
CLIPS = 12
SOUND_SECONDS = 7.0
BED_DBFS = -58.0
Samples = NDArray[np.float32]
Row = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """What is said from `start` to `end`, in seconds."""

    start: float
    end: float
    text: str
    speaker: str


@dataclass(frozen=True)
class Tape:
    """A recording, its lines, and where its sound without words is."""

    name: str
    samples: Samples
    lines: tuple[Line, ...]
    sound: tuple[float, float, str]

    @property
    def pauses(self) -> list[tuple[float, float]]:
        """Between neighbouring lines, without the sound."""
        found = []
        for before, after in zip(self.lines, self.lines[1:], strict=False):
            if not before.end <= self.sound[0] < after.start:
                found.append((before.end, after.start))
        return found


def read_manifest(speech: Path) -> list[Row]:
    return [json.loads(line) for line in (speech / "manifest.jsonl").read_text().splitlines()]


def make_tapes(speech: Path, domain: str, split: str, seed: int, most: int | None = None) -> list[Tape]:
    """The tapes of a domain and split of the manifest, at most `most`; the same for the same seed."""
    rng = np.random.default_rng(seed)
    rows = [
        row
        for row in read_manifest(speech)
        if (row["domain"], row["split"]) == (domain, split) and row["text"].strip()
    ]
    order = sorted(rows, key=lambda row: (row["speaker"], row["id"]))
    # A few speakers a tape: clips stay with their speaker, speakers are drawn.
    speakers = list(dict.fromkeys(row["speaker"] for row in order))
    rng.shuffle(speakers)
    place = {speaker: number for number, speaker in enumerate(speakers)}
    order.sort(key=lambda row: place[row["speaker"]])
    groups = [order[at : at + CLIPS] for at in range(0, len(order) - 3, CLIPS)][:most]
    tapes = []
    for number, group in enumerate(groups):
        others = [row for row in rows if row["speaker"] not in {each["speaker"] for each in group}]
        tapes.append(_tape(speech, f"{domain}-{split}-{number}", group, others, number, rng))
    return tapes


def _tape(
    speech: Path,
    name: str,
    group: Sequence[Row],
    others: Sequence[Row],
    number: int,
    rng: np.random.Generator,
) -> Tape:
    parts: list[Samples] = [np.zeros(RATE // 2, np.float32)]
    at = RATE // 2
    lines: list[Line] = []
    kinds = list(SOUNDS)
    kind, sound = kinds[number % len(kinds)], (0.0, 0.0, "")
    for place, row in enumerate(group):
        clip = read_clip(speech, row)
        lines.append(Line(at / RATE, (at + len(clip)) / RATE, row["text"], row["speaker"]))
        pause = np.zeros(int(rng.uniform(0.3, 4.0 if rng.random() < 0.4 else 1.2) * RATE), np.float32)
        parts += [clip, pause]
        at += len(clip) + len(pause)
        if place == len(group) // 2:
            noise = SOUNDS[kind]([read_clip(speech, others[at]) for at in rng.integers(len(others), size=8)])
            sound = (at / RATE, (at + len(noise)) / RATE, kind)
            rest = np.zeros(RATE // 2, np.float32)
            parts += [noise, rest]
            at += len(noise) + len(rest)
    samples = np.concatenate(parts)
    bed = rng.standard_normal(len(samples)).astype(np.float32) * np.float32(10 ** (BED_DBFS / 20))
    return Tape(name, np.clip(samples + bed, -1, 1), tuple(lines), sound)


def read_clip(speech: Path, row: Row) -> Samples:
    """Its samples, float32 at 16 kHz."""
    samples, _ = soundfile.read(speech / row["path"], dtype="float32")
    return np.asarray(samples, np.float32)


def babbles(speech: Path, count: int) -> list[Samples]:
    """Babbles of eight test speakers each."""
    rows = [row for row in read_manifest(speech) if (row["domain"], row["split"]) == ("so762", "test")]
    rng = np.random.default_rng(9)
    return [
        _babble([read_clip(speech, rows[at]) for at in rng.integers(len(rows), size=8)]) for _ in range(count)
    ]


def _babble(clips: Sequence[Samples]) -> Samples:
    size = int(SOUND_SECONDS * RATE)
    voices = [np.resize(clip / max(float(np.sqrt((clip**2).mean())), 1e-4), size) for clip in clips]
    mixed = np.sum(voices, axis=0)
    return np.asarray(0.05 * mixed / max(float(mixed.std()), 1e-4), np.float32)


SOUNDS: dict[str, Callable[[Sequence[Samples]], Samples]] = {
    "white noise": lambda _: white_noise(SOUND_SECONDS, -30.0),
    "room tone": lambda _: room_tone(SOUND_SECONDS, -35.0),
    "hum": lambda _: hum(SOUND_SECONDS),
    "music": lambda _: music(SOUND_SECONDS),
    "babble": _babble,
}
