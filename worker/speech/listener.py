"""The speech detector beside a job: one listener for each channel, from the blocks it is read in.

Owns the probabilities so far and the processor time that they took; leaves the cut to `worker.segmentation`
and what becomes of words to `worker.jobs.transcript`.
"""

import hashlib
import time
from functools import cache

import numpy as np

from worker.speech.detector import FRAME, WEIGHTS, Floats, SpeechDetector
from worker.speech.guard import DOUBT, DROP_MARGIN, MARGIN
from worker.speech.spans import NO_SPEECH, SPEECH, Stretch, silent_stretches

_LOOK_BACK = 160
"""Frames: 5 s, more than a stretch without speech and its margin take to be one."""


class SpeechListener:
    """Hears one channel from its start."""

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
        """One for each frame so far, float32 `[frames]`."""
        return self._probabilities[: self.frames]

    @property
    def levels(self) -> Floats:
        """In dBFS (a full-scale square wave is 0) of each whole frame so far, its mean left out: float32."""
        return np.concatenate([np.zeros(0, np.float32), *self._levels])

    @property
    def has_ended(self) -> bool:
        """Whether it heard the channel to its end."""
        return self._ended

    @property
    def samples(self) -> int:
        """How many came in."""
        return self._stream.samples

    def push(self, block: Floats) -> None:
        """Hear float32 `[n]` at 16 kHz. Raises AudioNotFinite."""
        begun = time.thread_time_ns()
        self._keep(self._stream.push(block))
        self._measure(block)
        self._unbilled_ns += time.thread_time_ns() - begun

    def finish(self) -> None:
        """The recording is over."""
        if self._ended:
            return
        begun = time.thread_time_ns()
        self._keep(self._stream.finish())
        self._ended = True
        self._unbilled_ns += time.thread_time_ns() - begun

    def take_ns(self) -> int:
        """Nanoseconds of processor time since the last call, which are then the caller's to bill."""
        taken, self._unbilled_ns = self._unbilled_ns, 0
        return taken

    def has_heard(self, samples: int) -> bool:
        """Whether every frame that ends within the first `samples` has its probability."""
        return self._ended or self.frames >= samples // FRAME

    def silences(self, start: int, stop: int, ended: bool) -> list[Stretch]:
        """Where nobody speaks in `[start, stop)`, in samples of the recording, by no frame beyond `stop`.

        ended: the recording ends at `stop`. What goes on beyond keeps its margin there.
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
        # The variance in two passes, so that in float32 too a large mean takes nothing from it.
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
def shared_detector() -> SpeechDetector:
    """The detector of this process. Raises ModelError."""
    return SpeechDetector.load()


@cache
def detector_digest() -> str:
    """SHA-256 of what the detector decides by: its weights and every threshold. Part of the fingerprint of
    what is made with it (law 11)."""
    rules = repr((SPEECH, NO_SPEECH, DOUBT, MARGIN, DROP_MARGIN)).encode()
    return hashlib.sha256(hashlib.sha256(WEIGHTS.read_bytes()).digest() + rules).hexdigest()


def listeners(channels: int) -> list[SpeechListener]:
    """One for each channel of a recording. Raises ModelError."""
    return [SpeechListener(shared_detector()) for _ in range(channels)]
