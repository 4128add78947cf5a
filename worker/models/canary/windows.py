"""What is to be done with the answer to a window: keep it, or halve the window.

A loop is halved and asked again, and cut where the window cannot be halved any more. That nothing is asked
where nobody speaks is the speech detector's business (`worker.speech`): Canary writes words for silence too.
Knows no engine.
"""

import numpy as np
from numpy.typing import NDArray

from worker.models.attention.windows import HALVED_SECONDS_MIN, ROUNDS_MAX, cut_runs, halves, repeats_itself
from worker.models.base_attention import Reading, Verdict, Window


def judge(window: Window, reading: Reading, samples: NDArray[np.float32]) -> Verdict:
    """What becomes of a window of these samples, at 16 kHz."""
    if reading.words == 0:
        return Verdict("silent")
    if not repeats_itself(reading):
        return Verdict("kept", reading.tokens)
    if window.round < ROUNDS_MAX and window.seconds > HALVED_SECONDS_MIN:
        return Verdict("divided", again=halves(window, samples))
    return Verdict("kept", cut_runs(reading.tokens))
