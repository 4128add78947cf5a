"""Builds samples/open/: a small archive of real, open speech with references, for `make run`.

    .venv/bin/python -m ops.accuracy.make_open_samples ../speech --out samples/open

SPEECH is a folder with `manifest.jsonl` and `long/`, as models/demo/README.md describes it. Clips are drawn
from its test speakers by kind with a fixed seed, without asking a model. References with numbers or titles
are left out, since these can be written in more than one way. Writes recordings and `manifest.jsonl`;
samples/README.md is written by hand.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile

from ops.train.data.sample_files import RATE, write_audio

Audio = npt.NDArray[np.float32]
Row = dict[str, Any]
SEED = 20261122
READERS, LEARNERS = 5, 8
BED_DBFS = -62.0
_NUMBERS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand
million first second third
"""
SPELT_VARIOUSLY = frozenset(_NUMBERS.split()) | {"chapter", "mister", "missus", "doctor", "saint", "etc"}
CREDITS = {
    "librispeech": "LibriSpeech (Panayotov et al. 2015, LibriVox readers)",
    "speechocean762": "speechocean762 (Zhang et al. 2021, SpeechOcean / Xiaomi)",
    "vctk": "VCTK (CSTR, University of Edinburgh)",
    "ljspeech": "LJSpeech (L. Johnson, K. Ito)",
    "librivox": "LibriVox, in pocketsphinx",
    "jfk": "Inaugural address of J. F. Kennedy, 1961",
}
# One passage about the rainbow, sentence by sentence; two people read it in turn.
TURNS = ("p225_011", "p226_016", "p225_019", "p226_021", "p225_022", "p226_024")
STEREO_TURNS = ("p227_016", "p228_019", "p227_022", "p228_024")
CHAPTER_SEGMENTS = 8
LONG_PAUSES = {1: 3.0, 2: 6.5, 4: 4.0, 6: 8.0}
"""Seconds of room tone put before some of the chapter's segments, by number."""


@dataclass(frozen=True)
class Sample:
    """A recording to be written: float32 [n] or [n, channels] at 16 kHz, and in which rate and coding."""

    file: str
    audio: Audio
    text: str
    rows: Sequence[Row]
    note: str = ""
    rate: int = RATE
    subtype: str = "PCM_16"

    def line(self) -> Row:
        """Its line of the manifest."""
        licences = sorted({public_licence(row["licence"]) for row in self.rows})
        line = {
            "file": self.file,
            "text": self.text,
            "licence": " and ".join(licences),
            "source": "; ".join(sorted({CREDITS[row["source"]] for row in self.rows})),
            "clips": [row["id"] for row in self.rows],
            "speakers": sorted({row["speaker"] for row in self.rows}),
        }
        return line | ({"note": self.note} if self.note else {})


def public_licence(licence: str) -> str:
    """The licence as the samples state it. Raises ValueError for one that they may not have."""
    if licence.startswith("CC-BY-4.0"):
        return "CC-BY-4.0"
    if licence.startswith("public-domain"):
        return "public domain"
    raise ValueError(f"{licence}: samples are CC-BY or in the public domain")


