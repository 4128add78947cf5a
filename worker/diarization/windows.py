"""Voice prints of a recording: overlapping windows inside speech, cut as the samples come by.

Owns where windows lie and how loud they are heard; leaves the network to `worker.diarization.encoder`. Memory
is half a minute of samples, one batch of windows, and 1 kB for each window's voice print.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE
from worker.diarization.encoder import HOP, SIZE, VoiceEncoder, mel_power
from worker.speech.spans import Stretch

Floats = NDArray[np.float32]
Span = tuple[float, float]
"""Start and end in seconds."""

_PIECE = 30 * SAMPLE_RATE
_AT_ONCE = 128
_HALF_FRAME = 200
_LOUDNESS = -30.0
"""dBFS of every window; Resemblyzer raises only, this lowers too."""


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Seconds: from window to window, of a window, and of the shortest stretch that has one."""

    hop: float = 0.4
    size: float = 1.6
    shortest: float = 0.4


def plan_windows(stretches: Sequence[Stretch], options: WindowOptions) -> list[Span]:
    """The windows of all stretches in order; a stretch shorter than a window is one window."""
    spans: list[Span] = []
    for first, last in stretches:
        start, end = first / SAMPLE_RATE, last / SAMPLE_RATE
        if end - start < options.shortest:
            continue
        if end - start <= options.size:
            spans.append((start, end))
            continue
        starts = np.arange(start, end - options.size + 1e-6, options.hop).tolist()
        if (end - start - options.size) % options.hop > 0.05:
            starts.append(end - options.size)
        spans.extend((at, min(at + options.size, end)) for at in starts)
    return spans


def voice_prints(blocks: Iterable[Floats], spans: Sequence[Span], encoder: VoiceEncoder) -> Floats:
    """`[len(spans), 256]` of one recording that comes in `blocks` (float32 `[n]` at 16 kHz)."""
    prints = np.zeros((len(spans), SIZE), np.float32)
    waiting: list[tuple[int, Floats]] = []
    for index, mels in _window_mels(blocks, spans):
        waiting.append((index, mels))
        if len(waiting) == _AT_ONCE or index == len(spans) - 1:
            prints[[at for at, _ in waiting]] = encoder.encode([window for _, window in waiting])
            waiting = []
    return prints


def _window_mels(blocks: Iterable[Floats], spans: Sequence[Span]) -> Iterator[tuple[int, Floats]]:
    """Each window's index and its mel power `[T, 40]` at the common loudness, in order."""
    frames = [_frames_of(span) for span in spans]
    done = 0
    for first, samples, final in _pieces(blocks, frames):
        mels = mel_power(np.pad(samples, (0, _HALF_FRAME if final else 0)))
        while done < len(frames):
            start, count = frames[done][0] - first, frames[done][1]
            if start + count > len(mels) and not final:
                break
            power = mels[start : start + count]
            sound = samples[start * HOP + _HALF_FRAME : (start + count) * HOP + _HALF_FRAME]
            level = 10 * np.log10(np.mean(np.square(sound)) + 1e-12)
            power = power * np.float32(10 ** ((_LOUDNESS - level) / 10))
            yield done, np.pad(power, ((0, count - len(power)), (0, 0)))
            done += 1


def _pieces(
    blocks: Iterable[Floats], frames: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, Floats, bool]]:
    """The recording in overlapping pieces, as (first mel frame, samples, whether it is the last piece).

    Each starts 200 samples before its first frame's centre (zeros before the recording). The overlap is the
    longest window, so each window lies in one piece.
    """
    overlap = max((count for _, count in frames), default=0) * HOP + 2 * _HALF_FRAME
    first, parts, length = 0, [np.zeros(_HALF_FRAME, np.float32)], _HALF_FRAME
    for block in blocks:
        parts.append(block)
        length += len(block)
        if length < _PIECE + overlap:
            continue
        samples = np.concatenate(parts)
        yield first, samples, False
        kept = samples[(length - overlap) // HOP * HOP :]
        first += (length - overlap) // HOP
        parts, length = [kept.copy()], len(kept)
    yield first, np.concatenate(parts), True


def _frames_of(span: Span) -> tuple[int, int]:
    """The first mel frame of a window and their number."""
    return round(span[0] * 100), round((span[1] - span[0]) * 100)
