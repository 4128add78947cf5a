"""From token ids to text and words, by the sentencepiece model beside the weights or by the vocabulary in the
configuration. Owns pieces and how they join; knows no times.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import sentencepiece

from spool.errors import InvalidRequest, ModelUnreadable
from worker.models.base import TokenSpan

WORD_START = "▁"  # sentencepiece's mark for "a space stands before this piece"
UNKNOWN = "<unk>"  # decoded with a space on both sides, so it is a word of its own
SILENT = frozenset({"<EOU>", "<EOB>"})
"""Marks of models for dialogue: an utterance ends, a backchannel ends. They are no text."""
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Tokenizer:
    """Pieces by id; `blank` is one past the last piece."""

    def __init__(
        self, pieces: Sequence[str], processor: sentencepiece.SentencePieceProcessor | None = None
    ) -> None:
        if not pieces:
            raise ModelUnreadable("the model names no vocabulary")
        self.pieces: tuple[str, ...] = tuple(pieces)
        self._processor = processor
        self._silent = frozenset(index for index, piece in enumerate(self.pieces) if piece in SILENT)

    @classmethod
    def from_bytes(cls, model: bytes, name: str = "tokenizer.model") -> "Tokenizer":
        """Reads a sentencepiece model. Raises ModelUnreadable."""
        return cls(*parse_pieces(model, name))

    @classmethod
    def from_file(cls, path: Path) -> "Tokenizer":
        """Reads a sentencepiece model file. Raises ModelUnreadable."""
        return cls(*read_pieces(path))

    @property
    def vocabulary_size(self) -> int:
        """How many pieces there are, blank not counted."""
        return len(self.pieces)

    @property
    def blank(self) -> int:
        return len(self.pieces)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids, without a leading space. Ids outside the vocabulary raise IndexError."""
        tokens = [int(token) for token in ids]
        for token in tokens:
            if not 0 <= token < len(self.pieces):
                raise IndexError(f"token {token} is outside the vocabulary of {len(self.pieces)}")
        tokens = [token for token in tokens if token not in self._silent]
        if self._processor is not None:
            return str(self._processor.decode(tokens))
        return _join([self.pieces[token] for token in tokens])

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:  # noqa: ARG002
        """The words that tokens spell; their texts joined by spaces are the text of all tokens."""
        starts = [
            at
            for at in range(len(tokens))
            if at == 0
            or begins_word(self.pieces[tokens[at - 1]], self.pieces[tokens[at]])
            or not self._silent.isdisjoint(tokens[at - 1 : at + 1])
        ]
        ends = [*starts[1:], len(tokens)]
        spans = (
            TokenSpan(self.decode(tokens[first:last]).strip(), first, last)
            for first, last in zip(starts, ends, strict=False)
        )
        return [span for span in spans if span.text]

    def encode(self, text: str) -> list[int]:
        """The ids of `text`: sentencepiece's, or without its model the longest piece that fits, from the
        left. Raises InvalidRequest where a part of it is no piece."""
        if self._processor is not None:
            tokens = [int(token) for token in self._processor.encode(text)]
            spelled = None if self._processor.unk_id() in tokens else tokens
        else:
            table = {piece: token for token, piece in enumerate(self.pieces)}
            spelled = longest_pieces(WORD_START + text.replace(" ", WORD_START), table)
        if spelled is None:
            raise InvalidRequest(f"{text!r} holds what the model has no token for")
        return spelled


Processor = sentencepiece.SentencePieceProcessor


def parse_pieces(model: bytes, name: str) -> tuple[list[str], Processor]:
    """The pieces of a sentencepiece model, and what encodes by it. Raises ModelUnreadable."""
    try:
        processor = Processor(model_proto=model)
        return [processor.id_to_piece(index) for index in range(processor.get_piece_size())], processor
    except (RuntimeError, OSError, ValueError, IndexError) as cause:
        raise ModelUnreadable(f"{name}: not a sentencepiece model: {cause}") from cause


def read_pieces(path: Path) -> tuple[list[str], Processor]:
    """As `parse_pieces`, of a file."""
    try:
        return parse_pieces(path.read_bytes(), str(path))
    except OSError as cause:
        raise ModelUnreadable(f"{path}: the tokenizer cannot be read: {cause.strerror}") from cause


def longest_pieces(text: str, tokens: Mapping[str, int]) -> list[int] | None:
    """A text in the longest pieces that fit, from the left; None where a part of it is no piece."""
    spelled, longest = [], max(map(len, tokens))
    while text:
        size = next((n for n in range(min(longest, len(text)), 0, -1) if text[:n] in tokens), 0)
        if size == 0:
            return None
        spelled.append(tokens[text[:size]])
        text = text[size:]
    return spelled


def begins_word(before: str, piece: str) -> bool:
    """Whether a word begins between these two pieces."""
    # A mark alone opens the word that follows, so the next piece's own mark still begins another.
    return piece.startswith(WORD_START) or UNKNOWN in (piece, before)


def _join(pieces: Sequence[str]) -> str:
    text = bytearray()
    for piece in pieces:
        raw = BYTE_PIECE.fullmatch(piece)
        text += bytes([int(raw[1], 16)]) if raw else piece.replace(WORD_START, " ").encode()
    return text.decode(errors="replace").removeprefix(" ")
