"""A second model orders the hypotheses of a first one: it reads each text, teacher-forced, and its
log-probability is added by a weight.

The first model may be of any family; the second is one with an attention decoder (Whisper, Canary, U2++),
which hears the same audio, or a language model, which hears nothing: an LSTM over pieces of its own, or
n-grams over the first model's tokens. Those reweigh a lattice too. Knows no chunks.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis
from spool.errors import InvalidRequest
from worker.decode.answer import Answer
from worker.decode.fusion.fusion import read_model
from worker.decode.fusion.graph import Graph
from worker.decode.lattice.confidence import arc_posteriors
from worker.decode.lattice.reweighted import reweight
from worker.decode.words import text_of
from worker.models.base import Tokenizer
from worker.models.language.lstm import LstmLanguageModel
from worker.models.language.ngram import NgramLanguageModel
from worker.models.requests import DecodeRequest

Samples = NDArray[np.float32]


class SecondReader:
    """A loaded model with an attention decoder, or a language model."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model
        if isinstance(model, LstmLanguageModel | NgramLanguageModel):
            self._head, self._space = "", ""
            return
        heads = [name for name in ("attention", "ctc+attention") if name in model.heads]
        if not heads:
            raise InvalidRequest(f"rescoring: {model.info.name} has no attention decoder")
        self._head = heads[0]
        # Whether a text begins with a space in its tokens, as Whisper's do.
        spelled = model.tokenizer.encode(" a") if self._head == "attention" else []
        self._space = " " if model.tokenizer.decode(spelled).startswith(" ") else ""

    def check(self, request: DecodeRequest, tokenizer: Tokenizer | None = None) -> None:
        """tokenizer: of the first model. Raises InvalidRequest where the reader cannot be asked so, and for
        n-grams that are not of these tokens."""
        if not np.isfinite(request.reader_weight):
            raise InvalidRequest("rescoring: the weight must be a finite number")
        if self._head == "attention":
            self._model.prepare(request)
        if isinstance(self._model, NgramLanguageModel) and tokenizer is not None:
            read_model(self._model.path, tokenizer.pieces)

    def order(
        self,
        samples: Sequence[Samples],
        answers: Sequence[Answer],
        tokenizer: Tokenizer,
        requests: Sequence[DecodeRequest],
    ) -> list[Answer]:
        """The answers, each with its hypotheses by their own score and `reader_weight` times the reader's,
        equals in their order; of n-grams the lattice too, where one is asked for and its words have tokens.
        Raises InvalidRequest where the reader has no tokens for a text."""
        if isinstance(self._model, NgramLanguageModel):
            grams = read_model(self._model.path, tokenizer.pieces)
            return [_read_by(grams, *each) for each in zip(answers, requests, strict=True)]
        rows = [row for row, answer in enumerate(answers) if len(answer.hypotheses) > 1]
        texts = [[text_of(each, tokenizer) for each in answers[row].hypotheses] for row in rows]
        own = [requests[row] for row in rows]
        read = self.log_probabilities([samples[row] for row in rows], texts, own) if rows else []
        ordered = list(answers)
        for row, sums in zip(rows, read, strict=True):
            ordered[row] = _order_hypotheses(answers[row], requests[row].reader_weight, sums.tolist())
        return ordered

    def log_probabilities(
        self,
        samples: Sequence[Samples],
        texts: Sequence[Sequence[str]],
        requests: Sequence[DecodeRequest],
    ) -> list[NDArray[np.float32]]:
        """Of each utterance the log-probability of each text and its end."""
        model, encode = self._model, self._model.tokenizer.encode
        tokens = [[encode(self._space + text) if text else [] for text in each] for each in texts]
        if not self._head:
            return [model.score(each) for each in tokens]
        encoded = model.encode(samples)
        head = model.heads[self._head]
        if self._head == "ctc+attention":
            return list(head.score(encoded.frames, encoded.lengths, tokens))
        prepared = [model.prepare(request) for request in requests]
        questions = model.ask(encoded, prepared, [None] * len(samples))
        prompts = [
            next((each for each in question.prompts if not each.timestamps), question.prompts[0])
            for question in questions
        ]
        end = model.end_rule.ends[0]
        closed = [[[*each, end] for each in row] for row in tokens]
        return list(head.score(encoded, [prompt.tokens for prompt in prompts], closed))


def _order_hypotheses(answer: Answer, weight: float, sums: Sequence[float]) -> Answer:
    scored: list[Hypothesis] = [
        replace(each, score=each.score + weight * own)
        for each, own in zip(answer.hypotheses, sums, strict=True)
    ]
    scored.sort(key=lambda hypothesis: -hypothesis.score)
    return replace(answer, hypotheses=tuple(scored))


def _read_by(grams: Graph, answer: Answer, request: DecodeRequest) -> Answer:
    known = len(grams.base)
    sums = []
    for each in answer.hypotheses:
        # A token beyond the pieces stands for no text.
        added, state = grams.read([token for token in each.tokens if token < known], grams.start)
        sums.append(added + float(grams.ends[state]))
    answer = _order_hypotheses(answer, request.reader_weight, sums)
    if request.lattice is None or answer.graph is None or answer.reach is not None:
        return answer
    return replace(answer, graph=arc_posteriors(reweight(answer.graph, grams, request.reader_weight)))
