"""Units of a `units.txt`: characters, or pieces of words with sentencepiece's mark. Ids are the file's own,
not those of a sentencepiece model, which is used for no more than to divide phrases into pieces."""

import re
from collections.abc import Sequence
from pathlib import Path

from spool.errors import InvalidRequest, ModelUnreadable
from worker.models.base import WIDE, TokenSpan, is_wide
from worker.models.tokenizers.pieces import WORD_START, Processor, longest_pieces

BLANK = "<blank>"
SILENT = re.compile(r"<(blank|unk|sos|eos|sos/eos|context|/context)>|</context>")


class UnitTokenizer:
    """Units by id; 0 is blank."""

    def __init__(self, units: Sequence[str], processor: Processor | None = None) -> None:
        self.pieces: tuple[str, ...] = tuple(units)
        self._processor = processor
        self._ids = {unit: index for index, unit in enumerate(self.pieces)}
        self._marked = any(unit.startswith(WORD_START) for unit in self.pieces)
        letters = "".join(unit for unit in self.pieces if not SILENT.fullmatch(unit))
        self._upper = any(map(str.isupper, letters)) and not any(map(str.islower, letters))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of units in lower case; what is no text is left out. Raises IndexError outside the
        units."""
        words: list[str] = []
        for span in self.words(ids):
            glued = words and (is_wide(words[-1][-1]) or is_wide(span.text[0]))
            words.append(span.text if glued or not words else f" {span.text}")
        return "".join(words)

    def words(self, tokens: Sequence[int], language: str | None = None) -> list[TokenSpan]:  # noqa: ARG002
        """The words that units spell: pieces join up to the next mark, characters of languages written
        without spaces stand alone."""
        spans: list[TokenSpan] = []
        text, first = "", 0
        for at, token in enumerate(tokens):
            unit = self._unit(token)
            wide = bool(unit) and is_wide(unit)
            if text and (unit.startswith((WORD_START, " ")) or wide or is_wide(text) or not self._marked):
                spans += _span(text, first, at)
                text = ""
            if not text:
                first = at
            text += unit
        return [*spans, *_span(text, first, len(tokens))]

    def encode(self, text: str) -> list[int]:
        """The units of a text: sentencepiece's pieces where its model lies beside the units, else the longest
        units that fit, from the left. Raises InvalidRequest where a part of it is no unit."""
        tokens: list[int] = []
        for word in (text.upper() if self._upper else text).split():
            for part in re.findall(f"{WIDE.pattern}|[^{WIDE.pattern[1:-1]}]+", word):
                tokens += self._encode_part(part, text)
        return tokens

    def _encode_part(self, part: str, text: str) -> list[int]:
        if is_wide(part) or not self._marked:
            return self._longest_units(part, text)
        if self._processor is not None:
            pieces = [str(piece) for piece in self._processor.encode(part, out_type=str)]
            if all(piece in self._ids for piece in pieces):
                return [self._ids[piece] for piece in pieces]
        return self._longest_units(WORD_START + part, text)

    def _longest_units(self, part: str, text: str) -> list[int]:
        tokens = longest_pieces(part, self._ids)
        if tokens is None:
            raise InvalidRequest(f"{text!r} holds what the model has no unit for")
        return tokens

    def _unit(self, token: int) -> str:
        if not 0 <= int(token) < len(self.pieces):
            raise IndexError(f"unit {token} is outside the {len(self.pieces)} units")
        unit = self.pieces[int(token)]
        return "" if SILENT.fullmatch(unit) else unit


def _span(text: str, first: int, last: int) -> list[TokenSpan]:
    word = text.replace(WORD_START, " ").strip().lower()
    return [TokenSpan(word, first, last)] if word else []


def read_units(path: Path, processor: Processor | None) -> UnitTokenizer:
    """The units of a file: `unit id` a line. Raises ModelUnreadable."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise ModelUnreadable(f"{path}: the units cannot be read: {cause}") from cause
    units: list[str] = []
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts:
            continue
        if len(parts) != 2 or parts[1] != str(len(units)):
            raise ModelUnreadable(
                f"{path}: line {number}: expected a unit and its id {len(units)}, not {line[:60]!r}"
            )
        units.append(parts[0])
    if len(units) < 3 or units[0] != BLANK:
        raise ModelUnreadable(f"{path}: the first unit must be {BLANK}, and two more must follow")
    return UnitTokenizer(units, processor)
