"""How the witness is measured: what is planted, and the intervals of shares."""

import numpy as np
import pytest

from ops.accuracy.witness.__main__ import IN_PLACE, plant, wilson
from ops.accuracy.witness.tapes import Line, Tape

LINES = (
    Line(0.5, 3.0, "the old teacher gave us three", "a"),
    Line(5.0, 7.0, "please remember to close both windows", "a"),
    Line(15.0, 17.0, "ships brought coffee", "b"),
)
TAPE = Tape("t", np.zeros(16_000 * 20, np.float32), LINES, (7.5, 14.5, "music"))


@pytest.mark.parametrize(
    ("found", "of", "low", "high"), [(0, 100, 0.0, 0.037), (50, 100, 0.404, 0.596), (5, 5, 0.566, 1.0)]
)
def test_intervals_are_wilsons(found: int, of: int, low: float, high: float) -> None:
    assert wilson(found, of) == pytest.approx((low, high), abs=1e-3)


def test_every_true_line_stays_and_inventions_are_other_texts_in_their_places() -> None:
    texts = ["nobody expected such an answer", "why music matters more than money"]
    plants = plant(TAPE, texts, np.random.default_rng(1))
    assert [each.text for each in plants.true] == [line.text for line in LINES]
    assert all(abs(each.start - line.start) < 1.5 for each, line in zip(plants.true, LINES, strict=True))
    assert TAPE.pauses == [(3.0, 5.0)]
    kinds = {kind: [(each.start, each.end) for each in own] for kind, own in plants.planted.items()}
    assert kinds[IN_PLACE] == [(0.5, 3.0), (15.0, 17.0)]
    assert kinds["over a pause"] == kinds["said again in a pause"] == [(3.0, 5.0)]
    assert kinds["over music"] == [(7.5, 10.5), (9.5, 12.5), (11.5, 14.5)]
    again = plants.planted.pop("said again in a pause")
    assert again[0].text == LINES[0].text
    assert {each.text for own in plants.planted.values() for each in own} <= set(texts)
