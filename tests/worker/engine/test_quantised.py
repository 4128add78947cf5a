"""Quantised weights are served only where their quality was measured."""

from multiprocessing import Pipe
from pathlib import Path

from spool.errors import QualityUnknown
from tests.worker.models.whisper.tiny import make_dims, make_tensors, write_mlx
from worker.engine import (
    AudioSlots,
    AudioView,
    BatchRunner,
    Describe,
    Described,
    EngineOptions,
    Loaded,
    Reports,
    WorkAhead,
    load_recognizer,
)
from worker.models import ModelInfo


def describe(folder: Path, measured: dict[str, int | None] | None) -> object:
    slots = AudioSlots(1, 16_000)
    near, far = Pipe()
    options = EngineOptions(slots=1, slot_samples=16_000, measured=measured)
    view = AudioView(slots.layout)
    ahead = WorkAhead(lambda utterance: view.read(utterance.slot, utterance.samples))
    runner = BatchRunner(Reports(far), view, load_recognizer, options, ahead)
    runner.describe(Describe(7, str(folder)))
    reports = []
    while near.poll():
        reports.append(near.recv())
    slots.close()
    (answer,) = (each.answer for each in reports if isinstance(each, Described))
    # A refused model is not announced as loaded.
    loaded = [each.info for each in reports if isinstance(each, Loaded)]
    assert loaded == [None if isinstance(answer, QualityUnknown) else answer]
    return answer


def test_quantised_weights_are_refused_until_they_were_measured(tmp_path: Path) -> None:
    dims = make_dims()
    folder = write_mlx(tmp_path, dims, make_tensors(dims), bits=8)
    refused = describe(folder, {})
    assert isinstance(refused, QualityUnknown)
    assert "spool-worker confirm --quality --model NAME --against MODEL" in refused.message
    assert isinstance(describe(folder, {str(folder): 4}), QualityUnknown), "of other weights under this name"
    good: dict[str, int | None] = {str(folder): 8}
    for measured in (good, None):
        info = describe(folder, measured)
        assert isinstance(info, ModelInfo)
        assert info.bits == 8


def test_others_need_no_measurement(tmp_path: Path) -> None:
    dims = make_dims()
    info = describe(write_mlx(tmp_path, dims, make_tensors(dims)), {})
    assert isinstance(info, ModelInfo)
    assert info.bits is None
