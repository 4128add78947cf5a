"""The binary trigram of the package pocketsphinx (`en-us.lm.bin`), and a smaller one made of it as ARPA text.

The file, little-endian: `Trie Language Model`, u8 order, u32 n-grams of each order, i32 1; for order 3 three
tables of 65,536 float32 (probabilities of bigrams, their back-offs, probabilities of trigrams); for each
unigram and one more float32 probability, float32 back-off and u32, the first of its bigrams; the bigrams and
the trigrams in bits, from the lowest on: word, then (bigrams only) back-off, then probability as places in
the tables, then (bigrams only) the first of its trigrams; 8 bytes behind each; u32 and that many bytes of
words, each ended by 0. The bigrams below a word name what stood before it, the trigrams below a bigram what
stood before both. Logarithms are to the base 1.0001. Nothing of the package's code is used.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest

_HEAD = b"Trie Language Model"
_PLACES = 1 << 16
_BASE = math.log(1.0001)
_UNIGRAM = np.dtype([("prob", "<f4"), ("backoff", "<f4"), ("first", "<u4")])
BEGIN, END, UNKNOWN = "<s>", "</s>", "<UNK>"
Integers = NDArray[np.int64]
Logs = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trigram:
    """A trigram model in natural logarithms. Rows of `bigrams` and `trigrams` are numbers of words, oldest
    first."""

    words: tuple[str, ...]
    prob1: Logs
    backoff1: Logs
    bigrams: Integers
    prob2: Logs
    backoff2: Logs
    trigrams: Integers
    prob3: Logs


def read_trigram(data: bytes) -> Trigram:
    """The model in this file. Raises InvalidRequest."""
    if not data.startswith(_HEAD) or data[len(_HEAD)] != 3:
        raise InvalidRequest("The language model is not a trigram of pocketsphinx.")
    at = len(_HEAD) + 1
    try:
        counts = [int(each) for each in np.frombuffer(data, "<u4", 3, at)]
        at += 4 * 3 + 4
        tables = np.frombuffer(data, "<f4", 3 * _PLACES, at).reshape(3, _PLACES).astype(np.float64) * _BASE
        at += 4 * 3 * _PLACES
        unigrams = np.frombuffer(data, _UNIGRAM, counts[0] + 1, at)
        at += _UNIGRAM.itemsize * (counts[0] + 1)
        word, pointer = counts[0].bit_length(), counts[2].bit_length()
        second, at = _records(data, at, counts[1], (word, 16, 16, pointer))
        third, at = _records(data, at, counts[2], (word, 16))
        size = int(np.frombuffer(data, "<u4", 1, at)[0])
        names = data[at + 4 : at + 4 + size].decode("utf-8").split("\0")
    except (ValueError, IndexError) as error:
        raise InvalidRequest("The language model ends too early.") from error
    firsts = unigrams["first"].astype(np.int64)
    last_word = np.repeat(np.arange(counts[0]), np.diff(firsts))
    used = len(last_word)  # words that are in no bigram leave room behind
    below = np.repeat(np.arange(used), np.diff(second[3][: used + 1]))
    before, last = second[0][:used], last_word
    return Trigram(
        words=tuple(names[: counts[0]]),
        prob1=unigrams["prob"][:-1] * _BASE,
        backoff1=unigrams["backoff"][:-1] * _BASE,
        bigrams=np.stack([before, last], 1),
        prob2=tables[0][second[2][:used]],
        backoff2=tables[1][second[1][:used]],
        trigrams=np.stack([third[0][: len(below)], before[below], last[below]], 1),
        prob3=tables[2][third[1][: len(below)]],
    )


def _records(data: bytes, at: int, count: int, widths: tuple[int, ...]) -> tuple[list[Integers], int]:
    """The fields of `count` packed records and one more, and where the data goes on."""
    total = sum(widths)
    size = ((1 + count) * total + 7) // 8 + 8
    stored = np.frombuffer(data, np.uint8, size, at)
    fields, start = [], np.arange(count + 1, dtype=np.int64) * total
    for width in widths:
        value = np.zeros(count + 1, np.uint64)
        for byte in range(8):
            value |= stored[(start >> 3) + byte].astype(np.uint64) << np.uint64(8 * byte)
        value = (value >> (start & 7).astype(np.uint64)) & np.uint64((1 << width) - 1)
        fields.append(value.astype(np.int64))
        start = start + width
    return fields, at + size


def shrink(model: Trigram, known: Iterable[str], words: int, bigrams: int, trigrams: int) -> Trigram:
    """The `words` most probable words of `known`, and the n-grams over them that change the model most, by
    probability times how far they are from what backing off gives. Back-offs are computed anew, so that each
    context adds up to one."""
    numbers = {word: number for number, word in enumerate(model.words)}
    own = sorted(numbers[word] for word in set(known) if word in numbers)
    own.sort(key=lambda number: -model.prob1[number])
    chosen = [numbers[BEGIN], numbers[END], *own[:words]]
    place = np.full(len(model.words), -1)
    place[chosen] = np.arange(len(chosen))
    prob1 = model.prob1[chosen].copy()
    prob1[0] = -np.inf
    prob1 -= np.log(np.exp(prob1).sum())
    pairs, prob2, backoff2 = _within(place, model.bigrams, model.prob2, model.backoff2)
    triples, prob3, _ = _within(place, model.trigrams, model.prob3, model.prob3)
    seen = np.exp(prob1)
    seen[0] = seen[1]  # as many beginnings as ends
    old_backoff1 = model.backoff1[chosen]
    # Gains are of the whole model; what is left afterwards is normalised.
    gain2 = seen[pairs[:, 0]] * np.exp(prob2) * np.abs(prob2 - old_backoff1[pairs[:, 0]] - prob1[pairs[:, 1]])
    code2 = pairs[:, 0] * len(chosen) + pairs[:, 1]
    order = np.argsort(code2)
    history, found_history = _find(code2[order], triples[:, 0] * len(chosen) + triples[:, 1])
    recent, found_recent = _find(code2[order], triples[:, 1] * len(chosen) + triples[:, 2])
    history, recent = order[history], order[recent]
    usable = found_history & found_recent
    lower = backoff2[history] + prob2[recent]
    weight = seen[triples[:, 0]] * np.exp(prob2[history]) * np.exp(prob3)
    gain3 = np.where(usable, weight * np.abs(prob3 - lower), -1.0)
    kept3 = np.argsort(-gain3, kind="stable")[: min(trigrams, int(usable.sum()))]
    needed = np.zeros(len(pairs), bool)
    needed[history[kept3]] = needed[recent[kept3]] = True
    gain2[needed] = np.inf
    kept2 = np.sort(np.argsort(-gain2, kind="stable")[: max(bigrams, int(needed.sum()))])
    pairs, prob2 = pairs[kept2], prob2[kept2]
    position = np.full(len(code2), -1)
    position[kept2] = np.arange(len(kept2))
    triples, prob3 = triples[kept3], prob3[kept3]
    backoff1 = _backoff(len(chosen), pairs[:, 0], prob2, prob1[pairs[:, 1]])
    backoff2 = _backoff(len(pairs), position[history[kept3]], prob3, prob2[position[recent[kept3]]])
    names = tuple(model.words[number] for number in chosen)
    return Trigram(names, prob1, backoff1, pairs, prob2, backoff2, triples, prob3)


def _within(place: Integers, ngrams: Integers, probs: Logs, backoffs: Logs) -> tuple[Integers, Logs, Logs]:
    """The n-grams whose words all have a place."""
    placed = place[ngrams]
    inside = (placed >= 0).all(axis=1)
    return placed[inside], probs[inside], backoffs[inside]


def _find(in_order: Integers, wanted: Integers) -> tuple[Integers, NDArray[np.bool_]]:
    at = np.minimum(np.searchsorted(in_order, wanted), len(in_order) - 1)
    return at, in_order[at] == wanted


def _backoff(contexts: int, of: Integers, probs: Logs, lower: Logs) -> Logs:
    """What is left for the words that a context does not name, over what the shorter context gives these."""
    taken = np.bincount(of, np.exp(probs), contexts)
    shorter = np.bincount(of, np.exp(lower), contexts)
    left = np.log(np.maximum(1 - taken, 1e-6)) - np.log(np.maximum(1 - shorter, 1e-6))
    return np.minimum(left, 0.0)


def write_arpa(model: Trigram, path: Path) -> None:
    """The model as ARPA text."""
    words, ten = model.words, math.log(10)
    with path.open("w", encoding="utf-8") as file:
        counts = (len(words), len(model.bigrams), len(model.trigrams))
        file.write("\\data\\\n" + "".join(f"ngram {n}={count}\n" for n, count in enumerate(counts, 1)))
        file.write("\n\\1-grams:\n")
        for word, prob, backoff in zip(words, model.prob1 / ten, model.backoff1 / ten, strict=True):
            file.write(f"{max(prob, -99):.4f}\t{word}\t{backoff:.4f}\n")
        file.write("\n\\2-grams:\n")
        for (a, b), prob, backoff in zip(
            model.bigrams.tolist(), model.prob2 / ten, model.backoff2 / ten, strict=True
        ):
            file.write(f"{prob:.4f}\t{words[a]} {words[b]}\t{backoff:.4f}\n")
        file.write("\n\\3-grams:\n")
        for (a, b, c), prob in zip(model.trigrams.tolist(), model.prob3 / ten, strict=True):
            file.write(f"{prob:.4f}\t{words[a]} {words[b]} {words[c]}\n")
        file.write("\n\\end\\\n")
