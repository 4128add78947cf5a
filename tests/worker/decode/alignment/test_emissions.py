"""Emissions in few bytes: what is kept, what counts as the floor, and the way there and back."""

import numpy as np
import pytest

from spool.domain import ChunkSpan
from worker.decode import FLOOR, Emissions, RecordingFrames, core_emissions
from worker.models import Spelling


def log_probs(frames: int, labels: int, seed: int = 0) -> np.ndarray:
    logits = np.random.default_rng(seed).normal(scale=5.0, size=(frames, labels))
    return (logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))).astype(np.float32)


def test_what_is_above_the_floor_comes_back() -> None:
    table = log_probs(50, 30)
    emissions = Emissions.unpack(Emissions.of(table).pack())
    assert emissions.dense(30) == pytest.approx(np.maximum(table, FLOOR), abs=1e-4)
    assert (table < FLOOR).any()


def test_certainty_and_silence() -> None:
    table = np.array([[0.0, -np.inf], [-np.inf, -np.inf], [1e-7, -20.0]], np.float32)
    assert Emissions.of(table).dense(2).tolist() == [[0.0, FLOOR], [FLOOR, FLOOR], [0.0, FLOOR]]
    assert Emissions.of(np.zeros((0, 3), np.float32)).dense(3).shape == (0, 3)


def test_a_recording_has_the_frames_of_its_cores_in_order_of_time() -> None:
    spelling = Spelling({"a": (7,), "b": (3, 9)}, frozenset())
    chunks = [ChunkSpan(0, 1, 16_000, 32_000, 14_000, 33_000), ChunkSpan(0, 0, 0, 16_000, 0, 18_000)]
    tables = [log_probs((span.end - span.start) // 1280 + 1, 4, seed) for seed, span in enumerate(chunks)]
    parts = [
        core_emissions(span, Emissions.of(table), 0.08) for span, table in zip(chunks, tables, strict=True)
    ]
    frames = RecordingFrames(list(zip(chunks, parts, strict=True)), spelling, 0.08)
    assert len(frames.starts) == len(parts[0].counts) + len(parts[1].counts)
    assert frames.starts[:3] == pytest.approx([0.0, 0.08, 0.16])
    assert np.diff(frames.starts).min() > 0
    second = int(np.searchsorted(frames.starts, 1.0))
    assert frames.starts[second] == pytest.approx((14_000 + 2 * 1280) / 16_000)
    expected = np.maximum(tables[0][2:5], FLOOR)[:, [2, 1, 3]]  # tokens 9 and 7 of the labels 3, 7, 9; blank
    assert frames.log_probs(second, second + 3, [9, 7]) == pytest.approx(expected, abs=1e-4)
