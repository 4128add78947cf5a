"""Long recordings in chunks, against the same speech cut at its reference segments: words lost or doubled at
seams, coverage and times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ops.train.data.features import RATE, Audio, read_audio
from ops.train.run.evaluate import decoded, time_error
from spool.domain.recognition import ChunkSpan
from spool.domain.transcript import Word
from spool.wer import WordErrors, normal_words, total_errors, word_errors
from worker.local.transcribe import transcribe_with
from worker.models.base import Independent
from worker.models.nemo.model import NemoModel
from worker.models.requests import SearchOptions

NEAR = 1.0  # seconds from a seam


@dataclass(frozen=True)
class Recording:
    """A file, its samples at 16 kHz, segments and word times of the reference."""

    path: Path
    audio: Audio
    text: str
    segments: list[dict[str, Any]]
    words: list[dict[str, Any]]

    @property
    def name(self) -> str:
        """The file's, without its ending."""
        return self.path.stem


def recordings(speech: Path) -> list[Recording]:
    """The speech folder's long recordings."""
    listed = []
    for each in sorted((speech / "long").glob("*.json")):
        reference = json.loads(each.read_text())
        path = each.with_name(reference["audio"])
        texts = reference["text"], reference["segments"], reference["words"]
        listed.append(Recording(path, read_audio(path), *texts))
    return listed


def lengths(longest: float) -> Independent:
    """The chunk plan whose chunks are at most that many seconds long; 30 is the worker's."""
    scale = longest / 30.0
    return Independent(aim=20.0 * scale, max=longest, overlap=min(2.0, 2.0 * scale), tail=5.0 * scale)


@dataclass(frozen=True)
class Seams:
    """Reference words within a second of a seam and elsewhere: how many, how many lost, how many doubled."""

    seams: int
    near: int
    lost_near: int
    doubled_near: int
    far: int
    lost_far: int
    doubled_far: int


@dataclass(frozen=True)
class Outcome:
    """One recording through chunks."""

    errors: WordErrors
    seams: Seams
    covered: float
    times_off: float


def through(model: NemoModel, recording: Recording, options: SearchOptions, longest: float = 30.0) -> Outcome:
    """The recording as the worker hears it, in chunks of at most that many seconds."""
    (result,) = transcribe_with(model, [recording.path], options, lengths=lengths(longest))
    if result.transcript is None:
        raise result.error or AssertionError
    words = result.transcript.words
    return Outcome(
        word_errors(recording.text, result.transcript.text),
        at_seams(recording, words, [span.core_end / RATE for span in result.chunks[:-1]]),
        covered(result.chunks, len(recording.audio)),
        time_error(recording.words, words),
    )


def covered(chunks: Sequence[ChunkSpan], samples: int) -> float:
    """The share of the samples that lies in exactly one core."""
    count = np.zeros(samples + 1, np.int64)
    for chunk in chunks:
        count[chunk.core_start] += 1
        count[chunk.core_end] -= 1
    return float((np.cumsum(count)[:samples] == 1).mean()) if samples else 1.0


def at_seams(recording: Recording, words: Sequence[Word], cuts: Sequence[float]) -> Seams:
    """Words lost and doubled, by an alignment of least edits.

    A lost word has no partner; a doubled one is an insertion beside the same word.
    """
    told = [" ".join(normal_words(w["w"])) for w in recording.words]
    heard = [" ".join(normal_words(w.text)) for w in words]
    lost, extra = unpaired(told, heard)
    doubled = {
        j
        for j in extra
        if (j and heard[j - 1] == heard[j]) or (j + 1 < len(heard) and heard[j + 1] == heard[j])
    }
    near = [_near((w["start"] + w["end"]) / 2, cuts) for w in recording.words]
    twice = [_near((words[j].start + words[j].end) / 2, cuts) for j in doubled]
    missing = [near[i] for i in lost]
    return Seams(
        len(cuts),
        sum(near),
        sum(missing),
        sum(twice),
        len(near) - sum(near),
        len(missing) - sum(missing),
        len(twice) - sum(twice),
    )


def _near(seconds: float, cuts: Sequence[float]) -> bool:
    return any(abs(seconds - cut) <= NEAR for cut in cuts)


def unpaired(told: Sequence[str], heard: Sequence[str]) -> tuple[list[int], list[int]]:
    """Indices of what `told` has alone and of what `heard` has alone, by an alignment of least edits."""
    cost = np.zeros((len(told) + 1, len(heard) + 1), np.int64)
    cost[:, 0], cost[0] = np.arange(len(told) + 1), np.arange(len(heard) + 1)
    for i, word in enumerate(told, 1):
        row = cost[i - 1, :-1] + np.array([word != other for other in heard], np.int64)
        for j in range(1, len(heard) + 1):
            cost[i, j] = min(row[j - 1], cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    lost, extra = [], []
    i, j = len(told), len(heard)
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (told[i - 1] != heard[j - 1]):
            i, j = i - 1, j - 1
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            i -= 1
            lost.append(i)
        else:
            j -= 1
            extra.append(j)
    return lost[::-1], extra[::-1]


def cut_at_segments(
    model: NemoModel, recording: Recording, options: SearchOptions, seconds: float = 0.0
) -> WordErrors:
    """Errors of the speech cut exactly at its reference segments; neighbours joined up to that many seconds.

    Joining tells what chunking costs: no cut falls into a word, but one piece holds several segments, often
    of several speakers, as the worker's chunks do.
    """
    pieces: list[tuple[Audio, str]] = []
    first = None
    for segment in recording.segments:
        start, end = int(segment["start"] * RATE), int(segment["end"] * RATE)
        if first is not None and end - first <= seconds * RATE:
            pieces[-1] = recording.audio[first:end], f"{pieces[-1][1]} {segment['text']}"
        else:
            first = start
            pieces.append((recording.audio[start:end], segment["text"]))
    texts = decoded(model, [audio for audio, _ in pieces], options)
    return total_errors(word_errors(told, text) for (_, told), text in zip(pieces, texts, strict=True))
