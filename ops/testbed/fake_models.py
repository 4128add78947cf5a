"""A tiny deterministic recognizer for tests that need a real engine process but no real model.

The model's name is its script, words separated by "+": `plain`; `asks` says in its words what each utterance
asks for; `weights=/path` has the digest of that file; `load-fails`; `load-aborts`; `sleep=0.01` a batch;
`pace=20` a second for 20 s of audio; `raises` in every batch; `broken-until=/path` raises until that path
exists; `nan` answers every utterance as weights that are no numbers do; `accent=b` writes `b-` before each
word, as another model would other words; `hesitates` says "um" for every second word; `gate=/path` waits in
every batch until that path exists; `ill=/path` aborts in every batch while it does. Samples speak too: any
sample above 0.995 aborts the process as Metal does, any sample below -0.995 raises, one above 0.990 fails its
utterance. Words depend on the utterance's own samples alone.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool.domain.recognition import Hypothesis, Recognition
from spool.domain.transcript import NbestText, Word
from spool.errors import EngineError, InvalidRequest, ModelUnreadable
from spool.sounds.dictionary import DEFAULT_WITNESS
from worker.diarization.registry import is_diarization
from worker.engine.diarization import StepRecognizer
from worker.engine.protocol import Failure, Recognizer
from worker.models.base import BatchCost, ModelInfo
from worker.models.requests import DecodeRequest, SearchOptions

LOADER = "ops.testbed.fake_models:load"
RATE = 16_000
ABORT, RAISE, FAIL = 0.999, -0.999, 0.992


def tone(seconds: float, level: float = 0.3, pitch: float = 220.0) -> NDArray[np.float32]:
    """A steady tone: speech, as far as a gate on energy is concerned."""
    t = np.arange(int(seconds * RATE)) / RATE
    return (level * np.sin(2 * np.pi * pitch * t)).astype(np.float32)


def poisoned(samples: NDArray[np.float32], value: float) -> NDArray[np.float32]:
    copy = samples.copy()
    copy[len(copy) // 2] = value
    return copy


class FakeRecognizer:
    def __init__(self, script: str) -> None:
        steps = dict(step.partition("=")[::2] for step in script.split("+"))
        if "load-fails" in steps:
            raise ModelUnreadable(f"The model {script} is only a name.")
        if "load-breaks" in steps:
            raise KeyError("weights")
        if "load-aborts" in steps:
            os.abort()
        self._gate = Path(steps["gate"]) if "gate" in steps else None
        self._ill = Path(steps["ill"]) if "ill" in steps else None
        self._sleep = float(steps.get("sleep", 0))
        self._pace = float(steps.get("pace", "inf"))
        self._hears_asks = "asks" in steps
        self._accent = f"{steps['accent']}-" if "accent" in steps else ""
        self._hesitates = "hesitates" in steps
        self._raises, self._nan = "raises" in steps, "nan" in steps
        self._broken_until = Path(steps["broken-until"]) if "broken-until" in steps else None
        weights = Path(steps["weights"]).read_bytes() if "weights" in steps else script.encode()
        self.info = ModelInfo(name=script, sha256=hashlib.sha256(weights).hexdigest(), heads=("tdt",))

    def prepare(self, request: DecodeRequest) -> ModelInfo:
        if "unspeakable" in request.phrases:
            raise InvalidRequest("the phrase 'unspeakable' cannot be written")
        return replace(self.info, language_model=_digest(request.language_model))

    def read_by(self, reader: Recognizer) -> Recognizer:
        """Refuse, as a model without hypotheses would."""
        raise InvalidRequest(f"rescoring: {reader.info.name} has no attention decoder")

    def cost(self, samples: int, options: SearchOptions) -> BatchCost:
        return BatchCost(samples, 0)

    def recognize(
        self,
        utterances: Sequence[NDArray[np.float32]],
        requests: Sequence[DecodeRequest],
    ) -> list[Recognition | Failure]:
        for request in requests:
            self.prepare(request)
        if self._gate is not None:
            self._gate.with_suffix(".reached").touch()
            while not self._gate.exists():
                time.sleep(0.005)
        time.sleep(self._sleep + sum(map(len, utterances)) / RATE / self._pace)
        if self._ill is not None and self._ill.exists():
            os.abort()
        if self._raises or (self._broken_until is not None and not self._broken_until.exists()):
            raise ValueError("a model that cannot compute")
        if self._nan:
            return [Failure(EngineError("The logits are not finite."), len(s) // 1280) for s in utterances]
        for samples in utterances:
            if float(samples.max(initial=0)) > 0.995:
                os.abort()
        for samples in utterances:
            if float(samples.min(initial=0)) < -0.995:
                raise ValueError("a sample I cannot stand")
        answers = [_recognition(samples, self._accent, hesitates=self._hesitates) for samples in utterances]
        if self._hears_asks:
            answers = [_asked(answer, ask) for answer, ask in zip(answers, requests, strict=True)]
            return [
                answer if isinstance(answer, Failure) else replace(answer, makers=self.prepare(ask).makers)
                for answer, ask in zip(answers, requests, strict=True)
            ]
        return answers


def _asked(answer: Recognition | Failure, ask: DecodeRequest) -> Recognition | Failure:
    """The words, each with the phrases and the last token before it: what an utterance asks shows."""
    if isinstance(answer, Failure):
        return answer
    said, best, before = [], answer.hypotheses[0], ask.context
    for word, token in zip(answer.words, best.tokens, strict=True):
        text = "+".join((word.text, *ask.phrases, str(before[-1]) if before else "first"))
        said.append(word.model_copy(update={"text": text}))
        before = (*before, token)
    both = (best, replace(best, score=best.score - 1.0))
    texts = (" ".join(word.text for word in said), "nothing")
    nbest = tuple(NbestText(text=text, score=each.score) for text, each in zip(texts, both, strict=True))
    return replace(answer, hypotheses=both, words=tuple(said), nbest=nbest)


def _digest(path: str | None) -> str | None:
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _recognition(
    samples: NDArray[np.float32], accent: str = "", *, hesitates: bool = False
) -> Recognition | Failure:
    if float(samples.max(initial=0)) > 0.99:
        return Failure(EngineError("a sample that is not a number to me"), len(samples) // 1280)
    words: list[Word] = []
    for start in range(0, len(samples) - RATE // 2, RATE):
        second = samples[start : start + RATE]
        loudness = round(100 * float(np.sqrt(np.mean(np.square(second, dtype=np.float64)))))
        if loudness:
            words.append(
                Word(
                    text="um" if hesitates and len(words) % 2 else f"{accent}level{loudness}",
                    start=(start + RATE // 10) / RATE,
                    end=(start + RATE // 2) / RATE,
                    confidence=1.0,
                )
            )
    tokens = tuple(range(len(words)))
    best = Hypothesis(tokens, -1.0, tokens, tuple(1 for _ in tokens), tuple(1.0 for _ in tokens))
    return Recognition((best,), tuple(words), len(samples) // 1280)


def load(model: str) -> Recognizer:
    """The witness is the real one."""
    if model == DEFAULT_WITNESS:
        from worker.engine.recognizer import load_recognizer

        return load_recognizer(model)
    return StepRecognizer(model) if is_diarization(model) else FakeRecognizer(model)
