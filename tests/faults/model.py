"""The tiny model of `tests.worker.fake_models`, which also keeps a list of every utterance it was given.

One line a decoding, appended before it begins, so that what a killed engine had under way is counted too.
"""

import hashlib
import os
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.worker.fake_models import FakeRecognizer
from worker.decode.hypothesis import SearchOptions
from worker.engine_protocol import Recognition

LOADER = "tests.faults.model:load"
LIST = "SPOOL_TEST_DECODED"


class CountingRecognizer(FakeRecognizer):
    def recognize(
        self, utterances: Sequence[NDArray[np.float32]], options: SearchOptions
    ) -> list[Recognition]:
        with open(os.environ[LIST], "a", encoding="ascii") as told:
            told.writelines(f"{hashlib.sha256(samples.tobytes()).hexdigest()}\n" for samples in utterances)
        return super().recognize(utterances, options)


def load(model: str) -> CountingRecognizer:
    return CountingRecognizer(model)
