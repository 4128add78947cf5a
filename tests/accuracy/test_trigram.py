"""The binary trigram that a decoding graph is made of: read bit by bit, made smaller, written as ARPA."""

import math
import random
import struct
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from ops.accuracy.graph.trigram import BEGIN, END, Trigram, read_trigram, shrink, write_arpa
from spool.errors import InvalidRequest

WORDS = ("</s>", "<s>", "a", "keeper", "lamp", "the", "zoo")
BASE = math.log(1.0001)


def pack(rows: list[list[int]], widths: tuple[int, ...]) -> bytes:
    """Bit fields from the lowest bit on, with room for one more row and 8 bytes."""
    total, bits = sum(widths), 0
    for number, row in enumerate(rows):
        at = number * total
        for value, width in zip(row, widths, strict=True):
            assert value < 1 << width
            bits |= value << at
            at += width
    return bits.to_bytes(((1 + len(rows)) * total + 7) // 8 + 8, "little")


Ngrams = dict[tuple[int, ...], tuple[float, float]]


def file_of(ngrams: Ngrams) -> bytes:
    """The file of these n-grams, oldest word first, with (log-probability, back-off)."""
    by_size = [{key: value for key, value in ngrams.items() if len(key) == size} for size in (1, 2, 3)]
    second = sorted(by_size[1], key=lambda key: key[::-1])
    third = sorted(by_size[2], key=lambda key: key[::-1])
    tables = np.zeros((3, 1 << 16), "<f4")
    for column, (keys, part) in enumerate(((second, 0), (second, 1), (third, 0))):
        tables[column, : len(keys)] = [ngrams[key][part] / BASE for key in keys]
    counts = [len(each) for each in by_size]
    word, pointer = counts[0].bit_length(), counts[2].bit_length()

    def first(keys: list[tuple[int, ...]], of: tuple[int, ...]) -> int:
        return sum(key[::-1][: len(of)] < of[::-1] for key in keys)

    pairs = [[key[0], at, at, first(third, key)] for at, key in enumerate(second)]
    pairs.append([0, 0, 0, len(third)])
    packed = pack(pairs, (word, 16, 16, pointer))[: ((1 + len(second)) * (word + 32 + pointer) + 7) // 8 + 8]
    unigrams = b""
    for number in range(len(WORDS)):
        prob, backoff = ngrams[number,]
        unigrams += struct.pack("<ffI", prob / BASE, backoff / BASE, first(second, (number,)))
    unigrams += struct.pack("<ffI", 0, 0, len(second))
    names = b"".join(each.encode() + b"\0" for each in WORDS)
    head = b"Trie Language Model\x03" + struct.pack("<3I", *counts) + struct.pack("<i", 1)
    last = pack([[key[0], at] for at, key in enumerate(third)], (word, 16))
    return head + tables.tobytes() + unigrams + packed + last + struct.pack("<I", len(names)) + names


@pytest.fixture(scope="module")
def ngrams() -> Ngrams:
    """A trigram with most of the bigrams and half of the trigrams over them."""
    chance = random.Random(3)
    follow = [number for number, word in enumerate(WORDS) if word != BEGIN]
    made: Ngrams = {(number,): (-99.0, 0.0) for number in range(len(WORDS))}
    shares = np.array([chance.random() + 0.1 for _ in follow])
    for number, share in zip(follow, shares / shares.sum(), strict=True):
        made[number,] = (math.log(share), math.log(0.5))
    made[WORDS.index(BEGIN),] = (-99.0, math.log(0.5))
    for before, after in product(range(len(WORDS)), follow):
        if WORDS[before] != END and chance.random() < 0.8:
            made[before, after] = (math.log(0.5 / 6 * (0.5 + chance.random())), math.log(0.8))
    for a, b, c in product(range(len(WORDS)), range(len(WORDS)), follow):
        if (a, b) in made and (b, c) in made and chance.random() < 0.5:
            made[a, b, c] = (math.log(0.05 + 0.05 * chance.random()), 0.0)
    return made


def test_every_ngram_is_read(ngrams: Ngrams) -> None:
    model = read_trigram(file_of(ngrams))
    assert model.words == WORDS
    found: Ngrams = {}
    for number in range(len(WORDS)):
        found[number,] = (model.prob1[number], model.backoff1[number])
    for (a, b), prob, backoff in zip(model.bigrams.tolist(), model.prob2, model.backoff2, strict=True):
        found[a, b] = (prob, backoff)
    for (a, b, c), prob in zip(model.trigrams.tolist(), model.prob3, strict=True):
        found[a, b, c] = (prob, 0.0)
    assert found.keys() == ngrams.keys()
    assert len(model.trigrams) > 20
    for key, value in ngrams.items():
        assert found[key] == pytest.approx(value, abs=1e-5)


def probability(model: Trigram, *words: int) -> float:
    """Of the last of three words after the two before it, as ARPA defines it."""
    a, b, c = words
    pairs = {tuple(key): at for at, key in enumerate(model.bigrams.tolist())}
    triples = {tuple(key): at for at, key in enumerate(model.trigrams.tolist())}
    if (a, b, c) in triples:
        return float(model.prob3[triples[a, b, c]])
    less = float(model.backoff2[pairs[a, b]]) if (a, b) in pairs else 0.0
    if (b, c) in pairs:
        return less + float(model.prob2[pairs[b, c]])
    return less + float(model.backoff1[b] + model.prob1[c])


def test_a_smaller_model_keeps_what_matters_and_adds_up_to_one(ngrams: Ngrams, tmp_path: Path) -> None:
    whole = read_trigram(file_of(ngrams))
    small = shrink(whole, {"a", "lamp", "the", "keeper", "unheard"}, words=3, bigrams=6, trigrams=4)
    assert small.words[:2] == (BEGIN, END)
    assert len(small.words) == 5
    assert len(small.trigrams) <= 4
    assert np.exp(small.prob1).sum() == pytest.approx(1)
    pairs = set(map(tuple, small.bigrams.tolist()))
    for a, b, c in small.trigrams.tolist():
        assert {(a, b), (b, c)} <= pairs, "what a trigram backs off to is there"
    for a, b in pairs:
        following = sum(math.exp(probability(small, a, b, c)) for c in range(1, len(small.words)))
        assert following <= 1 + 1e-9
    again = shrink(whole, {"the", "keeper", "lamp", "a"}, words=3, bigrams=6, trigrams=4)
    assert again.words == small.words, "in one order, whatever order they are given in"
    path = tmp_path / "small.arpa"
    write_arpa(small, path)
    text = path.read_text()
    assert f"ngram 2={len(small.bigrams)}\n" in text
    assert f"-99.0000\t{BEGIN}\t" in text
    assert text.endswith("\\end\\\n")


@pytest.mark.parametrize(
    "data", [b"", b"\\data\\", b"Trie Language Model\x05", b"Trie Language Model\x03abc"]
)
def test_another_file_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest, match="language model"):
        read_trigram(data)
