"""The language of a recording from what the model said of each chunk.

Chunks are identified one by one, so that they can be decoded in any order (law 7). A short or noisy one is
easily taken for another language; here the sequence of a channel is smoothed: the most probable one where a
change of language between neighbours costs `CHANGE` (a first-order chain, by Viterbi's algorithm). Knows
numbers; what was decoded stays as it is, and a chunk that was read in another language says so.
"""

import math
from collections import defaultdict
from collections.abc import Sequence

from spool.domain.recognition import ChunkSpan
from spool.domain.transcript import ChunkLanguage, LanguageSpan
from worker.audio import SAMPLE_RATE

CHANGE = math.log(20)
"""Natural logarithm: an island of one chunk needs odds of 400 to 1, a lasting change 20 to 1 in all."""
_LEAST = 1e-3
"""What a language has that is not among a chunk's likeliest."""

Heard = tuple[ChunkSpan, ChunkLanguage]


def language_spans(chunks: Sequence[Heard]) -> tuple[LanguageSpan, ...]:
    """What is spoken in each chunk, by channel and time."""
    spans: list[LanguageSpan] = []
    for channel in sorted({span.channel for span, _ in chunks}):
        own = sorted((each for each in chunks if each[0].channel == channel), key=lambda each: each[0].index)
        spoken = _smooth([language for _, language in own])
        spans += [_span(*each, code) for each, code in zip(own, spoken, strict=True)]
    return tuple(spans)


def main_language(spans: Sequence[LanguageSpan]) -> str | None:
    """What is spoken for most of the time; None without spans."""
    seconds: dict[str, float] = defaultdict(float)
    for span in spans:
        seconds[span.language] += span.end - span.start
    return max(sorted(seconds), key=lambda code: seconds[code], default=None)


def _smooth(chunks: Sequence[ChunkLanguage]) -> list[str]:
    """The most probable language of each chunk of one channel, in order."""
    codes = sorted({code for chunk in chunks for code in (chunk.code, *chunk.probabilities)})
    scores = [0.0] * len(codes)
    steps: list[list[int]] = []
    for chunk in chunks:
        best = max(range(len(codes)), key=lambda index: scores[index])
        parents = [at if scores[at] >= scores[best] - CHANGE else best for at in range(len(codes))]
        steps.append(parents)
        scores = [
            scores[parent] - CHANGE * (parent != at) + math.log(_share(chunk, codes[at]))
            for at, parent in enumerate(parents)
        ]
    at = max(range(len(codes)), key=lambda index: scores[index], default=0)
    spoken = []
    for parents in reversed(steps):
        spoken.append(codes[at])
        at = parents[at]
    return spoken[::-1]


def _share(chunk: ChunkLanguage, code: str) -> float:
    given = chunk.probabilities or {chunk.code: 1.0}
    return max(given.get(code, 0.0), _LEAST)


def _span(span: ChunkSpan, heard: ChunkLanguage, code: str) -> LanguageSpan:
    return LanguageSpan(
        start=round(span.core_start / SAMPLE_RATE, 3),
        end=round(span.core_end / SAMPLE_RATE, 3),
        channel=span.channel,
        language=code,
        probability=heard.probabilities.get(code, 0.0) if heard.probabilities else None,
        read_as=None if heard.code == code else heard.code,
    )
