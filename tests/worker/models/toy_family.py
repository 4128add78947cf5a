"""A second family of models, to prove the face: an attention decoder that spells what it hears, letter by
letter. A tenth of a second of constant sound at level n / 27 is the n-th letter, 27 a space. A polyglot tells
languages by their letters: German by z, Welsh by y, English by e."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from spool.domain import Word
from worker.models import (
    FAMILIES,
    NO_OPENING,
    BatchCost,
    Capabilities,
    DecodeRequest,
    EndRule,
    HeardWindow,
    Independent,
    ModelFiles,
    ModelInfo,
    NoRules,
    Opening,
    PreparedRequest,
    Prompt,
    PromptAnswer,
    Question,
    TimedText,
    TokenSpan,
    TokenTimes,
    Unread,
    Window,
    WindowOutcome,
    refuse_unsupported,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz "
LETTER_SAMPLES = 1600
END, START = len(LETTERS), len(LETTERS) + 1
CAPABILITIES = Capabilities(
    frozenset({"greedy", "beam"}),
    frozenset({"en"}),
    frozenset({"transcribe"}),
    "tokens",
    frozenset({"language"}),
    Independent(aim=8.0, max=12.0, overlap=1.0, tail=2.0),
)

TELLING = {"de": "z", "cy": "y", "en": "e"}


class Letters:
    """A tokenizer of single letters."""

    pieces = (*LETTERS, "<end>", "<start>")

    def encode(self, text: str) -> list[int]:
        return [LETTERS.index(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self.pieces[token] for token in ids)

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        spans, first = [], 0
        for last in [*(at for at, token in enumerate(tokens) if token == LETTERS.index(" ")), len(tokens)]:
            if last > first:
                spans.append(TokenSpan(self.decode(tokens[first:last]), first, last))
            first = last + 1
        return spans


class SpellingHead:
    """A state is the letters of each utterance and how many were spelled."""

    eos, max_tokens = END, 448

    def start(self, encoded: Sequence[Any], prompts: Sequence[Sequence[int]], beam: int) -> Any:
        return [(list(letters), 0, beam) for letters in encoded]

    def step(self, tokens: mx.array, state: Any) -> tuple[mx.array, Any]:
        rows = []
        for letters, at, beam in state:
            row = np.zeros(len(Letters.pieces), np.float32)
            row[letters[at] if at < len(letters) else END] = 9.0
            rows += [row] * beam
        return mx.array(np.stack(rows)), [(letters, at + 1, beam) for letters, at, beam in state]

    def reorder(self, state: Any, parents: mx.array) -> Any:
        return state

    def select(self, state: Any, utterances: Sequence[int]) -> Any:
        return [state[at] for at in utterances]

    def join(self, states: Sequence[Any]) -> Any:
        return [row for state in states for row in state]


class ToyModel:
    """The smallest `AttentionModel` there is."""

    def __init__(self, name: str, polyglot: bool = False) -> None:
        self.info = ModelInfo(name, "0" * 64, ("attention",), 0.1, chunking=CAPABILITIES.chunking)  # type: ignore[arg-type]
        self.capabilities, self.tokenizer = CAPABILITIES, Letters()
        if polyglot:
            tasks, languages = frozenset({"transcribe", "translate"}), frozenset(TELLING)
            options = frozenset({"language", "task"})
            self.capabilities = replace(
                CAPABILITIES, languages=languages, tasks=tasks, options=options, detects=True
            )
        self.end_rule, self.aligner = EndRule((END,)), None
        self.heads: Mapping[str, Any] = {"attention": SpellingHead()}
        self.rules = NoRules(len(Letters.pieces))

    def prepare(self, options: DecodeRequest) -> PreparedRequest:
        refuse_unsupported(self.info.name, self.capabilities, options)
        return PreparedRequest(options)

    def cost(self, samples: int, beam: int = 1) -> BatchCost:
        return BatchCost(120, 1000 * beam)

    def encode(self, samples: Sequence[np.ndarray]) -> list[list[int]]:
        middles = [row[LETTER_SAMPLES // 2 :: LETTER_SAMPLES] for row in samples]
        return [[round(float(level) * len(LETTERS)) - 1 for level in row] for row in middles]

    def ask(self, encoded: Any, prepared: Any, languages: Any) -> list[Question]:
        return [
            self._question(letters, request.request, known)
            for letters, request, known in zip(encoded, prepared, languages, strict=True)
        ]

    def _question(self, letters: Sequence[int], options: DecodeRequest, known: str | None) -> Question:
        if known or options.pinned or not self.capabilities.detects:
            return Question((Prompt((START,), language=known or options.pinned or "en"),))
        text = self.tokenizer.decode(letters)
        counts = {code: 0.01 + text.count(TELLING[code]) for code in options.candidates or TELLING}
        shares = {code: round(count / sum(counts.values()), 3) for code, count in counts.items()}
        ranked = tuple(sorted(shares.items(), key=lambda pair: -pair[1]))
        return Question((Prompt((START,), language=ranked[0][0]),), languages=ranked)

    def is_text(self, token: int) -> bool:
        return token < END

    def opening(self, tokens: Sequence[int]) -> Opening:
        return NO_OPENING

    def judge(
        self, window: Window, readings: Sequence[PromptAnswer], question: Any, samples: Any
    ) -> WindowOutcome:
        return WindowOutcome("kept", readings[0].tokens)

    def unread(self, heard: HeardWindow, times: TokenTimes) -> Unread:
        return Unread()

    def frames_in(self, samples: int) -> int:
        return 120

    def time(self, windows: Sequence[HeardWindow]) -> list[TimedText]:
        return [self._timed(each.tokens) for each in windows]

    def _timed(self, tokens: Sequence[int]) -> TimedText:
        starts = np.arange(len(tokens) + 1, dtype=np.float32) / 10
        words = tuple(
            Word(text=span.text, start=starts[span.first], end=starts[span.last], confidence=1.0)
            for span in self.tokenizer.words(tokens)
        )
        return TimedText(TokenTimes(np.asarray(starts, np.float32), np.ones(len(tokens), np.float32)), words)


class ToyFamily:
    """Folders that hold a file called `toy`."""

    def matches(self, files: ModelFiles) -> bool:
        return (files.path / "toy").is_file()

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> Any:
        return ToyModel(files.name, "polyglot" in (files.path / "toy").read_text())


def spell(text: str) -> np.ndarray:
    """The sound of a text."""
    levels = [(LETTERS.index(letter) + 1) / len(LETTERS) for letter in text]
    return np.repeat(np.array(levels, np.float32), LETTER_SAMPLES)


def write_toy(folder: Path, kind: str = "") -> str:
    """A model's folder; of the kind `polyglot` it knows several languages."""
    folder.mkdir(exist_ok=True)
    (folder / "toy").write_text(kind)
    return str(folder)


def load_with_toy(model: str) -> Any:
    """The engine's loader, with the family among those it knows."""
    from worker.engine import load_recognizer
    from worker.models import registry

    registry.FAMILIES = (ToyFamily(), *FAMILIES)
    return load_recognizer(model)
