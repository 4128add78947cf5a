"""A vocabulary with special tokens, which order an attention decoder what to write: they are looked up by
piece and are never text. Knows no prompt."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from spool.errors import ModelUnreadable
from worker.models.tokenizers.pieces import UNKNOWN, Tokenizer

SPECIAL = re.compile(r"^<\|[^|]+\|>$|^<pad>$")
LANGUAGE = re.compile(r"^<\|([a-z]{2,3})\|>$")


class SpecialTokens(Tokenizer):
    """Pieces by id, some of them special.

    owner: whose such a vocabulary is, for errors. reads_prompts: a prompt is encoded as one text, not piece
    by piece. is_aggregate: several vocabularies side by side. stamps: the times that tokens name.
    """

    owner = "a model with this kind of prompt"
    reads_prompts = False
    is_aggregate = False
    stamps: Mapping[int, int] = MappingProxyType({})

    def mark(self, special: int, *, every: bool = False) -> None:
        """Among the first `special` pieces, those that look like it are special tokens, or `every` one."""
        front = self.pieces[:special]
        # The first of equal pieces: special tokens stand in front of all languages.
        self._ids = {piece: at for at, piece in reversed(list(enumerate(front)))}
        self._special = frozenset(
            at
            for at, piece in enumerate(self.pieces)
            if piece == UNKNOWN or (at < special and (every or SPECIAL.match(piece)))
        )

    def special(self, piece: str, source: str = "the tokenizer") -> int:
        """The id of a special token. Raises ModelUnreadable where there is none."""
        if piece not in self._ids:
            raise ModelUnreadable(
                f"{source}: the tokenizer has no {piece}, so it is not that of {self.owner}"
            )
        return self._ids[piece]

    def has(self, piece: str) -> bool:
        """Whether there is such a special token."""
        return piece in self._ids

    @property
    def languages(self) -> frozenset[str]:
        """The codes that special tokens name."""
        codes = (LANGUAGE.match(self.pieces[token]) for token in self._special)
        return frozenset(match[1] for match in codes if match is not None)

    def is_text(self, token: int) -> bool:
        """Whether a token is text: neither special nor beyond the vocabulary."""
        return 0 <= token < len(self.pieces) and token not in self._special

    def encode(self, text: str, language: str | None = None) -> list[int]:  # noqa: ARG002 - one vocabulary for all
        """The ids of `text` in a language. Raises InvalidRequest where a part of it is no piece."""
        return super().encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, without a leading space; special tokens, and those that round the vocabulary
        up, have none."""
        return super().decode([token for token in map(int, ids) if self.is_text(token)])
