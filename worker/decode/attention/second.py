"""A second model orders the hypotheses of a first one: it reads each text, teacher-forced, and its
log-probability is added by a weight.

The first model may be of any family; the second is one with an attention decoder (Whisper, Canary, U2++),
which hears the same audio, or a language model, which hears nothing. Knows no chunks and no files.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.decode.result import Answer
from worker.decode.types import DecodeRequest, Hypothesis
from worker.decode.words import TextTokenizer, text_of
from worker.models.base import SpeechOptions
from worker.models.language.lstm import LstmLanguageModel

Samples = NDArray[np.float32]


class SecondReader:
    """A loaded model with an attention decoder, or a language model."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model
        if isinstance(model, LstmLanguageModel):
            self._head, self._space = "", ""
            return
        heads = [name for name in ("attention", "ctc+attention") if name in model.heads]
        if not heads:
            raise InvalidRequest(f"rescoring: {model.info.name} has no attention decoder")
        self._head = heads[0]
        # Whether a text begins with a space in its tokens, as Whisper's do.
        spelled = model.tokenizer.encode(" a") if self._head == "attention" else []
        self._space = " " if model.tokenizer.decode(spelled).startswith(" ") else ""

    def check(self, ask: DecodeRequest) -> None:
        """Raises InvalidRequest where the reader cannot be asked so."""
        if not np.isfinite(ask.reader_weight):
            raise InvalidRequest("rescoring: the weight must be a finite number")
        if self._head == "attention":
            self._model.prepare(ask.speech)

    def order(
        self,
        samples: Sequence[Samples],
        answers: Sequence[Answer],
        tokenizer: TextTokenizer,
        asks: Sequence[DecodeRequest],
    ) -> list[Answer]:
        """The answers, each with its hypotheses by their own score and `reader_weight` times the reader's,
        equals in their order. Raises InvalidRequest where the reader has no tokens for a text."""
        rows = [row for row, answer in enumerate(answers) if len(answer.hypotheses) > 1]
        texts = [[text_of(each, tokenizer) for each in answers[row].hypotheses] for row in rows]
        speeches = [asks[row].speech for row in rows]
        read = self.log_probabilities([samples[row] for row in rows], texts, speeches) if rows else []
        ordered = list(answers)
        for row, sums in zip(rows, read, strict=True):
            scored: list[Hypothesis] = [
                replace(each, score=each.score + asks[row].reader_weight * float(own))
                for each, own in zip(answers[row].hypotheses, sums, strict=True)
            ]
            scored.sort(key=lambda hypothesis: -hypothesis.score)
            ordered[row] = replace(answers[row], hypotheses=tuple(scored))
        return ordered

    def log_probabilities(
        self,
        samples: Sequence[Samples],
        texts: Sequence[Sequence[str]],
        speeches: Sequence[SpeechOptions],
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
        prepared = [model.prepare(speech) for speech in speeches]
        questions = model.ask(encoded, prepared, [None] * len(samples))
        prompts = [
            next((each for each in question.prompts if not each.timestamps), question.prompts[0])
            for question in questions
        ]
        end = model.end_rule.ends[0]
        closed = [[[*each, end] for each in row] for row in tokens]
        return list(head.score(encoded, [prompt.tokens for prompt in prompts], closed))
