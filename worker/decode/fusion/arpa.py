"""n-gram language models in ARPA files, whose words are the acoustic model's tokens.

A token is written either as the tokenizer's piece ("▁the") or, as NeMo's tools write it, as the character
with code id + 100. A file is of the second kind if every word in it is one character. `ngram` makes a graph
of what is read here.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spool.errors import InvalidRequest

BEGIN, END, UNKNOWN = -1, -2, -3
MARKS = {"<s>": BEGIN, "</s>": END, "<unk>": UNKNOWN, "<UNK>": UNKNOWN}
NEMO_OFFSET = 100
LN10 = math.log(10.0)
NEVER = -99.0  # log10 that ARPA files give a probability of zero
COUNT = re.compile(r"[0-9]{1,18}")
LONGEST = 16  # the highest order; a larger number is no language model
_TOKENS = "tokens sha256 "
"""Begins a line before the model that names the vocabulary it was written for."""

Gram = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """An n-gram's log-probability and back-off weight, natural logarithms, and its line in the file."""

    log_prob: float
    backoff: float
    line: int


@dataclass(slots=True)
class Arpa:
    """The contents of a file: entries by n-gram of token ids, BEGIN, END and UNKNOWN."""

    entries: dict[Gram, Entry] = field(default_factory=dict)
    order: int = 0


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is not empty: its number from 1, and its text."""

    number: int
    text: str


def read_arpa(path: Path, pieces: Sequence[str]) -> Arpa:
    """The model in `path`, for a tokenizer with these `pieces`.

    Raises InvalidRequest, naming the file and if possible the line: the file cannot be read, a line is
    broken, an n-gram is repeated or has a word that is no token, a section is not as long as announced, <s>,
    </s> or the end is missing. n-grams that contain <unk>, or <s> or </s> inside, are left out: no token
    sequence reaches them.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path}: not a text in UTF-8, so no ARPA file") from error
    except OSError as error:
        raise InvalidRequest(f"{path}: the language model cannot be read: {error.strerror}") from error
    # Tokens may be any character: only \r and \n end a line, and other white space does not end a word.
    lines = [_Line(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), 1)]
    return _Reader(path, [line for line in lines if line.text], pieces).read()


def write_arpa(
    path: Path,
    order: int,
    probabilities: Mapping[Gram, float],
    backoffs: Mapping[Gram, float],
    pieces: Sequence[str],
) -> int:
    """Write a model over the tokens with these `pieces`; returns its number of n-grams. Tokens are written as
    pieces if those can be read back, else as NeMo does. The file names the vocabulary, and `read_arpa`
    refuses it for another one. Raises InvalidRequest if there are too many tokens to write."""
    words = _words(pieces)
    by_length: dict[int, list[Gram]] = defaultdict(list)
    for gram in sorted({*probabilities, (BEGIN,)}):
        by_length[len(gram)].append(gram)
    with path.open("w", encoding="utf-8", newline="\n") as out:
        out.write(f"{_TOKENS}{_digest(pieces)}\n\n\\data\\\n")
        out.writelines(f"ngram {n}={len(by_length[n])}\n" for n in range(1, order + 1))
        for n in range(1, order + 1):
            out.write(f"\n\\{n}-grams:\n")
            for gram in by_length[n]:
                log = math.log10(probabilities[gram]) if gram in probabilities else NEVER
                rest = f"\t{math.log10(backoffs[gram]):.7g}" if gram in backoffs else ""
                out.write(f"{log:.7g}\t{' '.join(words[token] for token in gram)}{rest}\n")
        out.write("\n\\end\\\n")
    return sum(map(len, by_length.values()))


def _words(pieces: Sequence[str]) -> dict[int, str]:
    """The spelling of each token in the file."""
    marks = {BEGIN: "<s>", END: "</s>"}
    plain = all(piece and not re.search(r"\s", piece) for piece in pieces) and len({*pieces}) == len(pieces)
    if plain and any(len(piece) > 1 for piece in pieces) and not MARKS.keys() & {*pieces} - {"<unk>"}:
        return marks | dict(enumerate(pieces))
    if len(pieces) > 0xD800 - NEMO_OFFSET:  # the codes from there on are surrogates
        raise InvalidRequest(f"a vocabulary of {len(pieces)} tokens cannot be written as an ARPA file")
    return marks | {token: chr(token + NEMO_OFFSET) for token in range(len(pieces))}


def _digest(pieces: Sequence[str]) -> str:
    return hashlib.sha256("\0".join(pieces).encode()).hexdigest()


