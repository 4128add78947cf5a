"""A transducer's list ordered by attention decoders, against WeNet's formula."""

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from spool.errors import InvalidRequest
from worker.decode import check_options, log_likelihoods
from worker.decode.search import search
from worker.models import EncodedFrames, SearchOptions, Transducer, WenetHead, WenetModel, load_model

GOLDEN = Path(__file__).parents[3] / "golden" / "wenet"


@pytest.fixture(scope="module")
def model() -> WenetModel:
    loaded = load_model(GOLDEN / "rnnt")
    assert isinstance(loaded, WenetModel)
    return loaded


@pytest.fixture(scope="module")
def encoded() -> EncodedFrames:
    """WeNet's own frames of its two recordings."""
    dump = np.load(GOLDEN / "rnnt.npz")
    rows = [dump[f"u{row}.encoder"].reshape(-1, dump[f"u{row}.encoder"].shape[-1]) for row in range(2)]
    lengths = np.array([len(row) for row in rows], np.int32)
    padded = [np.pad(row, [(0, lengths.max() - len(row)), (0, 0)]) for row in rows]
    return EncodedFrames(mx.array(np.stack(padded)), lengths)


def grid(transducer: Transducer, frames: mx.array, tokens: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities [T, U + 1, V + 1] of every frame behind every number of labels."""
    output, state = transducer.start(1)
    outputs = [output]
    for token in tokens:
        output, state = transducer.step(mx.array([token]), state)
        outputs.append(output)
    logits = np.array(
        transducer.joint_logits(transducer.project_encoder(frames)[:, None], mx.concatenate(outputs)[None]),
        np.float64,
    )
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def test_a_likelihood_is_the_sum_over_all_alignments(model: WenetModel, encoded: EncodedFrames) -> None:
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


LISTS: list[dict[str, Any]] = json.loads(str(np.load(GOLDEN / "rnnt.npz")["answers"]))["utterances"]
ASKED = [
    pytest.param(listed, weights, marks=() if listed == "4,0.3,0.7" else pytest.mark.slow)
    for listed, each in LISTS[0]["transducer"]["rescoring"].items()
    for weights in each
]


@pytest.mark.parametrize(("listed", "weights"), ASKED)
def test_the_list_is_ordered_by_wenets_sum(
    model: WenetModel, encoded: EncodedFrames, listed: str, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every weight, 0 too, against `transducer_attention_rescoring` as the golden script restates it."""
    attention, beam_score, transducer, reverse = map(float, weights.split(","))
    beam, search_ctc = int(listed.split(",")[0]), float(listed.split(",")[1])
    options = SearchOptions(
        decoder="rescore",
        beam=beam,
        nbest=beam,
        head="rnnt",
        attention_weight=attention,
        ctc_weight=beam_score,
        transducer_weight=transducer,
        reverse_weight=reverse,
        search_ctc_weight=search_ctc,
    )
    calls: list[bool] = []
    score = WenetHead.score

    def counted(head: WenetHead, *given: Any, reverse: bool = False) -> Any:
        calls.append(reverse)
        return score(head, *given, reverse=reverse)

    monkeypatch.setattr(WenetHead, "score", counted)
    answers = search(model, encoded, options)
    assert calls == [way for way, share in ((False, 1 - reverse), (True, reverse)) if attention * share]
    for row, hypotheses in enumerate(answers):
        expected = LISTS[row]["transducer"]["rescoring"][listed][weights]
        assert [list(each.tokens) for each in hypotheses] == [each["tokens"] for each in expected]
        assert [each.score for each in hypotheses] == pytest.approx(
            [each["score"] for each in expected], abs=1e-3
        )


def test_neighbours_change_nothing(model: WenetModel, encoded: EncodedFrames) -> None:
    options = SearchOptions(
        decoder="rescore", beam=4, nbest=4, head="rnnt", reverse_weight=0.4, transducer_weight=0.7
    )
    together = search(model, encoded, options)
    for row, length in enumerate(encoded.lengths.tolist()):
        alone = EncodedFrames(encoded.frames[row : row + 1, :length], encoded.lengths[row : row + 1])
        (own,) = search(model, alone, options)
        assert [each.tokens for each in own] == [each.tokens for each in together[row]]
        assert [each.score for each in own] == pytest.approx([each.score for each in together[row]], abs=1e-3)


def test_a_weight_that_no_search_reads_is_refused(model: WenetModel) -> None:
    for name in ("transducer_weight", "search_ctc_weight"):
        asked: dict[str, Any] = {name: 0.5}
        with pytest.raises(InvalidRequest, match=name):
            check_options(model, SearchOptions(decoder="rescore", beam=4, head="ctc", **asked))
