"""From text to tokens and back by GPT-2's byte-level BPE, and which tokens make a word.

Knows which ids are text, and no times.
"""

import string
from collections.abc import Sequence
from functools import cached_property

import tokenizers

from worker.models.base import TokenSpan

# Written without spaces: each character is a word (openai-whisper, tokenizer.py).
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ByteTokenizer:
    """Text tokens are the first `texts` of `vocabulary_size`. missing: how many of these have no bytes."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, texts: int, vocabulary_size: int) -> None:
        # A prompt that spells a special token is text, not an order to the model.
        tokenizer.encode_special_tokens = True
        self._tokenizer, self._texts, self.vocabulary_size = tokenizer, texts, vocabulary_size
        table = byte_table()
        # Some 50,000 pieces: without a Python frame for each character.
        self._bytes = {
            token: bytes(map(table.__getitem__, piece))
            for piece, token in tokenizer.get_vocab(with_added_tokens=False).items()
            if token < texts and table.keys() >= frozenset(piece)
        }
        self.missing = texts - len(self._bytes)

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each text token by itself; parts of a character come out as replacement marks."""
        return tuple(self._bytes[token].decode(errors="replace") for token in range(self._texts))

    def encode(self, text: str) -> list[int]:
        """The text tokens of `text`, as it stands."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; special tokens and times have none. Ids outside the vocabulary raise
        IndexError."""
        return b"".join(self._raw(int(token)) for token in tokens).decode("utf-8", errors="replace")

    def _raw(self, token: int) -> bytes:
        if not 0 <= token < self.vocabulary_size:
            raise IndexError(f"token {token} is outside the vocabulary of {self.vocabulary_size}")
        return self._bytes.get(token, b"")

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        """The words of text tokens: every token is in one, and the texts joined are the text.

        Tokens are joined to whole characters; a word then begins at a leading space or is punctuation. Where
        a language is written without spaces, each joined piece is a word.
        """
        pieces = self._characters(tokens)
        if language in UNSPACED:
            return pieces
        words: list[TokenSpan] = []
        for piece in pieces:
            alone = piece.text.strip() in string.punctuation
            if words and not alone and not piece.text.startswith(" "):
                words[-1] = TokenSpan(words[-1].text + piece.text, words[-1].first, piece.last)
            else:
                words.append(piece)
        return words

    def _characters(self, tokens: Sequence[int]) -> list[TokenSpan]:
        text, spans, first, offset = self.decode(tokens), [], 0, 0
        for last in range(1, len(tokens) + 1):
            piece = self.decode(tokens[first:last])
            cut = piece.find(REPLACEMENT)
            # A mark that the text keeps is the text's own: bytes that never become a character.
            if cut < 0 or text[offset + cut : offset + cut + 1] == REPLACEMENT or last == len(tokens):
                spans.append(TokenSpan(piece, first, last))
                offset += len(piece)
                first = last
        return spans


def byte_table() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves (Radford et al. 2019, encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}
