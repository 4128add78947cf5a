"""Windows of a recording, and their answers as one table."""

# ruff: noqa: RUF001 - symbols of the phonetic alphabet

import numpy as np
import pytest

from spool.sounds.phones import BEST, COLUMNS, HEARD, NUMBERS, SILENCE, PhoneMap
from tests.golden.make_hama import SYMBOLS, write_model
from tests.spool.sounds.sounds import LEXICON
from worker.decode.alignment.emissions import Emissions
from worker.local.witness import Listener
from worker.models import load_model
from worker.witness.listening import core_table, plan_windows

RATE = 16_000


@pytest.mark.parametrize("seconds", [0.0, 0.5, 19.99, 20.0, 20.01, 21.9, 22.0, 22.1, 40.0, 63.3])
def test_cores_tile_the_recording_with_context_on_inner_sides(seconds: float) -> None:
    samples = np.random.default_rng(1).normal(size=round(seconds * RATE)).astype(np.float32)
    whole = list(plan_windows([samples]))
    blocks = list(plan_windows(np.array_split(samples, 17)))
    assert [each.span for each in whole] == [each.span for each in blocks]
    at = 0
    for one, other in zip(whole, blocks, strict=True):
        span = one.span
        assert span.core_start == at
        assert span.start == max(0, at - 2 * RATE)
        assert span.end == min(span.core_end + 2 * RATE, len(samples))
        np.testing.assert_array_equal(one.samples, samples[span.start : span.end])
        np.testing.assert_array_equal(other.samples, one.samples)
        at = span.core_end
    assert at == len(samples)


def test_labels_become_phones_and_the_first_frame_of_a_sound() -> None:
    labels = [*SYMBOLS, "<wb>"]
    phones = PhoneMap(labels)
    heard = ["k", "k", "<blank>", "ə", "<wb>", "a", "aɪ"]
    log_probs = np.full((len(heard), len(labels) + 1), -9.0, np.float32)
    for row, symbol in enumerate(heard):
        log_probs[row, len(labels) if symbol == "<blank>" else labels.index(symbol)] = -0.01
    table = phones.frames(log_probs, -10.0)
    assert table.shape == (7, COLUMNS)
    assert table[:, HEARD].tolist() == [1, 0, 0, 1, 0, 1, 1]
    assert table[0, NUMBERS["K"]] == 0 == table[2, SILENCE]
    assert table[3, NUMBERS["AH"]] == 0 == table[5, NUMBERS["AA"]] == table[5, NUMBERS["AE"]]
    assert table[0, NUMBERS["M"]] > 150
    assert table[:, BEST].max() == 0
    assert phones.frames(np.zeros((0, len(labels) + 1), np.float32), -10.0).shape == (0, COLUMNS)


def test_a_window_gives_the_frames_of_its_core() -> None:
    labels = [*SYMBOLS, "<wb>"]
    phones = PhoneMap(labels)
    samples = np.zeros(50 * RATE, np.float32)
    counts = []
    for chunk in plan_windows([samples]):
        frames = len(chunk.samples) // 160 // 2 + 1
        log_probs = np.full((frames, len(labels) + 1), -5.0, np.float32)
        counts.append(len(core_table(chunk.span, Emissions.of(log_probs), phones, len(labels))))
    assert counts == [1000, 1000, 501]


def test_a_recording_is_heard_channel_by_channel(tmp_path_factory: pytest.TempPathFactory) -> None:
    listener = Listener(load_model(write_model(tmp_path_factory.mktemp("hama"))), LEXICON)
    samples = np.random.default_rng(2).normal(0, 0.1, (25 * RATE, 2)).astype(np.float32)
    left, right = listener.hear(np.array_split(samples, 9), 2)
    (alone,) = listener.hear([samples[:, 1:]])
    assert len(left.table) == len(right.table) == 1251
    np.testing.assert_array_equal(right.table, alone.table)
    assert (left.table != right.table).any()
