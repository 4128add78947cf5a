"""The voice print of each speaker of a recording: the mean of the windows in which only they speak."""

import hashlib
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from worker.diarization import encoder
from worker.diarization.base import SpeakerSegment
from worker.diarization.windows import Span

Floats = NDArray[np.float32]
FEWEST_WINDOWS = 10
"""Four seconds of speech; a print of less is not reliable."""


def speaker_prints(
    spans: Sequence[Span], prints: Floats, segments: Sequence[SpeakerSegment]
) -> dict[int, Floats]:
    """For each speaker of `segments` (in order, one speaker at a time) the normalised mean of the voice
    prints `[N, D]` of `spans` that lie wholly within one of their segments. Speakers with fewer than
    `FEWEST_WINDOWS` have none."""
    own: dict[int, list[int]] = {}
    at = 0
    joined = _join_segments(segments)
    for index, (start, end) in enumerate(spans):
        while at < len(joined) and joined[at].end < start:
            at += 1
        if at < len(joined) and joined[at].start - 1e-3 <= start and end <= joined[at].end + 1e-3:
            own.setdefault(joined[at].speaker, []).append(index)
    means = {s: prints[rows].mean(0) for s, rows in own.items() if len(rows) >= FEWEST_WINDOWS}
    return {speaker: mean / np.linalg.norm(mean) for speaker, mean in sorted(means.items())}


@cache
def encoder_digest() -> str:
    """SHA-256 (hex) of the weights that make voice prints."""
    return hashlib.sha256(encoder.WEIGHTS.read_bytes()).hexdigest()


def _join_segments(segments: Sequence[SpeakerSegment]) -> list[SpeakerSegment]:
    """The segments, with adjacent ones of the same speaker joined."""
    joined: list[SpeakerSegment] = []
    for each in segments:
        if joined and joined[-1].speaker == each.speaker and each.start - joined[-1].end < 1e-3:
            joined[-1] = SpeakerSegment(joined[-1].start, each.end, each.speaker)
        else:
            joined.append(each)
    return joined
