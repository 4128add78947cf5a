"""Voice prints of a recording: overlapping windows inside speech, cut as the samples come by.

Owns where windows lie and how loud they are heard; leaves the network to `worker.diarization.encoder`, and
where it runs to whoever passes `run`. Memory is 38 s of samples for each step on its way, and 1 kB
for each window's voice print. A piece's windows are encoded together and with no others, so a voice print
depends on the recording alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from worker.audio.resample import SAMPLE_RATE
from worker.diarization.base import RunSteps
from worker.diarization.encoder import HOP, SIZE, VoiceEncoder, mel_power
from worker.speech.spans import Stretch

Floats = NDArray[np.float32]
Span = tuple[float, float]
"""Start and end in seconds."""

_PIECE = 38 * SAMPLE_RATE  # with the overlap below the 40 s of a step; fewer columns of a panel stand empty
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


@dataclass(frozen=True, slots=True)
class EncodeVoices:
    """Asks for the voice prints of windows of one piece of a recording, each given by its first mel frame in
    the piece and its number of frames. Frame t is centred on sample `200 + 160 * t` of the piece; behind the
    last sample are zeros."""

    windows: tuple[tuple[int, int], ...]


def voice_prints(
    blocks: Iterable[Floats], spans: Sequence[Span], run: RunSteps[EncodeVoices, Floats]
) -> Floats:
    """`[len(spans), 256]` of one recording that comes in `blocks` (float32 `[n]` at 16 kHz)."""
    prints = np.zeros((len(spans), SIZE), np.float32)
    done = 0
    for part in run(_steps(blocks, spans)):
        prints[done : done + len(part)] = part
        done += len(part)
    return prints


def encode_voices(samples: Floats, step: EncodeVoices, encoder: VoiceEncoder) -> Floats:
    """The step's voice prints `[N, 256]`, every window brought to the same loudness first."""
    reach = max(first + count for first, count in step.windows)
    missing = max(0, (reach - 1) * HOP + 2 * _HALF_FRAME - len(samples))
    mels = mel_power(np.pad(samples, (0, missing)))
    windows = []
    for first, count in step.windows:
        sound = samples[first * HOP + _HALF_FRAME : (first + count) * HOP + _HALF_FRAME]
        level = 10 * np.log10(np.mean(np.square(sound)) + 1e-12)
        windows.append(mels[first : first + count] * np.float32(10 ** ((_LOUDNESS - level) / 10)))
    return encoder.encode(windows)


def _steps(blocks: Iterable[Floats], spans: Sequence[Span]) -> Iterator[tuple[Floats, EncodeVoices]]:
    """The windows in order, piece by piece; pieces without a window are left out."""
    frames = [_frames_of(span) for span in spans]
    done = 0
    for first, samples, final in _pieces(blocks, frames):
        complete = (len(samples) - 2 * _HALF_FRAME) // HOP + 1
        windows = []
        while done < len(frames) and (final or sum(frames[done]) - first <= complete):
            windows.append((frames[done][0] - first, frames[done][1]))
            done += 1
        if windows:
            yield samples, EncodeVoices(tuple(windows))


def _pieces(
    blocks: Iterable[Floats], frames: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, Floats, bool]]:
    """The recording in overlapping pieces, as (first mel frame, samples, whether it is the last piece).

    Each starts 200 samples before its first frame's centre (zeros before the recording). The overlap is the
    longest window, so each window lies in one piece. Pieces are of one length, whatever the blocks are.
    """
    overlap = max((count for _, count in frames), default=0) * HOP + 2 * _HALF_FRAME
    size = _PIECE + overlap // HOP * HOP
    first, held = 0, np.zeros(_HALF_FRAME, np.float32)
    for block in blocks:
        held = np.concatenate([held, block])
        while len(held) >= size:
            yield first, held[:size], False
            first += _PIECE // HOP
            held = held[_PIECE:].copy()
    yield first, held, True


def _frames_of(span: Span) -> tuple[int, int]:
    """The first mel frame of a window and their number."""
    return round(span[0] * 100), round((span[1] - span[0]) * 100)
