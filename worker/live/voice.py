"""The speech detector beside a live session: since when nobody speaks, and when somebody does again."""

import numpy as np
from numpy.typing import NDArray

from worker.audio import SAMPLE_RATE
from worker.speech.detector import FRAME, FRAME_SECONDS, SpeechDetector
from worker.speech.spans import SPEECH

GROUP = 8
"""Frames that are computed at once: the detector lags 0.25 s behind at the most."""


class Voice:
    """Hears one session. `unvoiced`: seconds since somebody spoke, as far as was heard."""

    def __init__(self, detector: SpeechDetector) -> None:
        self._stream = detector.stream(GROUP)
        self._frames = 0
        self._spoken = 0  # the frame behind the last one with speech
        self._speaks = False

    @property
    def unvoiced(self) -> float:
        """Seconds, of the audio that was heard, since the last speech or the start."""
        return (self._frames - self._spoken) * FRAME_SECONDS

    def push(self, samples: NDArray[np.float32]) -> list[float]:
        """The next samples; when somebody began to speak in them, in seconds from the start."""
        began = []
        for probability in self._stream.push(samples).tolist():
            if probability >= (SPEECH.release if self._speaks else SPEECH.threshold):
                if not self._speaks:
                    began.append(round(self._frames * FRAME / SAMPLE_RATE, 3))
                self._speaks, self._spoken = True, self._frames + 1
            elif (self._frames - self._spoken) * FRAME_SECONDS >= SPEECH.min_silence:
                self._speaks = False
            self._frames += 1
        return began
