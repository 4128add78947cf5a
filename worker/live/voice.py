"""Runs the speech detector for a live session: how long there has been no speech, and when speech begins.

An answer for a moment depends only on the audio before it, not on block sizes or on later audio that has
already arrived (law 7).
"""

import numpy as np
from numpy.typing import NDArray

from worker.audio import SAMPLE_RATE
from worker.speech.detector import FRAME, FRAME_SECONDS, SpeechDetector
from worker.speech.spans import SPEECH

GROUP = 8
"""Frames computed at once: the detector lags by at most 0.25 s."""


class Voice:
    """Follows one session. Times are seconds from its start."""

    def __init__(self, detector: SpeechDetector) -> None:
        self._stream = detector.stream(GROUP)
        self._frames = 0
        self._spoken = 0  # the frame after the last one with speech
        self._spoken_by_group = [0]
        self._speaks = False
        self._starts: list[int] = []

    def push(self, samples: NDArray[np.float32]) -> None:
        """Add samples, [N] float32 at 16 kHz in -1 … 1."""
        for probability in self._stream.push(samples).tolist():
            if probability >= (SPEECH.release if self._speaks else SPEECH.threshold):
                if not self._speaks:
                    self._starts.append(self._frames)
                self._speaks, self._spoken = True, self._frames + 1
            elif (self._frames - self._spoken) * FRAME_SECONDS >= SPEECH.min_silence:
                self._speaks = False
            self._frames += 1
            if self._frames % GROUP == 0:
                self._spoken_by_group.append(self._spoken)

    def measure_unvoiced(self, at: float) -> float:
        """Seconds since the last speech, or since the start, as known at the moment `at`."""
        groups = self._groups(at)
        return (groups * GROUP - self._spoken_by_group[groups]) * FRAME_SECONDS

    def take_starts(self, at: float) -> list[float]:
        """When speech began, as known at the moment `at`; each beginning is returned once."""
        heard = self._groups(at) * GROUP
        starts = [round(frame * FRAME / SAMPLE_RATE, 3) for frame in self._starts if frame < heard]
        self._starts = [frame for frame in self._starts if frame >= heard]
        return starts

    def _groups(self, at: float) -> int:
        """Groups of frames that are complete at this moment."""
        return min(int(at * SAMPLE_RATE) // (GROUP * FRAME), len(self._spoken_by_group) - 1)
