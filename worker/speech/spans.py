"""Divides a recording by the detector's probabilities into speech, no speech and unclear.

Owns the rules and their thresholds. Speech and no speech are two rules, measured separately
(docs/speakers.md), with room between them:

- *speech*: Silero's own hysteresis. On at `threshold`, off once the probability has stayed below `release`
  for `min_silence`; short stretches are dropped, the others padded.
- *no speech*: below `NO_SPEECH` for 4 s or more, less a margin on both sides except at the recording's ends.
  It is not decoded.
- *unclear*: all the rest, which is decoded too.

*No speech* is also marked as silent, by level alone, or not. Music and noise are not told apart, since no
measure could (docs/speakers.md).
"""

import itertools
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE
from worker.speech.detector import FRAME

Probabilities = NDArray[np.float32]
Levels = NDArray[np.float32]
Stretch = tuple[int, int]
"""Start and end in samples at 16 kHz, the end not included."""


class SpanLabel(StrEnum):
    """The label of a span."""

    speech = "speech"
    none = "no_speech"
    unclear = "unclear"


@dataclass(frozen=True, slots=True)
class SpeechSpan:
    """One span, in seconds of the recording. silent: no speech, and nothing louder than `SILENT`."""

    start: float
    end: float
    label: SpanLabel
    silent: bool = False


@dataclass(frozen=True, slots=True)
class SpeechOptions:
    """When speech begins and ends; durations in seconds. The default diarizer is measured with these."""

    threshold: float = 0.5
    release: float = 0.35
    min_speech: float = 0.25
    min_silence: float = 0.3
    pad: float = 0.06


@dataclass(frozen=True, slots=True)
class NoSpeechOptions:
    """When a stretch is not decoded; durations in seconds. 4 s lost none of 6,224 words, 2 s lost some."""

    threshold: float = 0.2
    seconds: float = 4.0
    margin: float = 0.5


SILENT = -60.0
"""dBFS, as in the silence gate."""
SPEECH = SpeechOptions()
NO_SPEECH = NoSpeechOptions()


def speech_stretches(
    probabilities: Probabilities, samples: int, options: SpeechOptions = SPEECH
) -> list[Stretch]:
    """Where somebody speaks in a recording of `samples`, in order and without overlap."""
    stretches: list[Stretch] = []
    start: int | None = None
    quiet: int | None = None
    for index, probability in enumerate(probabilities.tolist()):
        at = index * FRAME
        if probability >= options.threshold:
            quiet = None
            start = at if start is None else start
        elif probability < options.release and start is not None:
            quiet = at if quiet is None else quiet
            if at - quiet >= options.min_silence * SAMPLE_RATE:
                if quiet - start > options.min_speech * SAMPLE_RATE:
                    stretches.append((start, quiet))
                start = quiet = None
    if start is not None and samples - start > options.min_speech * SAMPLE_RATE:
        stretches.append((start, samples))
    return _pad(stretches, samples, int(options.pad * SAMPLE_RATE))


def _pad(stretches: list[Stretch], samples: int, pad: int) -> list[Stretch]:
    """Each stretch extended by `pad` on both sides, or by half of the gap if that is less."""
    if not stretches:
        return []
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(stretches)]
    rooms = [min(pad, stretches[0][0]), *(min(pad, gap // 2) for gap in gaps), pad]
    return [
        (start - rooms[index], min(samples, end + rooms[index + 1]))
        for index, (start, end) in enumerate(stretches)
    ]


def silent_stretches(
    probabilities: Probabilities, samples: int, options: NoSpeechOptions = NO_SPEECH, before: int = 0
) -> list[Stretch]:
    """The stretches that need no decoding, without their margins. `probabilities` are those after the first
    `before` frames of a recording of `samples`."""
    low = np.concatenate(([False], probabilities < options.threshold, [False]))
    edges = np.flatnonzero(np.diff(low.astype(np.int8)))
    margin = round(options.margin * SAMPLE_RATE)
    stretches = []
    edges = (edges + before) * FRAME
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        end = min(last, samples)
        if end - first >= options.seconds * SAMPLE_RATE:
            stretches.append((first + margin if first else 0, end - margin if end < samples else end))
    return stretches


def label_spans(
    probabilities: Probabilities,
    samples: int,
    speech: SpeechOptions = SPEECH,
    silence: NoSpeechOptions = NO_SPEECH,
    levels: Levels | None = None,
) -> list[SpeechSpan]:
    """The whole recording of `samples` as spans without overlaps or gaps. levels: the level of each frame in
    dBFS, if known."""
    labelled = sorted(
        [(*stretch, SpanLabel.speech) for stretch in speech_stretches(probabilities, samples, speech)]
        + [(*stretch, SpanLabel.none) for stretch in silent_stretches(probabilities, samples, silence)]
    )
    spans: list[SpeechSpan] = []
    reached = 0
    for start, end, label in [*labelled, (samples, samples, SpanLabel.unclear)]:
        if start > reached:
            spans.append(_span(reached, start, SpanLabel.unclear))
        if end > max(start, reached):
            begun = max(start, reached)
            silent = label is SpanLabel.none and levels is not None and _is_silent(levels, begun, end)
            spans.append(replace(_span(begun, end, label), silent=silent))
        reached = max(reached, end)
    return spans


def _is_silent(levels: Levels, start: int, end: int) -> bool:
    """Whether `[start, end)` contains whole frames and none of them is louder than `SILENT`."""
    inside = levels[-(-start // FRAME) : end // FRAME]
    return bool(len(inside) and inside.max() <= SILENT)


def _span(start: int, end: int, label: SpanLabel) -> SpeechSpan:
    return SpeechSpan(start / SAMPLE_RATE, end / SAMPLE_RATE, label)