class _Reader:
    """One reading of one file."""

    def __init__(self, path: Path, lines: Sequence[_Line], pieces: Sequence[str]) -> None:
        self._path = path
        self._lines: Iterator[_Line] = iter(lines)
        self._last = lines[-1].number if lines else 0
        self._pieces = pieces
        self._found = Arpa()

    def read(self) -> Arpa:
        line = self._next()
        while line.text.strip() != "\\data\\":  # whatever stands before it is a comment
            if line.text.startswith(_TOKENS) and line.text != _TOKENS + _digest(self._pieces):
                raise InvalidRequest(
                    f"{self._path}: was built for the tokens of another model; build it again for this one"
                )
            line = self._next()
        counts, line = self._counts()
        for order, count in enumerate(counts, 1):
            if line.text.strip() != f"\\{order}-grams:":
                raise self._broken(line, f"expected \\{order}-grams:")
            line = self._section(order, count, line)
        if line.text.strip() != "\\end\\":
            raise self._broken(line, "expected \\end\\")
        for mark, name in ((BEGIN, "<s>"), (END, "</s>")):
            if (mark,) not in self._found.entries:
                raise InvalidRequest(f"{self._path}: {name} is not among the 1-grams")
        self._found.order = len(counts)
        return self._found

    def _next(self) -> _Line:
        line = next(self._lines, None)
        if line is None:
            raise InvalidRequest(f"{self._path}: ends at line {self._last}, before the end of the model")
        return line

    def _counts(self) -> tuple[list[int], _Line]:
        """The announced number of n-grams of each order, and the line that follows."""
        counts: list[int] = []
        while (line := self._next()).text.startswith("ngram "):
            order, _, count = (part.strip() for part in line.text.removeprefix("ngram ").partition("="))
            if order != str(len(counts) + 1) or not COUNT.fullmatch(count):
                raise self._broken(line, "not a count of n-grams in order")
            counts.append(int(count))
        if not 1 <= len(counts) <= LONGEST:
            raise self._broken(line, f"{len(counts)} orders are announced, not 1 to {LONGEST}")
        return counts, line

    def _section(self, order: int, count: int, header: _Line) -> _Line:
        """Read the n-grams of one order; returns the line that follows."""
        rows: list[tuple[_Line, float, list[str], float]] = []
        while not (line := self._next()).text.startswith("\\"):
            rows.append((line, *self._fields(line, order)))
        if len(rows) != count:
            raise self._broken(header, f"{count} {order}-grams are announced, and {len(rows)} follow")
        spell = self._spelling([words[0] for _, _, words, _ in rows]) if order == 1 else self._spell
        self._spell = spell
        for row, log_prob, words, backoff in rows:
            gram = tuple(self._token(row, word, spell) for word in words)
            if gram in self._found.entries:
                raise self._broken(row, f"{' '.join(words)} is repeated")
            if not _is_reached(gram):
                continue
            if order > 1 and gram[:-1] not in self._found.entries:
                raise self._broken(row, f"{' '.join(words[:-1])} is not a {order - 1}-gram of the model")
            self._found.entries[gram] = Entry(log_prob, backoff, row.number)
        return line

    _spell: Callable[[str], int | None]

    def _fields(self, line: _Line, order: int) -> tuple[float, list[str], float]:
        """A line's log-probability, words and back-off weight; natural logarithms."""
        if "\t" in line.text:
            first, words, *rest = line.text.split("\t")
            parts = [first, *words.split(" "), *[part for part in rest if part.strip()]]
        else:
            parts = [part for part in line.text.split(" ") if part]
        if len(parts) not in (order + 1, order + 2):
            raise self._broken(line, f"not a {order}-gram between two numbers")
        numbers = [parts[0], *parts[order + 1 :]]
        try:
            log_prob, backoff = [float(number) for number in numbers] + [0.0] * (2 - len(numbers))
        except ValueError as error:
            raise self._broken(line, "a number is expected") from error
        if not (math.isfinite(log_prob) and math.isfinite(backoff)) or log_prob > 0:
            raise self._broken(line, "a probability is not a finite logarithm of at most 0")
        return log_prob * LN10, parts[1 : order + 1], backoff * LN10

    def _spelling(self, words: Sequence[str]) -> Callable[[str], int | None]:
        """From a word of this file to its token, judging by the 1-grams."""
        size = len(self._pieces)
        if all(len(word) == 1 for word in words if word not in MARKS):
            return lambda word: _by_code(word, size)
        table = {piece: token for token, piece in enumerate(self._pieces)}
        return table.get

    def _token(self, line: _Line, word: str, spell: Callable[[str], int | None]) -> int:
        if word in MARKS:
            return MARKS[word]
        token = spell(word) if word else None
        if token is None:
            raise self._broken(line, f"{word!r} is not a token of the model")
        return token

    def _broken(self, line: _Line, why: str) -> InvalidRequest:
        return InvalidRequest(f"{self._path}: line {line.number}: {why}")


def _by_code(word: str, size: int) -> int | None:
    token = ord(word) - NEMO_OFFSET if len(word) == 1 else -1
    return token if 0 <= token < size else None


def _is_reached(gram: Gram) -> bool:
    """Whether a token sequence can contain this n-gram; true of all 1-grams."""
    return len(gram) == 1 or (UNKNOWN not in gram and END not in gram[:-1] and BEGIN not in gram[1:])
