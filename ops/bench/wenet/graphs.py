"""The search of decoding graphs beside kaldi-decoder: one thread each, in turn, the same log-probabilities.

    SPOOL_KERNEL_THREADS=1 python -m ops.bench.wenet.graphs [--words 5000] [--utterances 8] [--rounds 3]

A lexicon of made-up words of 28 letters under a bigram model of 20 followers a word, and sentences of it as a
CTC head says them: spikes between blanks, some doubtful or wrong. Best paths are held against FasterDecoder's
(beam 16, 7000 states), whole lists of ten with lattices of width 6 against LatticeSimpleDecoder's. Times are
the processor's, the ratio is the median of the rounds' own; what blank skipping saves is told beside it.
"""

import argparse
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np

from ops.accuracy.wenet.kaldi import fast_path, kaldi_graph, lattice_paths
from spool.domain.recognition import Hypothesis
from spool.domain.search.graph import GraphSearch
from spool.graphs.arrays import save_graph
from spool.graphs.build import build_graph
from worker.decode.wfst.graph import DecodingGraph, load_graph
from worker.decode.wfst.search import wfst_search

LETTERS = "abcdefghijklmnopqrstuvwxyz'-"
UNITS = ("<blank>", "<unk>", *LETTERS, "<sos/eos>")
FOLLOWERS = 20
WORDS_A_SENTENCE = 8


