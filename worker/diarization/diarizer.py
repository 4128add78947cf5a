"""The default diarizer: who speaks when in one channel, by the speech detector and the voice encoder.

Owns the order of the steps. It reads the recording twice, once for speech and once for voices, so that an
hour needs no more memory than a minute but for 1 kB a window (9 MB an hour). It gives one speaker at a time:
where two speak at once, the second is missed.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from worker.diarization.clustering import ClusterOptions, cluster_prints
from worker.diarization.encoder import VoiceEncoder
from worker.diarization.timeline import SpeakerSegment, build_timeline
from worker.diarization.windows import WindowOptions, plan_windows, voice_prints
from worker.speech.detector import SpeechDetector
from worker.speech.spans import SPEECH, SpeechOptions, speech_stretches

Blocks = Iterable[NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class DiarizeOptions:
    """Everything that decides the segments."""

    speech: SpeechOptions = SPEECH
    windows: WindowOptions = field(default_factory=WindowOptions)
    clusters: ClusterOptions = field(default_factory=ClusterOptions)


@dataclass(frozen=True, slots=True, eq=False)
class Diarization:
    """Segments in order, without overlap; the detector's probabilities; and the recording's samples."""

    segments: list[SpeakerSegment]
    probabilities: NDArray[np.float32]
    samples: int

    @property
    def speakers(self) -> int:
        """How many were told apart."""
        return len({segment.speaker for segment in self.segments})


class Diarizer:
    """Both networks; safe to share."""

    def __init__(self, detector: SpeechDetector | None = None, encoder: VoiceEncoder | None = None) -> None:
        """Loads what is not given. Raises ModelError."""
        self._detector = detector or SpeechDetector.load()
        self._encoder = encoder or VoiceEncoder.load()

    def diarize(self, read: Callable[[], Blocks], options: DiarizeOptions | None = None) -> Diarization:
        """The speakers of one channel; `read()` gives its blocks (float32 `[n]` at 16 kHz) anew each time.

        Raises AudioNotFinite, and whatever `read` raises.
        """
        options = options or DiarizeOptions()
        probabilities, samples = self._detector.follow(read())
        stretches = speech_stretches(probabilities, samples, options.speech)
        spans = plan_windows(stretches, options.windows)
        prints = voice_prints(read(), spans, self._encoder) if spans else np.zeros((0, 1), np.float32)
        labels = cluster_prints(prints, options.clusters)
        return Diarization(build_timeline(stretches, spans, prints, labels), probabilities, samples)
