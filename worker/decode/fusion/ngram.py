"""The graph of an n-gram language model: a state is a context, its fallback the context without its first
token."""

import math

import numpy as np

from worker.decode.fusion.arpa import BEGIN, END, LN10, UNKNOWN, Arpa, Entry, Gram
from worker.decode.fusion.arpa import NEVER as LOG_NEVER
from worker.decode.fusion.graph import Graph

NEVER = LOG_NEVER * LN10


def language_model(arpa: Arpa, vocabulary: int) -> Graph:
    """The model as a graph over `vocabulary` tokens; costs are natural logarithms.

    Tokens without a 1-gram share the probability of <unk> evenly, and lead to no context, as in NeMo. A
    state's `ends` is the log-probability of </s> there.
    """
    contexts: dict[Gram, int] = {(): 0, (BEGIN,): 1}
    for gram in arpa.entries:
        if len(gram) < max(arpa.order, 2) and gram[-1] >= 0:
            contexts.setdefault(gram, len(contexts))

    def is_known(gram: Gram) -> int:
        while gram not in contexts:
            gram = gram[1:]
        return contexts[gram]

    base, base_targets = _root(arpa, vocabulary, contexts)
    arcs: list[tuple[int, int, float, int]] = []  # state, token, cost, target
    last = np.full(len(contexts), np.nan, np.float32)
    last[0] = arpa.entries[END,].log_prob
    for gram, entry in arpa.entries.items():
        state = contexts.get(gram[:-1])
        if len(gram) == 1 or state is None:
            continue
        if gram[-1] == END:
            last[state] = entry.log_prob
        else:
            longest = gram if len(gram) < arpa.order else gram[1:]
            arcs.append((state, gram[-1], entry.log_prob, is_known(longest)))
    fallback = np.array([is_known(gram[1:]) if gram else -1 for gram in contexts], np.int32)
    penalty = np.array([arpa.entries[gram].backoff if gram else 0.0 for gram in contexts], np.float32)
    arcs.sort()
    table = np.array(arcs, np.float64).reshape(-1, 4)
    count = np.bincount(table[:, 0].astype(np.int64), minlength=len(contexts)).astype(np.int32)
    return Graph(
        first=(np.cumsum(count) - count).astype(np.int32),
        count=count,
        fallback=fallback,
        penalty=penalty,
        ends=_endings(contexts, last, fallback, penalty),
        labels=table[:, 1].astype(np.int32),
        weights=table[:, 2].astype(np.float32),
        targets=table[:, 3].astype(np.int32),
        base=base,
        base_targets=base_targets,
        start=contexts[BEGIN,],
    )


def _root(arpa: Arpa, vocabulary: int, contexts: dict[Gram, int]) -> tuple[np.ndarray, np.ndarray]:
    """Cost and target of each token in the empty context."""
    known = [(token,) in arpa.entries for token in range(vocabulary)]
    strangers = max(known.count(False), 1)
    rest = arpa.entries.get((UNKNOWN,), Entry(NEVER, 0.0, 0)).log_prob - math.log(strangers)
    costs = [arpa.entries[token,].log_prob if known[token] else rest for token in range(vocabulary)]
    targets = [contexts.get((token,), 0) for token in range(vocabulary)]
    return np.array(costs, np.float32), np.array(targets, np.int32)


def _endings(
    contexts: dict[Gram, int], last: np.ndarray, fallback: np.ndarray, penalty: np.ndarray
) -> np.ndarray:
    """The log-probability of </s> in each state: its own, or else its fallback's."""
    endings = last.copy()
    for gram, state in sorted(contexts.items(), key=lambda item: len(item[0])):
        if gram and np.isnan(endings[state]):
            endings[state] = penalty[state] + endings[fallback[state]]
    return endings
