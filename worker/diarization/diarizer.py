"""The default diarizer: speakers of one channel, by the speech detector and the voice encoder.

It reads the recording twice, once for speech and once for voices, so that memory grows only by 1 kB per
window (9 MB an hour). It finds one speaker at a time: where two speak at once, the second is missed.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from worker.diarization import encoder as voices
from worker.diarization.base import (
    FRAME_SAMPLES,
    Blocks,
    Diarization,
    Floats,
    RunSteps,
    SpeakerBounds,
    SpeechHeard,
    run_here,
)
from worker.diarization.clustering import ClusterOptions, cluster_prints
from worker.diarization.encoder import VoiceEncoder
from worker.diarization.prints import speaker_prints
from worker.diarization.timeline import build_timeline
from worker.diarization.windows import EncodeVoices, WindowOptions, encode_voices, plan_windows, voice_prints
from worker.speech import detector as speech
from worker.speech.detector import SpeechDetector
from worker.speech.spans import SPEECH, SpeechOptions, speech_stretches

VERSION = 2
"""Incremented with every change that may change segments."""


@dataclass(frozen=True, slots=True)
class DiarizeOptions:
    """All options that affect the segments."""

    speech: SpeechOptions = SPEECH
    windows: WindowOptions = field(default_factory=WindowOptions)
    clusters: ClusterOptions = field(default_factory=ClusterOptions)


class VoiceNetwork:
    """The voice encoder as the engine runs it."""

    size = 32 << 20

    def __init__(self, encoder: VoiceEncoder | None = None) -> None:
        """Load the encoder that comes with Spool, unless another is given. Raises ModelError."""
        self._encoder = encoder or VoiceEncoder.load()

    def run(self, samples: Floats, step: EncodeVoices) -> Floats:
        """The voice prints `[N, 256]` of the step's windows."""
        return encode_voices(samples, step, self._encoder)

    def frames(self, samples: Floats, step: EncodeVoices) -> int:  # noqa: ARG002 - the protocol's
        return len(samples) // FRAME_SAMPLES


class DefaultDiarizer:
    """The detector, the windows and the clustering; safe to share. `VoiceNetwork` has the encoder."""

    most_speakers = None

    def __init__(self, path: str = "", detector: SpeechDetector | None = None) -> None:
        """`path` is what the engine loads the encoder by. Raises ModelError."""
        self.path = path
        self._detector = detector or SpeechDetector.load()

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of both networks' weights, the options and the version."""
        digest = hashlib.sha256(f"{VERSION} {DiarizeOptions()}".encode())
        for path in (speech.WEIGHTS, voices.WEIGHTS):
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    def diarize(
        self,
        read: Callable[[], Blocks],
        run: RunSteps[Any, Any],
        bounds: SpeakerBounds,
        speech: SpeechHeard | None = None,
    ) -> Diarization:
        clusters = ClusterOptions(min_speakers=bounds.least, max_speakers=bounds.most)
        return self.follow(read, run, DiarizeOptions(clusters=clusters), speech)

    def follow(
        self,
        read: Callable[[], Blocks],
        run: RunSteps[EncodeVoices, Floats],
        options: DiarizeOptions,
        heard: SpeechHeard | None = None,
    ) -> Diarization:
        """Like `diarize`, with options."""
        if heard is None:
            heard = SpeechHeard(*self._detector.follow(read()))
        probabilities, samples = heard.probabilities, heard.samples
        stretches = speech_stretches(probabilities, samples, options.speech)
        spans = plan_windows(stretches, options.windows)
        prints = voice_prints(read(), spans, run) if spans else np.zeros((0, 1), np.float32)
        labels = cluster_prints(prints, options.clusters)
        segments = build_timeline(stretches, spans, prints, labels)
        return Diarization(segments, probabilities, samples, speaker_prints(spans, prints, segments))


class Diarizer:
    """Both parts in this process, for measurements."""

    def __init__(self) -> None:
        """Raises ModelError."""
        self._model, self._run = DefaultDiarizer(), run_here(VoiceNetwork())

    def diarize(self, read: Callable[[], Blocks], options: DiarizeOptions | None = None) -> Diarization:
        """Diarize one channel; each `read()` returns its blocks (float32 `[n]` at 16 kHz) from the start.

        Raises AudioNotFinite, and whatever `read` raises.
        """
        return self._model.follow(read, self._run, options or DiarizeOptions())
