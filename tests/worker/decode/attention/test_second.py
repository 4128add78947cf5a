"""A second model's decoder orders the first one's list; U2's own must give what its rescoring gives."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spool.domain import Hypothesis, Recognition
from spool.errors import InvalidRequest
from worker.decode import Answer, RescoringWeights, SecondReader, rescore
from worker.decode.search import search
from worker.engine import ModelRecognizer
from worker.engine.protocol import NOTHING
from worker.models import DecodeRequest, SearchOptions, load_model

GOLDEN = Path(__file__).parents[3] / "golden"
WEIGHT = 0.8


def samples() -> list[np.ndarray]:
    dump = np.load(GOLDEN / "wenet" / "rnnt.npz")
    whole = [dump[f"u{index}.wav"].astype(np.float32) / 32768 for index in range(2)]
    return [*whole, whole[0][:100]]


def test_a_models_own_decoder_gives_what_rescoring_gives() -> None:
    model = load_model(GOLDEN / "wenet" / "rnnt")
    encoded, tokenizer = model.encode(samples()), model.tokenizer
    answers = []
    for hypotheses in search(model, encoded, SearchOptions(decoder="beam", beam=8, nbest=8, head="ctc")):
        # Without what has no text of its own, such as <unk>, so that text and tokens say the same.
        spoken = {
            tuple(token for token in each.tokens if tokenizer.decode([token])): each.score
            for each in hypotheses
        }
        kept = [Hypothesis(tokens, score, tokens, tokens) for tokens, score in spoken.items()]
        answers.append(Answer(tuple(kept), None))
    assert [len(each.hypotheses) for each in answers[:2]] > [2, 2]
    ordered = SecondReader(model).order(
        samples(), answers, tokenizer, [DecodeRequest(reader_weight=WEIGHT)] * len(answers)
    )
    head, lists = model.heads["ctc+attention"], [list(each.hypotheses) for each in answers]
    expected = rescore(head, encoded.frames, encoded.lengths, lists, RescoringWeights(ctc=1 / WEIGHT))
    for before, answer, theirs in zip(answers, ordered, expected, strict=True):
        if len(before.hypotheses) < 2:
            assert answer == before
            continue
        assert [each.score for each in answer.hypotheses] == pytest.approx(
            [WEIGHT * each.score for each in theirs], abs=1e-3
        )
        assert answer.hypotheses[0].tokens == theirs[0].tokens


def test_the_recognizer_orders_a_list_and_then_cuts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, reader = load_model(GOLDEN / "ctc.nemo"), load_model(GOLDEN / "wenet" / "rnnt")

    def reversing(
        _: SecondReader, audio: object, texts: Sequence[Sequence[str]], speeches: object
    ) -> list[Any]:
        return [np.arange(len(each), dtype=np.float32) * 1e3 for each in texts]

    monkeypatch.setattr(SecondReader, "log_probabilities", reversing)
    options, asks = SearchOptions(decoder="beam", beam=4, nbest=2), [DecodeRequest(reader_weight=1.0)] * 2
    audio = samples()[:2]
    plain = SearchOptions(decoder="beam", beam=4, nbest=4)
    alone = ModelRecognizer(first).recognize(
        audio,
        [each.model_copy(update={"search": plain}) for each in asks],
    )
    ordered = (
        ModelRecognizer(first)
        .read_by(ModelRecognizer(reader))
        .recognize(audio, [each.model_copy(update={"search": options}) for each in asks])
    )
    for before, after in zip(alone, ordered, strict=True):
        assert isinstance(before, Recognition)
        assert isinstance(after, Recognition)
        tokens = [each.tokens for each in before.hypotheses]
        assert [each.tokens for each in after.hypotheses] == tokens[::-1][:2]
        spoken = [word.text for word in after.words]
        assert spoken == [span.text.strip() for span in first.tokenizer.words(after.hypotheses[0].tokens)]


def test_a_model_without_attention_decoder_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="has no attention decoder"):
        SecondReader(load_model(GOLDEN / "ctc.nemo"))
    with pytest.raises(InvalidRequest, match="must be a finite number"):
        SecondReader(load_model(GOLDEN / "wenet" / "rnnt")).check(DecodeRequest(reader_weight=float("nan")))


def test_one_hypothesis_is_not_read() -> None:
    model = load_model(GOLDEN / "wenet" / "rnnt")
    only = Answer((Hypothesis((5,), -1.0, (3,), (0,)),), None)
    assert SecondReader(model).order(samples()[:1], [only], model.tokenizer, [NOTHING]) == [only]


def test_a_batch_changes_no_bit_of_what_is_rescored() -> None:
    first, reader = load_model(GOLDEN / "wenet" / "rnnt"), load_model(GOLDEN / "wenet" / "rnnt")
    recognizer = ModelRecognizer(first).read_by(ModelRecognizer(reader))
    options, ask = (
        SearchOptions(decoder="beam", beam=6, nbest=6, head="ctc"),
        DecodeRequest(reader_weight=WEIGHT),
    )
    audio = samples()
    together = recognizer.recognize(audio, [ask.model_copy(update={"search": options})] * len(audio))
    alone = [recognizer.recognize([each], [ask.model_copy(update={"search": options})])[0] for each in audio]
    backwards = recognizer.recognize(audio[::-1], [ask.model_copy(update={"search": options})] * len(audio))[
        ::-1
    ]
    assert together == alone == backwards