def made_lexicon(rng: random.Random, words: int) -> list[str]:
    """Words that share beginnings, as those of a language do."""
    stems = ["".join(rng.choices(LETTERS[:26], k=rng.randint(2, 4))) for _ in range(words // 8 + 1)]
    made: set[str] = set()
    while len(made) < words:
        made.add(rng.choice(stems) + "".join(rng.choices(LETTERS[:26], k=rng.randint(0, 5))))
    return sorted(made)


def write_arpa(rng: random.Random, words: list[str], path: Path) -> dict[str, list[str]]:
    """A bigram model; returns who may follow whom."""
    ranks = {word: rank for rank, word in enumerate(rng.sample(words, len(words)), 1)}
    total = sum(1 / rank for rank in ranks.values())
    popular = sorted(words, key=ranks.__getitem__)
    follows = {
        word: sorted({popular[int(len(words) ** rng.random()) - 1] for _ in range(FOLLOWERS)})
        for word in words
    }
    count = sum(map(len, follows.values()))
    with path.open("w") as out:
        print(f"\\data\\\nngram 1={len(words) + 2}\nngram 2={count}\n\n\\1-grams:", file=out)
        print("-99 <s> 0\n-1 </s>", file=out)
        for word in words:
            print(f"{math.log10(0.9 / ranks[word] / total):.4f} {word} {math.log10(0.4):.4f}", file=out)
        print("\n\\2-grams:", file=out)
        for word, others in follows.items():
            for other in others:
                print(f"{math.log10(0.6 / len(others)):.4f} {word} {other}", file=out)
        print("\n\\end\\", file=out)
    return follows


def spoken(rng: random.Random, follows: dict[str, list[str]]) -> np.ndarray:
    """Log-probabilities [T, V] of a sentence, blank first."""
    rows = []

    def say(unit: int, sure: float) -> None:
        logits = np.array([rng.gauss(0, 1.0) for _ in UNITS])
        logits[unit] += sure
        rows.append(logits - np.log(np.exp(logits).sum()))

    word = rng.choice(sorted(follows))
    for _ in range(WORDS_A_SENTENCE):
        for letter in word:
            for _ in range(rng.choice((1, 2, 2, 3))):
                say(0, 9.0)
            unit = UNITS.index(letter) if rng.random() > 0.1 else rng.randrange(2, len(UNITS) - 1)
            say(unit, rng.choice((6.0, 4.0, 2.5)))
        word = rng.choice(follows[word])
    say(0, 9.0)
    return np.array(rows, np.float32)


def ours(
    rows: list[np.ndarray], graph: DecodingGraph, settings: GraphSearch, count: int
) -> list[list[Hypothesis]]:
    lengths = np.array([len(row) for row in rows], np.int32)
    batch = np.zeros((len(rows), lengths.max(), len(UNITS)), np.float32)
    for row, log_probs in zip(batch, rows, strict=True):
        row[: len(log_probs)] = np.roll(log_probs, -1, axis=1)
    return wfst_search(mx.array(batch), lengths, len(UNITS) - 1, graph, settings, count, blank_unit=None)


def timed(work: Callable[[], list[float]]) -> tuple[float, list[float]]:
    started = time.process_time()
    costs = work()
    return time.process_time() - started, costs


def compare(
    name: str, theirs: Callable[[], list[float]], spool: Callable[[], list[float]], rounds: int, frames: int
) -> None:
    spool()  # compiles
    pairs, gap = [], 0.0
    for _ in range(rounds):
        kaldi_seconds, kaldi_costs = timed(theirs)
        spool_seconds, spool_costs = timed(spool)
        pairs.append((kaldi_seconds, spool_seconds))
        gap = max(abs(a - b) for a, b in zip(kaldi_costs, spool_costs, strict=True))
    kaldi_us, spool_us = (1e6 * statistics.median(side) / frames for side in zip(*pairs, strict=True))
    ratio = statistics.median(one / other for one, other in pairs)
    speeds = f"Kaldi {kaldi_us:7.0f} us a frame, Spool {spool_us:7.0f}, ratio {ratio:5.2f}"
    print(f"{name:42} {speeds}, costs within {gap:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--words", type=int, default=5000)
    parser.add_argument("--utterances", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    rng = random.Random(7)
    with tempfile.TemporaryDirectory() as folder:
        words, arpa = made_lexicon(rng, options.words), Path(folder, "words.arpa")
        follows = write_arpa(rng, words, arpa)
        started = time.process_time()
        arrays = build_graph(UNITS, [(word, list(word)) for word in words], arpa)
        path, _ = save_graph(arrays, Path(folder, "graph.npz"))
        print(f"{arrays.states} states, {arrays.arcs} arcs, built in {time.process_time() - started:.1f} s")
        graph, kaldi = load_graph(str(path)), kaldi_graph(arrays)
    rows = [spoken(rng, follows) for _ in range(options.utterances)]
    frames = sum(map(len, rows))
    best = GraphSearch.model_construct(name="", graph_beam=16.0, max_active=7000, lattice_beam=0.0)
    compare(
        "best path, beam 16, 7000 states",
        lambda: [fast_path(kaldi, row, 16.0, 7000).cost for row in rows],
        lambda: [-each[0].score for each in ours(rows, graph, best, 1)],
        options.rounds,
        frames,
    )
    skipping = GraphSearch.model_construct(
        name="", graph_beam=16.0, max_active=7000, lattice_beam=0.0, blank_skip=0.98
    )
    started = time.process_time()
    ours(rows, graph, skipping, 1)
    kept = [np.exp(row[:, 0]) <= np.float32(0.98) for row in rows]
    print(
        f"{'the same without frames of sure blanks':42} Spool "
        f"{1e6 * (time.process_time() - started) / frames:7.0f} us a frame of audio, "
        f"{sum(each.sum() for each in kept)} of {frames} frames searched"
    )
    listed = GraphSearch.model_construct(name="", graph_beam=12.0, max_active=100_000, lattice_beam=6.0)
    compare(
        "list of ten, beam 12, lattice beam 6",
        lambda: [path.cost for row in rows for path in lattice_paths(kaldi, row, 12.0, 6.0, 10)[:1]],
        lambda: [-each[0].score for each in ours(rows, graph, listed, 10)],
        options.rounds,
        frames,
    )


if __name__ == "__main__":
    main()
