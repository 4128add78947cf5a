"""The family against WeNet's own answers, and what its answers must not depend on."""

from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from ops.accuracy.wenet.oracle import TOLERANCES, Oracle
from spool.domain import Hypothesis
from worker.decode.search import search
from worker.models import (
    CONVOLUTIONS,
    Conv2dSubsampling,
    DecodeRequest,
    EncodedFrames,
    EncoderConfig,
    SearchOptions,
    WenetModel,
    feature_frames,
    filter_bank,
    load_model,
)

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[3] / "golden" / "wenet"
MODELS = ["offline", "rnnt"]


@cache
def model_of(name: str) -> WenetModel:
    model = load_model(GOLDEN / name)
    assert isinstance(model, WenetModel)
    return model


@cache
def audio(name: str) -> list[np.ndarray]:
    dump = np.load(GOLDEN / f"{name}.npz")
    return [dump[f"u{i}.wav"].astype(np.float32) / 32768 for i in range(2)]


@pytest.mark.parametrize("name", MODELS)
def test_every_answer_is_wenets(name: str) -> None:
    oracle = Oracle(model_of(name), np.load(GOLDEN / f"{name}.npz"), "features")
    oracle.run()
    assert {"greedy", "n-best lists", "n-best times", "rescoring"} < set(oracle.compared)
    assert oracle.equal == oracle.compared
    assert {kind: gap for kind, gap in oracle.gaps.items() if gap > TOLERANCES[kind]} == {}


CHOICES = [
    SearchOptions(head="ctc"),
    SearchOptions(decoder="beam", beam=6, nbest=6, head="ctc"),
    SearchOptions(decoder="beam", beam=6, nbest=6, head="ctc", alignments="best"),
    SearchOptions(decoder="rescore", beam=6, nbest=6, head="ctc"),
    SearchOptions(decoder="attention", beam=4, nbest=4, head="ctc"),
]


def outline(found: list[Hypothesis]) -> list[tuple[object, ...]]:
    return [(each.tokens, each.times, round(each.score, 3)) for each in found]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("options", CHOICES, ids=lambda each: f"{each.decoder}-{each.alignments}")
def test_neighbours_and_their_order_change_nothing(name: str, options: SearchOptions) -> None:
    model, first = model_of(name), audio(name)
    samples = [first[0], first[1], first[1][:9000], np.zeros(300, np.float32), np.zeros(0, np.float32)]
    order = [3, 1, 4, 0, 2]
    together = search(model, model.encode(samples), options)
    shuffled = search(model, model.encode([samples[row] for row in order]), options)
    for place, row in enumerate(order):
        alone = search(model, model.encode([samples[row]]), options)[0]
        assert outline(alone) == outline(together[row]) == outline(shuffled[place])
        assert alone, "an utterance without frames has one hypothesis"


def test_a_transducers_beam_does_not_know_its_neighbours() -> None:
    model, options = model_of("rnnt"), SearchOptions(decoder="beam", beam=4, nbest=4, ctc_weight=0.3)
    together = search(model, model.encode(audio("rnnt")), options)
    for row, samples in enumerate(audio("rnnt")):
        assert outline(search(model, model.encode([samples]), options)[0]) == outline(together[row])


def test_phrases_of_one_utterance_are_its_own() -> None:
    model = model_of("rnnt")
    encoded = model.encode([audio("rnnt")[0]] * 2)
    options = SearchOptions(decoder="rescore", beam=8, nbest=8, head="ctc", ctc_weight=1.0)
    plain = search(model, encoded, options)
    phrase = model.tokenizer.decode([plain[0][0].tokens[0], 9])
    asked = [DecodeRequest(phrases=(phrase,), boost=8.0), DecodeRequest()]
    boosted = search(model, encoded, options, asked)
    assert outline(boosted[1]) == outline(plain[1])
    assert outline(boosted[0]) != outline(plain[0])


def test_features_are_of_frames_that_stand_alone() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(0, 0.1, 5000).astype(np.float32)
    made = filter_bank(samples)
    assert made.shape == (feature_frames(5000), 80) == (29, 80)
    assert filter_bank(samples[:399]).shape == (0, 80)
    assert np.array_equal(filter_bank(samples[160:]), made[1:])
    assert (
        np.array_equal(filter_bank(samples + 0.25), made)
        or np.abs(filter_bank(samples + np.float32(0.25)) - made).max() < 1e-3
    )  # a frame loses its mean
    assert np.all(filter_bank(np.zeros(800, np.float32)) == np.log(1.1920928955078125e-07).astype(np.float32))


@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_subsampling_is_convolutions_without_padding(kind: str) -> None:
    subsampling = Conv2dSubsampling(EncoderConfig(80, 1, 6, subsampling=kind))
    bands = subsampling.frames_of(80)
    rng = np.random.default_rng(1)
    tensors: dict[str, np.ndarray] = {}
    for index, (kernel, _) in enumerate(CONVOLUTIONS[kind]):
        shape = (6, 6 if index else 1, kernel, kernel)
        tensors[f"conv.{2 * index}.weight"] = rng.normal(size=shape) * 0.3
        tensors[f"conv.{2 * index}.bias"] = rng.normal(size=6)
    tensors["out.weight"], tensors["out.bias"] = rng.normal(size=(6, 6 * bands)), rng.normal(size=6)
    features = rng.normal(size=(47, 80))

    x = features[None]
    for index, (kernel, stride) in enumerate(CONVOLUTIONS[kind]):
        weight = tensors[f"conv.{2 * index}.weight"]
        patches = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
        bias = tensors[f"conv.{2 * index}.bias"]
        x = np.maximum(np.einsum("ctfij,ocij->otf", patches, weight) + bias[:, None, None], 0)
    flat = x.transpose(1, 0, 2).reshape(x.shape[1], -1)
    expected = (flat @ tensors["out.weight"].T + tensors["out.bias"]) * np.sqrt(6)

    arrays = [(name, mx.array(value.astype(np.float32))) for name, value in tensors.items()]
    # A checkpoint's [out, in, time, band].
    subsampling.load_weights([(name, mx.moveaxis(a, 1, -1) if a.ndim == 4 else a) for name, a in arrays])
    subsampling.fold()
    made = subsampling(mx.array(features.astype(np.float32))[None], mx.array([47])) * np.sqrt(6)
    made = np.array(made[0])
    assert made.shape == expected.shape == (subsampling.frames_of(47), 6)
    assert np.abs(made - expected).max() < 1e-4


def test_frames_of_nothing() -> None:
    encoded = model_of("offline").encode([np.zeros(0, np.float32)])
    assert isinstance(encoded, EncodedFrames)
    assert encoded.lengths.tolist() == [0]
    assert (
        search(model_of("offline"), encoded, SearchOptions(decoder="beam", beam=4, nbest=4))[0][0].score
        == 0.0
    )
