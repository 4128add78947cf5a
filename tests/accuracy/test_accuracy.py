"""What `python -m ops.accuracy` reckons with, without a model."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ops.accuracy.calibration import Bin, bins, expected_error, reliability_plot, right
from ops.accuracy.measure import difference
from ops.accuracy.recordings import Recording, at_seams, covered, lengths, unpaired
from spool.domain import Word
from spool.wer import WordErrors
from worker.models import Independent
from worker.segmentation import ChunkOptions, plan_chunks


def words(text: str, confidences: Sequence[float] = ()) -> list[Word]:
    """One word a second."""
    sure = confidences or [1.0] * len(text.split())
    return [
        Word(text=word, start=float(n), end=n + 0.5, confidence=sure[n])
        for n, word in enumerate(text.split())
    ]


def test_a_difference_is_sure_when_every_redraw_has_it() -> None:
    worse = [WordErrors(2, 4)] * 20
    better = [WordErrors(1, 4)] * 20
    found = difference(worse, better)
    assert (found.rate, found.low, found.high, found.is_sure) == (0.25, 0.25, 0.25, True)
    even = difference([WordErrors(1, 4), WordErrors(0, 4)] * 10, [WordErrors(0, 4), WordErrors(1, 4)] * 10)
    assert even.rate == 0
    assert not even.is_sure


def test_words_are_right_where_an_alignment_pairs_them_with_themselves() -> None:
    assert right("the old man and the sea", words("the odd man the the sea")) == [
        True,
        False,
        True,
        False,
        True,
        True,
    ]
    assert right("", words("no one")) == [False, False]


def test_calibration_weighs_each_tenth_by_its_words() -> None:
    found = bins([0.95, 0.97, 1.0, 0.15], [True, True, False, False])
    assert [(b.count, round(b.right, 3)) for b in found] == [(1, 0.0), (3, 0.667)]
    assert math.isclose(expected_error(found), (0.15 + 3 * abs(2.92 / 3 - 2 / 3)) / 4)


def test_the_plot_is_an_image_with_a_dot_for_each_tenth() -> None:
    plot = ElementTree.fromstring(
        reliability_plot({"one": [Bin(3, 0.5, 0.4), Bin(1, 0.9, 1.0)], "two": [Bin(1, 0.1, 0.0)]})
    )
    name = "{http://www.w3.org/2000/svg}"
    assert len(plot.findall(f"{name}circle")) == 3
    assert {t.text for t in plot.findall(f"{name}text")} >= {"one", "two", "confidence", "share right"}


def test_words_lost_and_doubled_are_told_apart_by_a_seam() -> None:
    told = ["a", "b", "c", "d", "e", "f", "g", "h"]
    reference = [{"w": w, "start": float(n), "end": n + 0.5} for n, w in enumerate(told)]
    recording = Recording(Path("r.flac"), np.zeros(0, np.float32), " ".join(told), [], reference)
    heard = [w for w in words("a b c c e f g h") if w.text != "f"]
    found = at_seams(recording, heard, [2.8])
    assert (found.seams, found.near, found.far) == (1, 2, 6)
    assert (found.lost_near, found.doubled_near, found.lost_far, found.doubled_far) == (0, 0, 1, 0)
    twice = at_seams(
        recording, sorted([*words("a b c d e f g h"), words("a b c")[2]], key=lambda w: w.start), [2.8]
    )
    assert (twice.lost_near, twice.doubled_near) == (0, 1)
    gone = at_seams(recording, [w for w in words("a b c d e f g h") if w.text != "d"], [2.8])
    assert (gone.lost_near, gone.lost_far) == (1, 0)


def test_an_alignment_names_what_either_side_has_alone() -> None:
    assert unpaired(list("abce"), list("aced")) == ([1], [3])
    assert unpaired([], ["x"]) == ([], [0])
    assert unpaired(["a", "b"], ["a", "x"]) == ([], [])


@pytest.mark.parametrize("longest", [10, 20, 30, 40])
def test_chunks_of_any_length_cover_a_recording_once(longest: float) -> None:
    audio = np.random.default_rng(0).normal(0, 0.1, 100 * 16_000).astype(np.float32)
    plan = ChunkOptions(**asdict(lengths(longest)))
    chunks = [chunk.span for chunk in plan_chunks([audio], plan)]
    assert covered(chunks, len(audio)) == 1.0
    assert max(chunk.end - chunk.start for chunk in chunks) <= longest * 16_000
    assert covered(chunks[:-1], len(audio)) < 1.0
    assert lengths(30) == Independent()
