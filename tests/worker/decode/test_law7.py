"""Law 7: what is printed of an utterance depends on its audio, the model and the options, not on its batch.

The same recordings alone, in batches of 8 and of 64, in other orders and beside much longer ones, through
every search. Tokens, times and words have to be equal, and so has every printed number: a float may differ
by what the BLAS does with another shape (asserted below to be small), which the printed digits hide. One
number in a few hundred stands so near to the edge between two printed ones that the BLAS chooses; only there
may the last digit differ.
"""

import math
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ops.testbed.nemo_model import load_nemo
from spool.domain import Hypothesis
from worker.audio import open_audio
from worker.decode import CONFIDENCE_DIGITS, SCORE_DIGITS, best_of, words_of
from worker.decode.search import search
from worker.models import DecodeRequest, EncodedFrames, NemoModel, SearchOptions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
MODELS = {"demo-tdt": ROOT / "models" / "demo", "rnnt": GOLDEN / "rnnt", "hybrid": GOLDEN / "hybrid"}
RECORDINGS = (
    *("words/bed-1", "words/bed-2", "words/cat-1", "words/cat-2", "words/happy-1", "words/happy-2"),
    *("digits/string-1", "digits/string-2"),
)
ALONE = range(len(RECORDINGS))
FUSED = DecodeRequest(
    language_model=str(GOLDEN / "lm.arpa"), lm_weight=0.2, phrases=("happy cat", "seven"), boost=0.5
)
SCORE_GAP, CONFIDENCE_GAP = 1e-4, 1e-5  # what a batch's shape may do before anything is rounded


def orders() -> dict[str, list[int]]:
    """Which recordings stand in a batch, by what the batch is to show."""
    rng = np.random.default_rng(7)
    return {
        "8": list(ALONE),
        "8, backwards": list(ALONE)[::-1],
        "a short one beside the longest": [2, 7],
        "64": rng.permutation(np.tile(ALONE, 8)).tolist(),
    }


@cache
def model(name: str) -> NemoModel:
    return load_nemo(MODELS[name], mx.float32)


@cache
def audio() -> list[np.ndarray]:
    found = []
    for name in RECORDINGS:
        with open_audio(ROOT / "samples" / "demo-tdt" / f"{name}.flac") as stream:
            found.append(np.concatenate([block[:, 0] for block in stream.blocks()]))
    return found


@cache
def encoded(name: str, batch: tuple[int, ...]) -> EncodedFrames:
    return model(name).encode([audio()[index] for index in batch])


def at_the_edge(value: float, digits: int, gap: float) -> bool:
    """Whether less than `gap` makes another printed number of it."""
    return round(value - gap, digits) != round(value + gap, digits)


def assert_printed_alike(name: str, found: list[Hypothesis], alone: list[Hypothesis]) -> None:
    def decided(hypothesis: Hypothesis) -> tuple[tuple[int, ...], ...]:
        return hypothesis.tokens, hypothesis.times, hypothesis.durations

    assert [decided(h) for h in found] == [decided(h) for h in alone]
    for one, other in zip(found, alone, strict=True):
        assert one.score == pytest.approx(other.score, abs=SCORE_GAP)
        assert one.confidences == pytest.approx(other.confidences, abs=CONFIDENCE_GAP)
        assert round(one.score, SCORE_DIGITS) == round(other.score, SCORE_DIGITS) or at_the_edge(
            other.score, SCORE_DIGITS, SCORE_GAP
        )
    tokenizer = model(name).tokenizer
    ours, theirs = (words_of(best_of(each), tokenizer, 0.08) for each in (found, alone))
    assert [(w.text, w.start, w.end) for w in ours] == [(w.text, w.start, w.end) for w in theirs]
    last = 10**-CONFIDENCE_DIGITS * 1.001
    edges = [at_the_edge(p, CONFIDENCE_DIGITS, CONFIDENCE_GAP) for p in best_of(alone).confidences]
    changed = [a.confidence - b.confidence for a, b in zip(ours, theirs, strict=True) if a != b]
    assert all(math.fabs(gap) <= last for gap in changed)
    assert len(changed) <= sum(edges)


def kinds() -> list[tuple[str, SearchOptions, DecodeRequest | None]]:
    heads = [("demo-tdt", "tdt"), ("demo-tdt", "ctc"), ("rnnt", "rnnt"), ("hybrid", "tdt"), ("hybrid", "ctc")]
    return [
        (name, SearchOptions(decoder=decoder, beam=8, nbest=4, head=head), ask)
        for name, head in heads
        for decoder in ("greedy", "beam")
        # The golden models' random pieces cannot spell the phrases.
        for ask in (None, FUSED if name == "demo-tdt" else FUSED.model_copy(update={"phrases": ()}))
        if not (head == "ctc" and decoder == "greedy" and ask)
    ]


def found_by(
    name: str, batch: tuple[int, ...], options: SearchOptions, ask: DecodeRequest | None
) -> list[list[Hypothesis]]:
    return search(model(name), encoded(name, batch), options, None if ask is None else [ask] * len(batch))


def named(each: object) -> str | None:
    if isinstance(each, SearchOptions):
        return f"{each.head}-{each.decoder}"
    return "fused" if isinstance(each, DecodeRequest) else None


@pytest.mark.parametrize(("name", "options", "ask"), kinds(), ids=named)
def test_an_utterance_is_printed_alike_in_every_batch(
    name: str, options: SearchOptions, ask: DecodeRequest | None
) -> None:
    alone = [found_by(name, (index,), options, ask)[0] for index in ALONE]

    for batch in orders().values():
        found = found_by(name, tuple(batch), options, ask)
        for index, hypotheses in zip(batch, found, strict=True):
            assert_printed_alike(name, hypotheses, alone[index])
