"""Builds an n-gram language model of a model's tokens from texts, as searches hear it. Knows files and
tokenizers; neither the server nor who may have the result."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spool.errors import InvalidRequest
from worker.decode.fusion.arpa import LONGEST, write_arpa
from worker.decode.fusion.estimate import estimate
from worker.decode.fusion.fusion import Speller
from worker.decode.fusion.spelling import spell

MOST_TOKENS = 3_000_000
"""Of all texts: about two million words, and a gigabyte or two of memory."""


@dataclass(frozen=True, slots=True)
class Built:
    """What was built: the order (at most the one asked for), n-grams, sentences and tokens; words that the
    model's tokens cannot spell, which were left out."""

    order: int
    ngrams: int
    sentences: int
    tokens: int
    unspelled: int


def build_language_model(texts: Sequence[Path], tokenizer: Speller, order: int, output: Path) -> Built:
    """Write the model of the texts (UTF-8, a sentence a line) to `output` as an ARPA file.

    Raises InvalidRequest: an order out of range, a text that cannot be read, none of whose words the tokens
    can spell, or too much of it.
    """
    if not 1 <= order <= LONGEST:
        raise InvalidRequest(f"--order: {order} is not between 1 and {LONGEST}")
    lines: list[list[int]] = []
    tokens = unspelled = words = 0
    for line in _lines(texts):
        ids, missed = _spelled(tokenizer, line)
        words, unspelled, tokens = words + len(line.split()), unspelled + missed, tokens + len(ids)
        if tokens > MOST_TOKENS:
            raise InvalidRequest(f"the texts have more than {MOST_TOKENS} tokens; give fewer")
        if ids:
            lines.append(ids)
    if not lines:
        names = ", ".join(map(str, texts))
        why = f"the model has tokens for none of the {words} words" if words else "there are no words"
        raise InvalidRequest(f"{names}: {why} in it")
    grams = estimate(lines, len(tokenizer.pieces), order)
    try:
        count = write_arpa(output, grams.order, grams.probabilities, grams.backoffs, tokenizer.pieces)
    except OSError as error:
        raise InvalidRequest(f"{output}: cannot be written: {error.strerror}") from error
    return Built(grams.order, count, len(lines), tokens, unspelled)


def _spelled(tokenizer: Speller, line: str) -> tuple[list[int], int]:
    """The tokens of a line, folded to what the tokenizer spells, and how many of its words it cannot."""
    if (ids := spell(tokenizer, line)) is not None:
        return ids, 0
    kept = [word for word in line.split() if spell(tokenizer, word)]
    missed = len(line.split()) - len(kept)
    if not kept:
        return [], missed
    if (ids := spell(tokenizer, " ".join(kept))) is not None:
        return ids, missed
    # Words that need to be folded in different ways.
    return [token for word in kept for token in spell(tokenizer, word) or ()], missed


def _lines(texts: Iterable[Path]) -> Iterator[str]:
    for path in texts:
        try:
            with path.open(encoding="utf-8-sig") as file:
                for line in file:
                    if text := " ".join(line.split()):
                        yield text
        except UnicodeDecodeError:
            raise InvalidRequest(f"{path}: is not UTF-8; save the file as UTF-8") from None
        except OSError as error:
            raise InvalidRequest(f"{path}: cannot be read: {error.strerror}") from error
