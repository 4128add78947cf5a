"""A transducer's list ordered by attention decoders, against the sums written out."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spool.errors import InvalidRequest
from worker.decode.search import check_options, search
from worker.decode.transducer.likelihood import log_likelihoods
from worker.decode.types import SearchOptions
from worker.models.heads.transducer import Transducer
from worker.models.load import load_model
from worker.models.wenet.model import Encoded, WenetModel

GOLDEN = Path(__file__).parents[3] / "golden" / "wenet"


@pytest.fixture(scope="module")
def model() -> WenetModel:
    loaded = load_model(GOLDEN / "rnnt")
    assert isinstance(loaded, WenetModel)
    return loaded


@pytest.fixture(scope="module")
def encoded() -> Encoded:
    """WeNet's own frames of its two recordings."""
    dump = np.load(GOLDEN / "rnnt.npz")
    rows = [dump[f"u{row}.encoder"].reshape(-1, dump[f"u{row}.encoder"].shape[-1]) for row in range(2)]
    lengths = np.array([len(row) for row in rows], np.int32)
    padded = [np.pad(row, [(0, lengths.max() - len(row)), (0, 0)]) for row in rows]
    return Encoded(mx.array(np.stack(padded)), lengths)


def grid(transducer: Transducer, frames: mx.array, tokens: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities [T, U + 1, V + 1] of every frame behind every number of labels."""
    output, state = transducer.start(1)
    outputs = [output]
    for token in tokens:
        output, state = transducer.step(mx.array([token]), state)
        outputs.append(output)
    logits = np.array(
        transducer.joined(transducer.project_encoder(frames)[:, None], mx.concatenate(outputs)[None]),
        np.float64,
    )
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def forward(logs: np.ndarray, tokens: tuple[int, ...], blank: int) -> float:
    """Cell by cell."""
    frames, labels = logs.shape[0], len(tokens)
    sums = np.full((frames, labels + 1), -np.inf)
    for t in range(frames):
        for u in range(labels + 1):
            ways = [0.0] if t == u == 0 else []
            ways += [sums[t - 1, u] + logs[t - 1, u, blank]] if t else []
            ways += [sums[t, u - 1] + logs[t, u - 1, tokens[u - 1]]] if u else []
            sums[t, u] = np.logaddexp.reduce(ways)
    return float(sums[-1, -1] + logs[-1, -1, blank])


def test_a_likelihood_is_the_sum_over_all_alignments(model: WenetModel, encoded: Encoded) -> None:
    transducer, frames, tokens = model.heads["rnnt"], encoded.frames[0, :4], (13, 6, 6)
    logs = grid(transducer, frames, tokens)
    paths = []
    for places in combinations(range(3 + 3), 3):  # of labels, among them and all blanks but the last
        t = u = 0
        path = 0.0
        for step in range(3 + 3):
            path += logs[t, u, tokens[u] if step in places else transducer.blank]
            t, u = (t, u + 1) if step in places else (t + 1, u)
        paths.append(path + logs[t, u, transducer.blank])
    expected = np.logaddexp.reduce(paths)
    found = log_likelihoods(transducer, frames, [(13, 9), tokens, (13, 6), ()])
    assert found[1] == pytest.approx(expected, abs=1e-4)
    assert found[3] == pytest.approx(grid(transducer, frames, ())[:, 0, transducer.blank].sum(), abs=1e-4)
    assert log_likelihoods(transducer, frames[:0], [()]).tolist() == [0.0]


@pytest.mark.parametrize(
    ("mixed", "listed", "attention"),
    [(0.0, "4,0.0,1.0", 1.0), (0.3, "4,0.3,0.7", 1.0), (0.3, "4,0.3,0.7", 0.25), (0.0, "4,0.0,1.0", 0.0)],
)
def test_the_list_is_ordered_by_every_weighted_sum(
    model: WenetModel, encoded: Encoded, mixed: float, listed: str, attention: float
) -> None:
    head, transducer = model.heads["rnnt+attention"], model.heads["rnnt"]
    dump = np.load(GOLDEN / "rnnt.npz")
    key = next(name for name in dump.files if name != "notes" and dump[name].dtype.kind == "U")
    utterances = json.loads(str(dump[key]))["utterances"]
    asked = {"ctc_weight": 0.3, "reverse_weight": 0.4, "transducer_weight": 0.7}
    asked["attention_weight"] = attention
    found = search(model, encoded, SearchOptions("rescore", 4, 4, "rnnt", search_ctc_weight=mixed, **asked))
    for row in range(2):
        length = encoded.lengths[row]
        frames = encoded.frames[row, :length]
        lists = [
            (tuple(each["tokens"]), each["score"])
            for each in utterances[row]["transducer"]["beam"][listed]  # beam, weights of CTC and RNN-T in it
        ]
        alone = frames[None], np.array([length], np.int32), [[tokens for tokens, _ in lists]]
        left, right = head.score(*alone)[0], head.score(*alone, reverse=True)[0]
        expected = {}
        for (tokens, own), forth, back in zip(lists, left, right, strict=True):
            whole = forward(grid(transducer, frames, tokens), tokens, transducer.blank)
            expected[tokens] = attention * (0.6 * forth + 0.4 * back) + 0.3 * own + 0.7 * whole
        ranked = sorted(expected, key=lambda tokens: -expected[tokens])
        assert [each.tokens for each in found[row]] == ranked
        assert [each.score for each in found[row]] == pytest.approx(
            [expected[each] for each in ranked], abs=2e-3
        )


def test_neighbours_change_nothing(model: WenetModel, encoded: Encoded) -> None:
    options = SearchOptions("rescore", 4, 4, "rnnt", reverse_weight=0.4, transducer_weight=0.7)
    together = search(model, encoded, options)
    for row, length in enumerate(encoded.lengths.tolist()):
        alone = Encoded(encoded.frames[row : row + 1, :length], encoded.lengths[row : row + 1])
        (own,) = search(model, alone, options)
        assert [each.tokens for each in own] == [each.tokens for each in together[row]]
        assert [each.score for each in own] == pytest.approx([each.score for each in together[row]], abs=1e-3)


def test_a_weight_that_no_search_reads_is_refused(model: WenetModel) -> None:
    for name in ("transducer_weight", "search_ctc_weight"):
        asked: dict[str, Any] = {name: 0.5}
        with pytest.raises(InvalidRequest, match=name):
            check_options(model, SearchOptions("rescore", 4, head="ctc", **asked))
    with pytest.raises(InvalidRequest, match="below 1"):
        check_options(model, SearchOptions("rescore", 4, head="rnnt", search_ctc_weight=1.0))
