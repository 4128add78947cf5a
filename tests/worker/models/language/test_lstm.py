"""The LSTM language model against numpy, as a reader of other models' lists, and where it is refused."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile

from ops.testbed.invoking import invoke
from spool.domain import Recognition
from spool.errors import InvalidRequest, ModelUnreadable, UnknownModel, WeightsMismatch
from tests.worker.models.language.fixtures import (
    DEMO,
    HIDDEN,
    LAYERS,
    Tensors,
    random_tensors,
    write_language_model,
)
from worker.cli.main import main
from worker.engine import ModelRecognizer, load_recognizer, recognizer_of
from worker.models import DecodeRequest, LstmLanguageModel, SearchOptions, load_model, load_reader

ROOT = Path(__file__).parents[4]
TEXTS = ("one two one zero", "", "bed", "happy happy cat and the rest of it is some text")
WEIGHT = 0.6


@pytest.fixture(scope="module")
def tensors() -> Tensors:
    return random_tensors()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tensors: Tensors) -> Path:
    return write_language_model(tmp_path_factory.mktemp("language"), tensors)


@pytest.fixture(scope="module")
def model(folder: Path) -> LstmLanguageModel:
    loaded = load_reader(folder)
    assert isinstance(loaded, LstmLanguageModel)
    return loaded


def restated(tensors: Tensors, tokens: Sequence[int]) -> float:
    """One text after another, one step after another, in 64 bit; PyTorch's LSTM by its formula."""
    wide = {name: value.astype(np.float64) for name, value in tensors.items()}
    edge, total = len(wide["output.bias"]) - 1, 0.0
    hidden, cell = np.zeros((2, LAYERS, HIDDEN))
    for before, after in zip([edge, *tokens], [*tokens, edge], strict=True):
        x = wide["embedding.weight"][before]
        for layer in range(LAYERS):
            gates = wide[f"rnn.lstm.weight_ih_l{layer}"] @ x + wide[f"rnn.lstm.bias_ih_l{layer}"]
            gates += wide[f"rnn.lstm.weight_hh_l{layer}"] @ hidden[layer] + wide[f"rnn.lstm.bias_hh_l{layer}"]
            entry, forget, candidate, output = gates.reshape(4, HIDDEN)
            cell[layer] = cell[layer] / (1 + np.exp(-forget)) + np.tanh(candidate) / (1 + np.exp(-entry))
            x = hidden[layer] = np.tanh(cell[layer]) / (1 + np.exp(-output))
        logits = wide["output.weight"] @ x + wide["output.bias"]
        total += logits[after] - np.log(np.exp(logits).sum())
    return total


def test_texts_have_the_restatements_log_probability(model: LstmLanguageModel, tensors: Tensors) -> None:
    spelled = [model.tokenizer.encode(text) if text else [] for text in TEXTS]
    expected = [restated(tensors, tokens) for tokens in spelled]
    # Each token is rounded to float32 some times; they are at most thirty.
    assert model.score(spelled) == pytest.approx(expected, abs=1e-4)
    assert model.info.size == sum(value.nbytes for value in tensors.values()) - 8 * HIDDEN * LAYERS * 2


def test_a_beam_is_ordered_by_its_own_score_and_the_texts(model: LstmLanguageModel, tensors: Tensors) -> None:
    first = load_model(DEMO)
    recognizer = ModelRecognizer(first).read_by(recognizer_of(model))
    audio = [read(name) for name in ("digits/string-1.flac", "words/cat-1.flac", "digits/string-2.flac")]
    options, ask = (
        SearchOptions(decoder="beam", beam=6, nbest=4, head="ctc"),
        DecodeRequest(reader_weight=WEIGHT),
    )
    together = recognizer.recognize(audio, [ask.model_copy(update={"search": options})] * 3)
    alone = [recognizer.recognize([each], [ask.model_copy(update={"search": options})])[0] for each in audio]
    assert (
        together
        == alone
        == recognizer.recognize(audio[::-1], [ask.model_copy(update={"search": options})] * 3)[::-1]
    )
    plain = ModelRecognizer(first).recognize(
        audio, [DecodeRequest(search=SearchOptions(decoder="beam", beam=6, nbest=6, head="ctc"))] * 3
    )
    moved = 0
    for before, after in zip(plain, together, strict=True):
        assert isinstance(before, Recognition)
        assert isinstance(after, Recognition)
        sums = [
            (
                each.score + WEIGHT * restated(tensors, model.tokenizer.encode(text) if text else []),
                each.tokens,
            )
            for each, text in zip(before.hypotheses, (each.text for each in before.nbest), strict=True)
        ]
        expected = sorted(sums, key=lambda pair: -pair[0])[:4]
        assert [each.tokens for each in after.hypotheses] == [tokens for _, tokens in expected]
        scores = [each.score for each in after.hypotheses]
        assert scores == pytest.approx([score for score, _ in expected], abs=1e-3)
        moved += after.hypotheses[0].tokens != before.hypotheses[0].tokens
    assert moved
    assert recognizer.info.makers[-1] == model.info.digest


def read(name: str) -> np.ndarray:
    samples, _ = soundfile.read(ROOT / "samples" / "demo-tdt" / name, dtype="float32")
    return np.asarray(samples, np.float32)


def test_the_command_takes_one_to_rescore(folder: Path) -> None:
    file = str(ROOT / "samples" / "demo-tdt" / "words" / "bed-1.flac")
    asked = ["transcribe", file, "--model", str(DEMO), "--no-chunk", "--format", "json", "--decoder", "beam"]
    asked += ["--nbest", "4"]
    plain, ordered = (
        json.loads(invoke(main, [*asked, *more]).stdout)[0]["nbest"]
        for more in ([], ["--rescore-model", str(folder), "--rescore-weight", "0.5"])
    )
    assert {tuple(each["tokens"]) for each in plain} == {tuple(each["tokens"]) for each in ordered}
    assert [each["score"] for each in plain] != [each["score"] for each in ordered]


def test_it_transcribes_nothing(folder: Path) -> None:
    with pytest.raises(UnknownModel, match="transcribes nothing"):
        load_model(folder)
    recognizer = load_recognizer(str(folder))
    with pytest.raises(InvalidRequest, match="name it in `rescore`"):
        recognizer.prepare(DecodeRequest())
    with pytest.raises(InvalidRequest, match="transcribes nothing"):
        recognizer.read_by(recognizer)


def test_files_that_do_not_fit_are_refused(tmp_path: Path, tensors: Tensors) -> None:
    with pytest.raises(WeightsMismatch, match=r"rnn\.lstm\.weight_ih_l2"):
        load_reader(write_language_model(tmp_path, tensors, layers=3))
    with pytest.raises(ModelUnreadable, match="hidden of the language model must be a positive whole number"):
        load_reader(write_language_model(tmp_path, tensors, hidden=0))
