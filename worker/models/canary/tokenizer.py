"""Canary's tokens: one sentencepiece model for all languages, or one for each behind one of special tokens.

A token's id is its part's offset plus its id there; parts stand in the order of the configuration. Special
tokens are looked up by piece and are never text. Knows no prompt.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spool.errors import ModelUnreadable
from worker.models.tokenizers.pieces import UNKNOWN, Processor, Tokenizer, parse_pieces

SPECIAL_PART = "spl_tokens"
SPECIAL = re.compile(r"^<\|[^|]+\|>$|^<pad>$")
STAMP = re.compile(r"^<\|(\d+)\|>$")
LANGUAGE = re.compile(r"^<\|([a-z]{2,3})\|>$")
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


class CanaryTokenizer(Tokenizer):
    """All parts as one vocabulary."""

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
        special_size = self.parts[0].size if self.is_aggregate else len(pieces)
        if self.is_aggregate and self.parts[0].name != SPECIAL_PART:
            raise ModelUnreadable(f"{source}: the first of tokenizer.langs must be {SPECIAL_PART}")
        # The first of equal pieces: special tokens stand in front of all languages.
        self._ids = {piece: at for at, piece in reversed(list(enumerate(pieces[:special_size])))}
        self._special = frozenset(
            at
            for at, piece in enumerate(pieces)
            if piece == UNKNOWN or (at < special_size and (self.is_aggregate or SPECIAL.match(piece)))
        )
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
        codes = (LANGUAGE.match(self.pieces[token]) for token in self._special)
        return frozenset(match[1] for match in codes if match is not None) & TRAINED

    def special(self, piece: str, source: str = "the tokenizer") -> int:
        """The id of a special token. Raises ModelUnreadable where there is none."""
        if piece not in self._ids:
            raise ModelUnreadable(f"{source}: the tokenizer has no {piece}, so it is no Canary's")
        return self._ids[piece]

    def has(self, piece: str) -> bool:
        """Whether there is such a special token."""
        return piece in self._ids

    def is_text(self, token: int) -> bool:
        """Whether a token is text: neither special nor beyond the vocabulary."""
        return 0 <= token < len(self.pieces) and token not in self._special

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without a leading space; special tokens, and those that round the vocabulary
        up, have none."""
        return super().decode([token for token in map(int, ids) if self.is_text(token)])

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of `text` by the part of a language, by default the first; what it has no piece for becomes
        its unknown token, as in NeMo."""
        texts = self.parts[1:] or self.parts
        part = next((part for part in texts if part.name == language), texts[0])
        return [part.offset + int(token) for token in part.processor.encode(text)]
