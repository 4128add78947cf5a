"""From text to Whisper's tokens and back, and which tokens make a word.

GPT-2's byte-level BPE, read from `tokenizer.json`. Knows which ids are text; what the others mean is
`config.SpecialTokens`'. Knows no times.
"""

import json
import string
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import tokenizers

from spool.errors import ModelUnreadable
from worker.models.base import TokenSpan, is_wide
from worker.models.whisper.config import MAX_PROMPT, SpecialTokens

# Written without spaces: each character is a word (openai-whisper, tokenizer.py).
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
OPENING = "\"'“¿([{-"
CLOSING = "\"'.。,，!！?？:：”)]}、"  # noqa: RUF001 - full-width marks are meant
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
# Symbols that stand for sounds or typesetting, never for words (openai-whisper, non_speech_tokens).
SYMBOLS = (
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))"),
    *("[[", "]]", "{{", "}}", "♪♪", "♪♪♪"),
)
NOTES = "♩♪♫♬♭♮♯"


class WhisperTokenizer:
    """Text tokens are below `ids.eot`."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, ids: SpecialTokens) -> None:
        # A prompt that spells a special token is text, not an order to the model.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer
        self.ids = ids
        table, end = byte_table(), ids.eot
        # Some 50,000 pieces: without a Python frame for each character.
        self._bytes = {
            token: bytes(map(table.__getitem__, piece))
            for piece, token in tokenizer.get_vocab(with_added_tokens=False).items()
            if token < end and table.keys() >= frozenset(piece)
        }

    @classmethod
    def from_file(cls, path: Path, vocabulary: int) -> "WhisperTokenizer":
        """Reads `tokenizer.json` of a model of that many tokens.

        Raises ModelUnreadable where it is missing, broken or of another vocabulary.
        """
        ids = SpecialTokens(vocabulary)
        if not path.is_file():
            raise ModelUnreadable(
                f"{path}: the tokenizer is missing; it lies beside OpenAI's weights on the hub"
            )
        try:
            text = path.read_text()
            added = {entry["content"]: entry["id"] for entry in json.loads(text)["added_tokens"]}
            tokenizer = tokenizers.Tokenizer.from_str(text)
        # The package raises bare Exception for what is not its format.
        except Exception as cause:
            raise ModelUnreadable(f"{path}: not a tokenizer: {cause}") from cause
        expected = {
            "<|endoftext|>": ids.eot,
            "<|startoftranscript|>": ids.sot,
            "<|transcribe|>": ids.transcribe,
            "<|notimestamps|>": ids.no_timestamps,
        }
        for content, token in expected.items():
            if added.get(content) != token:
                raise ModelUnreadable(
                    f"{path}: a tokenizer of another vocabulary: {content} is {added.get(content)}, "
                    f"in a model of {vocabulary} tokens it is {token}"
                )
        reader = cls(tokenizer, ids)
        if missing := ids.eot - len(reader._bytes):
            raise ModelUnreadable(
                f"{path}: a tokenizer of another vocabulary: {missing} of {ids.eot} are missing"
            )
        return reader

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each text token by itself; parts of a character come out as replacement marks."""
        return tuple(self._bytes[token].decode(errors="replace") for token in range(self.ids.eot))

    @property
    def vocabulary_size(self) -> int:
        """How many tokens there are, special ones and times included."""
        return self.ids.vocabulary

    @cached_property
    def blank_token(self) -> int:
        """The token of one space."""
        return self.encode(" ")[0]

    def encode(self, text: str) -> list[int]:
        """The text tokens of `text`, as it stands."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False).ids]

    def encode_words(self, text: str) -> list[int]:
        """The text tokens of words as Whisper writes them: behind a space, in scripts that have one."""
        return self.encode(text if is_wide(text) else f" {text}")

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; special tokens and times have none. Ids outside the vocabulary raise
        IndexError."""
        return b"".join(self._raw(int(token)) for token in tokens).decode("utf-8", errors="replace")

    def _raw(self, token: int) -> bytes:
        if not 0 <= token < self.ids.vocabulary:
            raise IndexError(f"token {token} is outside the vocabulary of {self.ids.vocabulary}")
        return self._bytes.get(token, b"")

    def previous(self, text: str = "", hotwords: str = "", carried: Sequence[int] = ()) -> list[int]:
        """What stands behind sot_prev, at most 223 tokens: hotwords, then a prompt, then the tokens of what
        was said before. What does not fit is cut from the oldest of the text, hotwords last."""
        favoured = self.encode(" " + hotwords.strip())[:MAX_PROMPT] if hotwords.strip() else []
        before = [*(self.encode(" " + text.strip()) if text.strip() else []), *carried]
        room = MAX_PROMPT - len(favoured)
        return favoured + (before[-room:] if room else [])

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

    def non_speech_tokens(self) -> list[int]:
        """OpenAI's set of tokens that are never speech, special tokens not included."""
        tokens = {self.encode(" -")[0], self.encode(" '")[0]}
        for symbol in (*SYMBOLS, *NOTES):
            for encoded in (self.encode(symbol), self.encode(" " + symbol)):
                if len(encoded) == 1 or symbol in NOTES:
                    tokens.add(encoded[0])
        return sorted(tokens)


def join_punctuation(words: Sequence[TokenSpan]) -> list[TokenSpan]:
    """Opening marks joined to the word that follows them, closing marks to the one before (openai-whisper,
    timing.merge_punctuations)."""
    joined: list[TokenSpan] = []
    for word in reversed(words):
        if joined and word.text.startswith(" ") and word.text.strip() in OPENING:
            after = joined.pop()
            joined.append(TokenSpan(word.text + after.text, word.first, after.last))
        else:
            joined.append(word)
    out: list[TokenSpan] = []
    for word in reversed(joined):
        if out and not out[-1].text.endswith(" ") and word.text in CLOSING:
            out[-1] = TokenSpan(out[-1].text + word.text, out[-1].first, word.last)
        else:
            out.append(word)
    return out


def byte_table() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves (Radford et al. 2019, encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}
