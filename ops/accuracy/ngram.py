"""An n-gram language model of pieces as an ARPA file: interpolated Kneser-Ney (Chen and Goodman 1999, 2.7).

Knows sequences of words (here a tokenizer's pieces) and the file; knows no search.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

Gram = tuple[str, ...]
BEGIN, END = "<s>", "</s>"
DISCOUNT = 0.75
NEVER = -99.0


def counted(lines: Iterable[Sequence[str]], order: int) -> list[Counter[Gram]]:
    """How often each n-gram counts, by n from 1: the longest by occurrence, others by what stands before."""
    highest: Counter[Gram] = Counter()
    begun: list[Counter[Gram]] = [Counter() for _ in range(order)]
    for line in lines:
        padded = (BEGIN, *line, END)
        for n in range(2, min(order, len(padded)) + 1):
            begun[n - 1][padded[:n]] += 1  # nothing stands before these, so they keep their occurrences
        highest.update(padded[i : i + order] for i in range(len(padded) - order + 1))
    found = [Counter[Gram]() for _ in range(order)]
    found[-1] = highest
    for n in range(order - 1, 0, -1):
        found[n - 1].update(gram[1:] for gram in found[n])
        found[n - 1].update(begun[n - 1])
    return found


def probabilities(
    counts: list[Counter[Gram]], words: Sequence[str]
) -> tuple[dict[Gram, float], dict[Gram, float]]:
    """Probability of each n-gram's last word after the others, and the back-off weight of each context."""
    chance: dict[Gram, float] = {}
    backoff: dict[Gram, float] = {}
    singles = sum(counts[0].values())
    kinds = len(counts[0])
    floor = DISCOUNT * kinds / singles / len(words)
    for word in words:
        chance[word,] = max(counts[0][word,] - DISCOUNT, 0.0) / singles + floor
    for level in counts[1:]:
        total: dict[Gram, int] = defaultdict(int)
        ways: dict[Gram, int] = defaultdict(int)
        for gram, count in level.items():
            total[gram[:-1]] += count
            ways[gram[:-1]] += 1
        for context in total:
            backoff[context] = DISCOUNT * ways[context] / total[context]
        for gram, count in level.items():
            seen = max(count - DISCOUNT, 0.0) / total[gram[:-1]]
            chance[gram] = seen + backoff[gram[:-1]] * chance[gram[1:]]
    return chance, backoff


def write_arpa(path: Path, lines: Iterable[Sequence[str]], pieces: Sequence[str], order: int) -> int:
    """Writes the model of the lines over the pieces; gives how many n-grams it has."""
    chance, backoff = probabilities(counted(lines, order), [*pieces, END])
    by_length: dict[int, list[Gram]] = defaultdict(list)
    for gram in sorted({*chance, (BEGIN,)}):
        by_length[len(gram)].append(gram)
    with path.open("w", encoding="utf-8") as out:
        out.write("\\data\\\n" + "".join(f"ngram {n}={len(by_length[n])}\n" for n in range(1, order + 1)))
        for n in range(1, order + 1):
            out.write(f"\n\\{n}-grams:\n")
            for gram in by_length[n]:
                log = math.log10(chance[gram]) if gram in chance else NEVER
                rest = f"\t{math.log10(backoff[gram]):.5f}" if gram in backoff else ""
                out.write(f"{log:.5f}\t{' '.join(gram)}{rest}\n")
        out.write("\n\\end\\\n")
    return sum(map(len, by_length.values()))
