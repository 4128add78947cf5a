"""Canary's tokens: one sentencepiece model for all languages, or one for each behind one of special tokens.

A token's id is its part's offset plus its id there; parts stand in the order of the configuration. Special
tokens are looked up by piece and are never text. Knows no prompt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spool.errors import ModelUnreadable
from worker.models.tokenizers.pieces import Processor, parse_pieces
from worker.models.tokenizers.special import SpecialTokens

SPECIAL_PART = "spl_tokens"
STAMP = re.compile(r"^<\|(\d+)\|>$")
END, PAD, START = "<|endoftext|>", "<pad>", "<|startoftranscript|>"
# What canary-1b-v2 was trained on (its card); its vocabulary names some 180 languages.
TRAINED = frozenset(
    "bg hr cs da nl en et fi fr de el hu it lv lt mt pl pt ro sk sl es sv ru uk".split()  # noqa: SIM905
)


@dataclass(frozen=True, slots=True)
class Part:
    """One sentencepiece model, and the id of its first token."""

    name: str
    offset: int
    processor: Processor

    @property
    def size(self) -> int:
        """How many tokens it has."""
        return int(self.processor.get_piece_size())


class CanaryTokenizer(SpecialTokens):
    """All parts as one vocabulary."""

    owner = "a Canary"

    def __init__(self, models: Mapping[str, bytes], source: str) -> None:
        """models: sentencepiece models by language, or one under an empty name. Raises ModelUnreadable."""
        self.parts: list[Part] = []
        pieces: list[str] = []
        for name, model in models.items():
            own, processor = parse_pieces(model, f"{source}: {name or 'tokenizer'}")
            self.parts.append(Part(name, len(pieces), processor))
            pieces += own
        super().__init__(pieces)
        self.is_aggregate = len(self.parts) > 1
        self.reads_prompts = not self.is_aggregate
        if self.is_aggregate and self.parts[0].name != SPECIAL_PART:
            raise ModelUnreadable(f"{source}: the first of tokenizer.langs must be {SPECIAL_PART}")
        self.mark(self.parts[0].size if self.is_aggregate else len(pieces), every=self.is_aggregate)
        self.stamps = {
            at: int(match[1]) for at in self._special if (match := STAMP.match(pieces[at])) is not None
        }
        self.eos, self.pad = self.special(END, source), self.special(PAD, source)
        self.special(START, source)

    @property
    def languages(self) -> frozenset[str]:
        """The codes that can be asked for."""
        if self.is_aggregate:
            return frozenset(part.name for part in self.parts[1:])
        return super().languages & TRAINED

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of `text` by the part of a language, by default the first; what it has no piece for becomes
        its unknown token, as in NeMo."""
        texts = self.parts[1:] or self.parts
        part = next((part for part in texts if part.name == language), texts[0])
        return [part.offset + int(token) for token in part.processor.encode(text)]
