"""Granite Speech 5 TurboCTC against transformers' own answers, and what its answers must not depend on."""

import json
import shutil
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from spool.domain import Hypothesis
from worker.decode import align_texts
from worker.decode.search import search
from worker.models import (
    GRANITE,
    DecodeRequest,
    GraniteModel,
    GraniteNetwork,
    SearchOptions,
    load_model,
    stored_shapes,
)

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[3] / "golden"
MODELS = ("wide", "first")
CUTS = (1_400, 1_679, 2_719, 4_000, 9_601)


@cache
def model_of(name: str) -> GraniteModel:
    model = load_model(GOLDEN / "granite" / name)
    assert isinstance(model, GraniteModel)
    return model


@cache
def utterances() -> list[np.ndarray]:
    with np.load(GOLDEN / "audio.npz") as stored:
        rows = zip(stored["audio"], stored["lengths"], strict=True)
        whole = [row[:length].astype(np.float32) / 32768 for row, length in rows]
    return [*whole, *(whole[2][:cut] for cut in CUTS)]


def answers(name: str) -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "granite" / f"{name}.npz") as stored:
        return dict(stored)


@pytest.mark.parametrize("name", MODELS)
def test_features_frames_and_texts_are_transformers(name: str) -> None:
    model, kept = model_of(name), answers(name)
    encoded = model.encode(utterances())
    found = search(model, encoded, SearchOptions())
    for number, samples in enumerate(utterances()):
        # transformers transforms in 32 bit, we in 64
        np.testing.assert_allclose(model.front(samples)[::40], kept[f"features.{number}"], atol=5e-5)
        frames = np.array(encoded.frames[number, : encoded.lengths[number]])
        np.testing.assert_allclose(frames, kept[f"encoder.{number}"], atol=1e-5)
        log_probs = np.array(model.heads["ctc"].log_probs(mx.array(frames)))
        blank_first = np.concatenate([log_probs[:, -1:], log_probs[:, 1:-1]], axis=1)
        np.testing.assert_allclose(blank_first[[0, -1]], kept[f"log_probs.{number}"], atol=5e-5)
        assert blank_first.argmax(1).tolist() == kept[f"labels.{number}"].tolist()
        assert model.tokenizer.decode(found[number][0].tokens) == str(kept[f"text.{number}"])
    assert sum(len(each[0].tokens) for each in found) > 30


def outline(found: list[Hypothesis]) -> list[tuple[object, ...]]:
    return [(each.tokens, each.times, each.score) for each in found]


@pytest.mark.parametrize(
    "options", [SearchOptions(), SearchOptions(decoder="beam", beam=6, nbest=6)], ids=["greedy", "beam"]
)
def test_neighbours_and_their_order_change_nothing(options: SearchOptions) -> None:
    model = model_of("first")
    samples = [*utterances()[3:7], np.zeros(1_119, np.float32), np.zeros(0, np.float32)]
    order = [4, 1, 5, 0, 3, 2]
    together = search(model, model.encode(samples), options)
    shuffled = search(model, model.encode([samples[row] for row in order]), options)
    for place, row in enumerate(order):
        alone = search(model, model.encode([samples[row]]), options)[0]
        assert outline(alone) == outline(together[row]) == outline(shuffled[place])
    assert [each[0].tokens for each in together[4:]] == [(), ()], "too short for a frame"


@pytest.mark.parametrize("name", MODELS)
def test_one_padded_batch_is_the_same_within_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given frames as a CPU encodes them, one utterance after another
    model, samples = model_of(name), [np.zeros(0, np.float32), *utterances()]
    alone = model.encode(samples)
    # When they are encoded as a GPU does, and without the kernels of a CPU
    monkeypatch.setattr("worker.models.conformer.encoder.on_gpu", lambda: True)
    monkeypatch.setattr("worker.models.conformer.attention.compiles_for_cpu", lambda: False)
    together = model.encode(samples)
    # Then each is the same, and nothing stands behind its end
    assert together.lengths.tolist() == alone.lengths.tolist()
    frames = np.array(together.frames)[:, : alone.frames.shape[1]]
    np.testing.assert_allclose(frames, np.array(alone.frames), atol=2e-5)
    assert not np.array(together.frames)[0].any()


