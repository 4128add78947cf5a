"""What is to be done with the answer to a window: keep it, halve the window, or hear nothing in it.

Canary writes words for noise and silence, so a window over which the speech detector stays low has none. A
loop is halved and asked again, and cut where the window cannot be halved any more. Knows no engine.
"""

import numpy as np
from numpy.typing import NDArray

from worker.models.attention.windows import HALVED_SECONDS_MIN, ROUNDS_MAX, cut_runs, halves, repeats_itself
from worker.models.base_attention import Reading, Verdict, Window
from worker.speech.detector import SpeechDetector
from worker.speech.guard import DOUBT


def judge(
    window: Window, reading: Reading, samples: NDArray[np.float32], detector: SpeechDetector
) -> Verdict:
    """What becomes of a window of these samples, at 16 kHz."""
    if reading.words == 0 or not is_spoken(samples, detector):
        return Verdict("hush")
    if not repeats_itself(reading):
        return Verdict("kept", reading.tokens)
    if window.round < ROUNDS_MAX and window.seconds > HALVED_SECONDS_MIN:
        return Verdict("divided", again=halves(window, samples))
    return Verdict("kept", cut_runs(reading.tokens))


def is_spoken(samples: NDArray[np.float32], detector: SpeechDetector) -> bool:
    """Whether anyone may be speaking; a true word reaches the detector's `DOUBT` in 99.9 % of cases."""
    probabilities = detector.probabilities([samples])[0]
    return bool(probabilities.max(initial=0.0) >= DOUBT)