class Speech:
    """The speech folder: rows of its manifest, and their samples."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()
        self.rows = sorted(map(json.loads, lines), key=lambda row: str(row["id"]))
        self.uses = Counter(word for row in self.rows for word in set(row["text"].split()))

    def named(self, source: str, clip: str) -> Row:
        """The row of a clip by its name in its corpus."""
        (row,) = [row for row in self.rows if row["id"] == f"{source}-{clip}"]
        return row

    def read(self, row: Row) -> Audio:
        """float32 [n] at 16 kHz."""
        audio, rate = soundfile.read(self.folder / row["path"], dtype="float32")
        assert rate == RATE
        return audio

    def draw(self, rng: np.random.Generator, count: int, suits: Callable[[Row], bool]) -> list[Row]:
        """That many test clips that suit, each of another speaker, in a seeded order."""
        rows = [
            row
            for row in self.rows
            if row["split"] == "test" and suits(row) and not SPELT_VARIOUSLY & set(row["text"].split())
        ]
        drawn: dict[str, Row] = {}
        for place in rng.permutation(len(rows)):
            drawn.setdefault(rows[int(place)]["speaker"], rows[int(place)])
        return list(drawn.values())[:count]


def level(audio: Audio) -> Audio:
    """Loudest sample at -3 dBFS, so that clips of several rooms can follow one another."""
    return (audio * (0.7 / (np.abs(audio).max() + 1e-6))).astype(np.float32)


def with_room_tone(audio: Audio, rng: np.random.Generator) -> Audio:
    """The samples over faint noise, so that joined pauses are not digital silence."""
    return (audio + 10 ** (BED_DBFS / 20) * rng.standard_normal(audio.shape)).astype(np.float32)


def joined(clips: Sequence[Audio], pauses: Sequence[float], rng: np.random.Generator) -> Audio:
    """The clips with a pause of so many seconds before each."""
    parts = [
        part
        for clip, pause in zip(clips, pauses, strict=True)
        for part in (np.zeros(int(pause * RATE), np.float32), clip)
    ]
    return with_room_tone(np.concatenate([*parts, np.zeros(RATE // 2, np.float32)]), rng)


def text_of(rows: Sequence[Row]) -> str:
    """The references of clips that follow one another."""
    return " ".join(row["text"] for row in rows)


def readings(speech: Speech, rng: np.random.Generator) -> list[Sample]:
    """Single recordings as they are: audiobook readers, and adults with English as a second language."""
    readers = speech.draw(rng, READERS, lambda row: row["domain"] == "libri" and 5 <= row["duration"] <= 15)
    learners = speech.draw(
        rng,
        LEARNERS,
        lambda row: (
            row["domain"] == "so762"
            and row["age"] >= 18
            and len(row["text"].split()) >= 6
            and min(speech.uses[word] for word in row["text"].split()) >= 5
        ),
    )
    samples = [
        Sample(f"readers/reader-{number}.flac", speech.read(row), row["text"], [row])
        for number, row in enumerate(readers, 1)
    ]
    samples += [
        Sample(f"second-language/speaker-{number}.flac", speech.read(row), row["text"], [row])
        for number, row in enumerate(learners, 1)
    ]
    speech_of_1961 = speech.named("jfk", "inaugural")
    samples.append(
        Sample(
            "speeches/inaugural-1961.flac",
            speech.read(speech_of_1961),
            speech_of_1961["text"],
            [speech_of_1961],
        )
    )
    return samples


def conversation(speech: Speech, rng: np.random.Generator) -> Sample:
    """Two readers in turn, half a second or so apart."""
    rows = [speech.named("vctk", clip) for clip in TURNS]
    clips = [level(speech.read(row)) for row in rows]
    pauses = [0.2, *rng.uniform(0.2, 0.9, len(rows) - 1)]
    note = "Assembled: two people read a passage in turn; they were not recorded together."
    return Sample("conversation/two-speakers.flac", joined(clips, pauses, rng), text_of(rows), rows, note)


def chapter(speech: Speech, rng: np.random.Generator) -> Sample:
    """The beginning of a chapter with pauses put between its segments."""
    description = json.loads((speech.folder / "long" / "libri27_chapter.json").read_text())
    audio, _ = soundfile.read(speech.folder / "long" / description["audio"], dtype="float32")
    segments = description["segments"][:CHAPTER_SEGMENTS]
    starts = [0.0, *(after["start"] for after in segments[1:])]
    clips = [
        audio[int(start * RATE) : int(segment["end"] * RATE)]
        for start, segment in zip(starts, segments, strict=True)
    ]
    gaps = [LONG_PAUSES.get(number, 0.4) for number in range(len(clips))]
    rows = [segment | {"source": "librispeech"} for segment in segments]
    note = "Assembled: consecutive segments of one chapter, with pauses of up to eight seconds between them."
    return Sample("long/chapter-with-pauses.m4a", joined(clips, gaps, rng), text_of(rows), rows, note)


def formats(speech: Speech, rng: np.random.Generator) -> list[Sample]:
    """The same kind of speech in the files that archives hold."""
    narrated, novel = speech.named("ljspeech", "LJ001-0004"), speech.named("librivox", "0890")
    studio, phone = speech.named("vctk", "p228_016"), speech.named("vctk", "p227_011")
    sides = [speech.named("vctk", clip) for clip in STEREO_TURNS]
    pairs = []
    for number, row in enumerate(sides):
        clip = level(speech.read(row))
        pair = np.zeros((len(clip) + RATE // 2, 2), np.float32)
        pair[RATE // 2 :, number % 2] = clip
        pairs.append(pair)
    stereo = with_room_tone(np.concatenate(pairs), rng)
    note = "Assembled: a speaker a channel, turn by turn; the reference is for both."
    return [
        Sample(
            "formats/audiobook.mp3",
            speech.read(narrated),
            narrated["text"],
            [narrated],
            subtype="MPEG_LAYER_III",
        ),
        Sample("formats/voice-message.opus", speech.read(novel), novel["text"], [novel], subtype="OPUS"),
        Sample(
            "formats/telephone-8k.wav", speech.read(phone), phone["text"], [phone], rate=8_000, subtype="ULAW"
        ),
        Sample(
            "formats/studio-48k-24bit.flac",
            speech.read(studio),
            studio["text"],
            [studio],
            rate=48_000,
            subtype="PCM_24",
        ),
        Sample("formats/two-channels.ogg", stereo, text_of(sides), sides, note, subtype="VORBIS"),
    ]


def main() -> None:
    """Builds the archive and says what it came to."""
    parser = argparse.ArgumentParser(prog="python -m ops.accuracy.make_open_samples", description=__doc__)
    parser.add_argument("speech", type=Path, help="folder with manifest.jsonl and long/")
    parser.add_argument("--out", type=Path, default=Path("samples/open"))
    chosen = parser.parse_args()
    speech, rng = Speech(chosen.speech), np.random.default_rng(SEED)
    samples = [*readings(speech, rng), conversation(speech, rng), chapter(speech, rng), *formats(speech, rng)]
    for sample in samples:
        write_audio(chosen.out / sample.file, sample.audio, sample.rate, sample.subtype)
    lines = "".join(json.dumps(sample.line()) + "\n" for sample in samples)
    (chosen.out / "manifest.jsonl").write_text(lines)
    seconds = sum(len(sample.audio) for sample in samples) / RATE
    size = sum((chosen.out / sample.file).stat().st_size for sample in samples)
    print(f"{len(samples)} files, {seconds:.0f} s, {size / 1e6:.1f} MB, in {chosen.out}")


if __name__ == "__main__":
    main()
