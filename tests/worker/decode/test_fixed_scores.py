"""Searches in fixed point: the same hypotheses, scores on the grid, a drift that is bounded a label."""

from pathlib import Path
from typing import Any, Literal, cast

import mlx.core as mx
import numpy as np
import pytest
from pydantic import ValidationError

from kernels.runtime import use_backend
from kernels.search.fixed_point import ONE
from spool.domain import Hypothesis
from tests.worker.decode.test_bad_input import SpoiledHead
from tests.worker.decode.test_law7 import FUSED, encoded, found_by, kinds, model, named
from worker.decode import LatticeRecorder
from worker.decode.search import search
from worker.models import DecodeRequest, SearchOptions

GOLDEN = Path(__file__).parents[2] / "golden"
DRIFT = 1e-4  # natural logarithm, a label; a path of blanks alone has one end


def decided(rows: list[Hypothesis]) -> list[tuple[tuple[int, ...], ...]]:
    return [(h.tokens, h.times, h.durations) for h in rows]


@pytest.mark.parametrize(("name", "options", "ask"), kinds(), ids=named)
def test_hypotheses_stay_and_scores_drift_little(
    name: str, options: SearchOptions, ask: DecodeRequest | None
) -> None:
    batch = (0, 2, 4, 6, 7)

    found = found_by(name, batch, options.model_copy(update={"scores": "fixed"}), ask)

    for row, plain in zip(found, found_by(name, batch, options, ask), strict=True):
        assert decided(row[:1]) == decided(plain[:1])
        assert len(row) == len(plain)
        for one in row:
            assert one.score * ONE == round(one.score * ONE)
        drift = abs(row[0].score - plain[0].score)
        assert drift <= DRIFT * (len(plain[0].tokens) + 1)


Head = Literal["tdt", "ctc"]


@pytest.mark.parametrize("head", ["tdt", "ctc"])
def test_the_reference_finds_the_same(head: Head) -> None:
    options = SearchOptions(decoder="beam", beam=4, nbest=4, head=head, scores="fixed")
    batch = encoded("demo-tdt", (0, 6))
    found = search(model("demo-tdt"), batch, options)
    with use_backend("reference"):
        expected = search(model("demo-tdt"), batch, options)
    for row, plain in zip(found, expected, strict=True):
        assert decided(row[:1]) == decided(plain[:1])
        assert row[0].score == pytest.approx(plain[0].score, abs=DRIFT)


@pytest.mark.parametrize("ask", [None, FUSED], ids=named)
@pytest.mark.parametrize("head", ["tdt", "ctc"])
def test_what_is_kept_for_a_lattice_is_whole_scores(head: Head, ask: DecodeRequest | None) -> None:
    options = SearchOptions(decoder="beam", beam=4, nbest=4, head=head)
    kept = {}
    for scores in ("float", "fixed"):
        recorder = LatticeRecorder()
        asks = None if ask is None else [ask]
        asked = options.model_copy(update={"scores": scores})
        search(model("demo-tdt"), encoded("demo-tdt", (6,)), asked, asks, recorder=recorder)
        (kept[scores],) = recorder.records()
    alive = np.isfinite(kept["float"].scores)
    assert alive.any()
    assert np.array_equal(alive[:, 0], np.isfinite(kept["fixed"].scores)[:, 0])
    best = kept["float"].scores[alive[:, 0], 0], kept["fixed"].scores[alive[:, 0], 0]
    assert best[1] == pytest.approx(best[0], abs=1e-2)
    assert kept["fixed"].ends == pytest.approx(kept["float"].ends, abs=1e-2)


def test_long_utterances_outgrow_no_grid() -> None:
    """Scores of thousands, where a float32 has no 65536ths left, are whole steps of the grid."""
    rows = np.random.default_rng(0).normal(0, 1, (1, 3000, 10)).astype(np.float32)
    rows -= np.log(np.exp(rows).sum(-1, keepdims=True))

    class One:
        heads, tokenizer = {"ctc": SpoiledHead()}, None

    class Rows:
        frames, lengths = mx.array(rows), np.array([3000], np.int32)

    found = search(
        cast("Any", One()),
        cast("Any", Rows()),
        SearchOptions(decoder="beam", beam=4, nbest=4, head="ctc", scores="fixed"),
    )[0]

    assert found[0].score < -1500
    assert all(h.score * ONE == round(h.score * ONE) for h in found)
    steps = np.floor(rows[0].astype(np.float32) * np.float32(ONE) + np.float32(0.5))
    best = (
        float(steps.max(axis=1).astype(np.int64).sum()) / ONE
    )  # no alignment is better than all best labels
    assert found[0].score == best


def test_other_names_of_scores_are_refused() -> None:
    with pytest.raises(ValidationError, match="'float' or 'fixed'"):
        SearchOptions(scores=cast("Any", "double"))
