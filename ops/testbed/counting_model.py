"""A recognizer that also keeps a list of every utterance it was given: the tiny model of
`ops.testbed.fake_models`, or a real one where the name is a folder.

One line a decoding, appended before it begins, so that what a killed engine had under way is counted too:
SHA-256 of the model's own and the samples, how many they are, this process, when its batch began (ns of the
monotonic clock).
"""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ops.testbed import fake_models
from spool.domain.recognition import Recognition
from spool.sounds.dictionary import DEFAULT_WITNESS
from worker.diarization.registry import is_diarization
from worker.engine.protocol import Failure, Recognizer
from worker.models.base import BatchCost, ModelInfo

LOADER = "ops.testbed.counting_model:load"
LIST = "SPOOL_TEST_DECODED"


class Decoding(NamedTuple):
    """One utterance given to a model once."""

    digest: str
    samples: int
    pid: int
    begun_ns: int


def decodings(text: str) -> list[Decoding]:
    """The list's lines."""
    fields = (line.split() for line in text.splitlines())
    return [Decoding(digest, int(samples), int(pid), int(ns)) for digest, samples, pid, ns in fields]


class CountingRecognizer:
    def __init__(self, inner: Recognizer) -> None:
        self._inner = inner
        self.info = inner.info

    def prepare(self, *asked: Any) -> ModelInfo:
        return self._inner.prepare(*asked)

    def read_by(self, reader: Recognizer) -> Recognizer:
        inner = reader._inner if isinstance(reader, CountingRecognizer) else reader
        return CountingRecognizer(self._inner.read_by(inner))

    def cost(self, *asked: Any) -> BatchCost:
        return self._inner.cost(*asked)

    def recognize(
        self, utterances: Sequence[NDArray[np.float32]], *asked: Any
    ) -> list[Recognition | Failure]:
        ending = f"{os.getpid()} {time.monotonic_ns()}\n"
        maker = self.info.sha256.encode()
        lines = [f"{hashlib.sha256(maker + u.tobytes()).hexdigest()} {len(u)} {ending}" for u in utterances]
        with open(os.environ[LIST], "a", encoding="ascii") as told:
            told.write("".join(lines))
        return self._inner.recognize(utterances, *asked)


def load(model: str) -> Recognizer:
    if is_diarization(model) or model == DEFAULT_WITNESS:  # decodes no word
        return fake_models.load(model)
    if not Path(model).is_dir():
        return CountingRecognizer(fake_models.load(model))
    from worker.engine.recognizer import load_recognizer

    return CountingRecognizer(load_recognizer(model))
