"""From text to tokens and back by GPT-2's byte-level BPE, and which tokens make a word.

Knows which ids are text, and no times.
"""

import json
import string
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from spool.domain.spacing import is_apart
from spool.errors import InvalidRequest, ModelUnreadable
from worker.models.base import TokenSpan, is_wide
from worker.models.tokenizers.pieces import WORD_START

# Written without spaces: each character is a word (openai-whisper, tokenizer.py).
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ByteTokenizer:
    """Text tokens are the first `texts` of `vocabulary_size`, without those that were added. special: the
    numbers of these."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, texts: int, vocabulary_size: int) -> None:
        # A prompt that spells a special token is text, not an order to the model.
        tokenizer.encode_special_tokens = True
        self._tokenizer, self._texts, self.vocabulary_size = tokenizer, texts, vocabulary_size
        added = tokenizer.get_added_tokens_decoder()
        self.special = {token.content: number for number, token in added.items()}
        table = byte_table()
        # Some 50,000 pieces: without a Python frame for each character.
        self._bytes = {
            token: bytes(map(table.__getitem__, piece))
            for piece, token in tokenizer.get_vocab(with_added_tokens=False).items()
            if token < texts and token not in added and table.keys() >= frozenset(piece)
        }

    def check(self, special: Mapping[str, int | None], source: str) -> None:
        """Raises ModelUnreadable where the tokens are not the model's: one of the special ones is missing or
        has another number (None: it may have any), or a text token is missing."""
        other = f"{source}: a tokenizer of another vocabulary"
        for content, number in special.items():
            own = self.special.get(content)
            if own is None:
                raise ModelUnreadable(f"{other}: it has no {content}")
            if number not in (None, own):
                raise ModelUnreadable(f"{other}: {content} is {own} here, {number} in the model")
        texts = set(range(self._texts)) - set(self.special.values())
        if missing := len(texts - self._bytes.keys()):
            raise ModelUnreadable(
                f"{other}: {missing} of its {len(texts)} text tokens are missing or no bytes"
            )

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The text of each text token by itself; parts of a character come out as replacement marks."""
        return tuple(self._bytes.get(token, b"").decode(errors="replace") for token in range(self._texts))

    def encode(self, text: str) -> list[int]:
        """The text tokens of `text`, as it stands."""
        return [int(token) for token in self._tokenizer.encode(text, add_special_tokens=False).ids]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; special tokens and times have none. Ids outside the vocabulary raise
        IndexError."""
        return self.spell(tokens)

    def spell(self, tokens: Sequence[int]) -> str:
        """What tokens write, letter by letter. Raises IndexError as `decode`."""
        return b"".join(self._raw(int(token)) for token in tokens).decode("utf-8", errors="replace")

    def _raw(self, token: int) -> bytes:
        if not 0 <= token < self.vocabulary_size:
            raise IndexError(f"token {token} is outside the vocabulary of {self.vocabulary_size}")
        return self._bytes.get(token, b"")

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:
        """The words of text tokens: every token is in one, and the texts joined are the text.

        Tokens are joined to whole characters; a word then begins at a leading space or is punctuation. Where
        a language is written without spaces, each joined piece is a word, unless that puts a space before it.
        """
        pieces = self.characters(tokens)
        words: list[TokenSpan] = []
        for piece in pieces:
            alone = (
                not is_apart(words[-1].text, piece.text)
                if language in UNSPACED and words
                else piece.text.strip() in string.punctuation
            )
            if words and not alone and not piece.text.startswith(" "):
                words[-1] = TokenSpan(words[-1].text + piece.text, words[-1].first, piece.last)
            else:
                words.append(piece)
        return words

    def characters(self, tokens: Sequence[int]) -> list[TokenSpan]:
        """Tokens joined to whole characters; the texts joined are the text."""
        text, spans, first, offset = self.spell(tokens), [], 0, 0
        for last in range(1, len(tokens) + 1):
            piece = self.spell(tokens[first:last])
            cut = piece.find(REPLACEMENT)
            # A mark that the text keeps is the text's own: bytes that never become a character.
            if cut < 0 or text[offset + cut : offset + cut + 1] == REPLACEMENT or last == len(tokens):
                spans.append(TokenSpan(piece, first, last))
                offset += len(piece)
                first = last
        return spans


def split_wide(
    tokenizer: ByteTokenizer, tokens: Sequence[int], words: Sequence[TokenSpan]
) -> list[TokenSpan]:
    """Words of these tokens with every character that is written without spaces (`is_wide`) by itself."""
    spans: list[TokenSpan] = []
    for word in words:
        if not any(map(is_wide, word.text)):
            spans.append(word)
            continue
        was_wide = True
        for each in tokenizer.characters(tokens[word.first : word.last]):
            placed = TokenSpan(each.text, word.first + each.first, word.first + each.last)
            wide = is_wide(each.text.strip())
            if not wide and not was_wide:
                before = spans.pop()
                placed = TokenSpan(before.text + placed.text, before.first, placed.last)
            spans.append(placed)
            was_wide = wide
    return spans


def read_vocabulary(
    vocabulary: Path, merges: Path, split: str, added: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """The byte-level BPE of a folder without tokenizer.json. split: the pattern by which a text is divided;
    added: the added tokens by number, as `tokenizer_config.json` has them. Raises ModelUnreadable."""
    try:
        words = json.loads(vocabulary.read_text())
        lines = [line for line in merges.read_text().splitlines() if line and not line.startswith("#version")]
        pairs = [(first, second) for first, second in (line.split(" ") for line in lines)]
        tokenizer = tokenizers.Tokenizer(models.BPE(words, pairs))
        tokenizer.normalizer = normalizers.NFC()
        divided = pre_tokenizers.Split(tokenizers.Regex(split), "isolated")
        bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([divided, bytewise])
        for _, token in sorted(added.items(), key=lambda pair: int(pair[0])):
            each = tokenizers.AddedToken(token["content"], special=token["special"], normalized=False)
            tokenizer.add_special_tokens([each]) if token["special"] else tokenizer.add_tokens([each])
    except Exception as cause:  # the package raises nothing more exact
        raise ModelUnreadable(f"{vocabulary}: not a vocabulary with its {merges.name}: {cause}") from cause
    return tokenizer


class WordByteTokenizer(ByteTokenizer):
    """Tokens of a model that writes words as sentencepiece does: a space belongs to the word behind it, and
    punctuation to the word before it. `pieces` follow sentencepiece's form: a mark for a space, and `<0x0A>`
    for the bytes of what is no text by itself."""

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(_piece_of(self._bytes.get(token, b"")) for token in range(self._texts))

    def encode(self, text: str) -> list[int]:
        """The tokens of words as they stand behind others. Raises InvalidRequest where there are no tokens
        for a part of them."""
        spaced = f" {text.strip()}"
        tokens = super().encode(spaced)
        normaliser = self._tokenizer.normalizer
        if self.decode(tokens) != (normaliser.normalize_str(spaced) if normaliser else spaced):
            raise InvalidRequest(f"{text!r} holds what the model has no token for")
        return tokens

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:  # noqa: ARG002
        """The words that tokens spell; their texts joined by spaces are the text of all tokens."""
        starts = [at for at, token in enumerate(tokens) if at == 0 or self._raw(int(token))[:1] == b" "]
        ends = [*starts[1:], len(tokens)]
        spans = (
            TokenSpan(self.decode(tokens[first:last]).strip(), first, last)
            for first, last in zip(starts, ends, strict=False)
        )
        return [span for span in spans if span.text]


def _piece_of(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = ""
    if text and WORD_START not in text and not text.replace(" ", "").split()[1:] and text.isprintable():
        return text.replace(" ", WORD_START)
    return "".join(f"<0x{byte:02X}>" for byte in raw)


def byte_table() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves (Radford et al. 2019, encoder.py)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + index): byte for index, byte in enumerate(others)}
