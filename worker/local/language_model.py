"""Builds an n-gram language model over a model's tokens from texts, for use in searches."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from spool.errors import InvalidRequest
from worker.decode.fusion.arpa import LONGEST, write_arpa
from worker.decode.fusion.estimate import estimate
from worker.decode.fusion.fusion import Speller
from worker.decode.fusion.spelling import spell

MOST_TOKENS = 3_000_000
"""The most tokens of all texts: about two million words, and one or two gigabytes of memory."""


@dataclass(frozen=True, slots=True)
class Built:
    """The result: its order (at most the requested one), and its n-grams, sentences and tokens; unspelled:
    words that the model's tokens cannot spell, which were left out."""

    order: int
    ngrams: int
    sentences: int
    tokens: int
    unspelled: int


def build_language_model(texts: Sequence[Path], tokenizer: Speller, order: int, output: Path) -> Built:
    """Write the model of the texts (UTF-8, one sentence per line) to `output` as an ARPA file.

    Raises InvalidRequest if the order is out of range, a text cannot be read, the tokens can spell none of
    the words, or there is too much text.
    """
    if not 1 <= order <= LONGEST:
        raise InvalidRequest(f"--order: {order} is not between 1 and {LONGEST}")
    lines: list[list[int]] = []
    tokens = unspelled = words = 0
    for line in _lines(texts):
        ids, missed = _spell(tokenizer, line)
        words, unspelled, tokens = words + len(line.split()), unspelled + missed, tokens + len(ids)
        if tokens > MOST_TOKENS:
            raise InvalidRequest(f"the texts have more than {MOST_TOKENS} tokens; give fewer")
        if ids:
            lines.append(ids)
    if not lines:
        names = ", ".join(map(str, texts))
        why = f"the model has tokens for none of the {words} words" if words else "there are no words in it"
        raise InvalidRequest(f"{names}: {why}")
    grams = estimate(lines, len(tokenizer.pieces), order)
    try:
        count = write_arpa(output, grams.order, grams.probabilities, grams.backoffs, tokenizer.pieces)
    except OSError as error:
        raise InvalidRequest(f"{output}: cannot be written: {error.strerror}") from error
    return Built(grams.order, count, len(lines), tokens, unspelled)


def _spell(tokenizer: Speller, line: str) -> tuple[list[int], int]:
    """The tokens of a line, folded to what the tokenizer can spell, and the number of words it cannot."""
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
