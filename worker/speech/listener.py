"""Runs the speech detector on a job's audio as it is read: one listener for each channel.

Owns the probabilities so far and the processor time that they took; `worker.segmentation` decides the cuts,
and `worker.jobs.transcript` what becomes of words.
"""

import hashlib
import time
from functools import cache

import numpy as np

from worker.speech.detector import FRAME, WEIGHTS, Floats, SpeechDetector
from worker.speech.guard import DOUBT, DROP_MARGIN, MARGIN
from worker.speech.spans import NO_SPEECH, SPEECH, Stretch, silent_stretches

_LOOK_BACK = 160
"""Frames (5 s); longer than the shortest stretch without speech and its margin."""


class SpeechListener:
    """Follows one channel from its start."""

    def __init__(self, detector: SpeechDetector) -> None:
        self._stream = detector.stream()
        self._probabilities = np.zeros(1024, np.float32)
        self._levels: list[Floats] = []
        self._rest = np.zeros(0, np.float32)
        self._ended = False
        self._unbilled_ns = 0
        self.frames = 0

    @property
    def probabilities(self) -> Floats:
        """The probability of each frame so far, float32 `[frames]`."""
        return self._probabilities[: self.frames]

    @property
    def levels(self) -> Floats:
        """The level of each whole frame in dBFS (0: full-scale square wave), DC removed: float32 `[n]`."""
        return np.concatenate([np.zeros(0, np.float32), *self._levels])

    @property
    def has_ended(self) -> bool:
        """Whether `finish` was called."""
        return self._ended

    @property
    def samples(self) -> int:
        """The number of samples so far."""
        return self._stream.samples

    def push(self, block: Floats) -> None:
        """Add float32 `[n]` at 16 kHz. Raises AudioNotFinite."""
        begun = time.thread_time_ns()
        self._keep(self._stream.push(block))
        self._measure(block)
        self._unbilled_ns += time.thread_time_ns() - begun

    def finish(self) -> None:
        """End the recording."""
        if self._ended:
            return
        begun = time.thread_time_ns()
        self._keep(self._stream.finish())
        self._ended = True
        self._unbilled_ns += time.thread_time_ns() - begun

    def take_ns(self) -> int:
        """Nanoseconds of processor time since the last call, for the caller to bill."""
        taken, self._unbilled_ns = self._unbilled_ns, 0
        return taken

    def has_heard(self, samples: int) -> bool:
        """Whether every frame that ends within the first `samples` has its probability."""
        return self._ended or self.frames >= samples // FRAME

    def silences(self, start: int, stop: int, ended: bool) -> list[Stretch]:
        """Stretches without speech in `[start, stop)`, in samples of the recording, by frames before `stop`.

        ended: the recording ends at `stop`. A stretch that continues past `stop` keeps its margin there.
        """
        first = max(0, start // FRAME - _LOOK_BACK)
        last = self.frames if ended else stop // FRAME
        known = stop if ended else stop + 1
        return [
            (a, b)
            for a, b in silent_stretches(self._probabilities[first:last], known, before=first)
            if b > start
        ]

    def _measure(self, block: Floats) -> None:
        held = np.concatenate([self._rest, block])
        frames = held[: len(held) // FRAME * FRAME].reshape(-1, FRAME)
        self._rest = held[frames.size :]
        # The variance in two passes, so that a large mean does not cost it precision in float32.
        frames = frames - frames.mean(axis=1, keepdims=True)
        power = np.einsum("ij,ij->i", frames, frames) / np.float32(FRAME)
        self._levels.append(10 * np.log10(np.maximum(power, np.float32(1e-20))))

    def _keep(self, probabilities: Floats) -> None:
        frames = self.frames + len(probabilities)
        if frames > len(self._probabilities):
            self._probabilities = np.pad(self._probabilities, (0, frames))
        self._probabilities[self.frames : frames] = probabilities
        self.frames = frames


@cache
def load_detector() -> SpeechDetector:
    """The detector shared by this process. Raises ModelError."""
    return SpeechDetector.load()


@cache
def detector_digest() -> str:
    """SHA-256 of the detector's weights and thresholds, part of the fingerprint of chunks (law 11)."""
    rules = repr((SPEECH, NO_SPEECH, DOUBT, MARGIN, DROP_MARGIN)).encode()
    return hashlib.sha256(hashlib.sha256(WEIGHTS.read_bytes()).digest() + rules).hexdigest()


def listeners(channels: int) -> list[SpeechListener]:
    """One for each channel of a recording. Raises ModelError."""
    return [SpeechListener(load_detector()) for _ in range(channels)]