def test_bfloat16_stays_near() -> None:
    exact = model_of("wide").encode(utterances()[:1]).frames
    rounded = load_model(GOLDEN / "granite" / "wide", mx.bfloat16).encode(utterances()[:1]).frames
    assert rounded.dtype == mx.bfloat16
    assert float(mx.abs(rounded - exact).max()) < 0.2


def test_phrases_are_boosted_and_a_text_is_aligned() -> None:
    model, samples = model_of("wide"), utterances()[4]
    encoded = model.encode([samples])
    plain = search(model, encoded, SearchOptions(decoder="beam"))[0][0]
    request = DecodeRequest(phrases=("the other",), boost=30.0)
    boosted = search(model, encoded, SearchOptions(decoder="beam"), [request])[0][0]
    text = model.tokenizer.decode(boosted.tokens)
    assert "the other" in text
    assert "the other" not in model.tokenizer.decode(plain.tokens)
    (words,) = align_texts(model, [samples], ["the other"])
    assert words is not None
    assert [word.text for word in words] == ["the", "other"]
    assert 0 <= words[0].start < words[0].end <= words[1].start < words[1].end <= len(samples) / 16_000


def move_blank(folder: Path, unit: int) -> None:
    """Exchange blank, unit 0, with another unit of a model whose head is not tied."""

    def exchange(values: mx.array, axis: int) -> mx.array:
        order = np.arange(values.shape[axis])
        order[[0, unit]] = unit, 0
        return mx.take(values, mx.array(order), axis=axis)

    tensors = mx.load(str(folder / "model.safetensors"))
    assert isinstance(tensors, dict)
    mx.eval(tensors)  # before the file is written anew
    for name in ("encoder.out.weight", "encoder.out.bias", "ctc_head.weight", "ctc_head.bias"):
        tensors[name] = exchange(tensors[name], 0)
    tensors["encoder.out_mid.weight"] = exchange(tensors["encoder.out_mid.weight"], 1)
    mx.save_safetensors(str(folder / "model.safetensors"), tensors, {"format": "pt"})
    tree = json.loads((folder / "tokenizer.json").read_text())
    numbers, other = tree["model"]["vocab"], tree["added_tokens"][0]
    (blank,) = (token for token, number in numbers.items() if number == 0)
    (moved,) = (token for token, number in numbers.items() if number == unit)
    numbers[blank], numbers[moved], other["id"] = unit, 0, unit
    (folder / "tokenizer.json").write_text(json.dumps(tree))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "pad_token_id": unit}))


@pytest.mark.parametrize("unit", [1, 37, 269])
@pytest.mark.parametrize(
    "options", [SearchOptions(), SearchOptions(decoder="beam", beam=6, nbest=6)], ids=["greedy", "beam"]
)
def test_blank_may_be_any_unit(tmp_path: Path, unit: int, options: SearchOptions) -> None:
    # Given a model, and the same one whose blank has changed places with another unit
    folder = shutil.copytree(GOLDEN / "granite" / "wide", tmp_path / "moved")
    model = model_of("wide")
    assert unit < model.config.vocabulary
    move_blank(folder, unit)
    moved = load_model(folder)
    # When both search
    expected = search(model, model.encode(utterances()), options)
    found = search(moved, moved.encode(utterances()), options)
    # Then the lists are the same, the other unit's label being 0
    for ours, theirs in zip(found, expected, strict=True):
        texts = [tuple(0 if token == unit else token for token in each.tokens) for each in theirs]
        assert [each.tokens for each in ours] == texts
        assert [moved.tokenizer.decode(each.tokens) for each in ours] == [
            model.tokenizer.decode(each.tokens) for each in theirs
        ]
        np.testing.assert_allclose([each.score for each in ours], [each.score for each in theirs], atol=1e-3)


def test_names_of_tensors_follow_from_the_configuration() -> None:
    model = model_of("wide")
    tensors = mx.load(str(GOLDEN / "granite" / "wide" / "model.safetensors"))
    assert isinstance(tensors, dict)
    found = {name: tuple(value.shape) for name, value in tensors.items() if "num_batches" not in name}
    assert stored_shapes(GraniteNetwork(model.config), GRANITE) == found
