"""Real models behind a gate, for tests that need utterances to meet in one batch: `GATE|MODEL` waits in every
batch until the path GATE exists, and lets live sessions have the device meanwhile."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from worker.engine import ModelRecognizer, load_recognizer
from worker.models import BatchCost, ModelInfo, give_way

LOADER = "tests.worker.engine.gated_models:load"


class Gated:
    def __init__(self, gate: Path, inner: ModelRecognizer) -> None:
        self._gate = gate
        self._inner = inner

    @property
    def info(self) -> ModelInfo:
        return self._inner.info

    def prepare(self, *asked: Any) -> ModelInfo:
        return self._inner.prepare(*asked)

    def cost(self, *asked: Any) -> BatchCost:
        return self._inner.cost(*asked)

    def recognize(self, *asked: Any) -> Sequence[Any]:
        self._gate.with_suffix(".reached").touch()
        while not self._gate.exists():
            time.sleep(0.005)
            give_way()
        return self._inner.recognize(*asked)


def load(model: str) -> Any:
    gate, _, path = model.rpartition("|")
    recognizer: Any = load_recognizer(path)
    return Gated(Path(gate), recognizer) if gate else recognizer
