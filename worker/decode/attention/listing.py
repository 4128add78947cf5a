"""The n-best list of an utterance that was read in several windows. None depends on another, so a hypothesis
is one of each, and its score the sum of theirs. Knows neither windows nor models."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WindowText:
    """What a window may say: text tokens, and their log-probability with what else was searched there."""

    tokens: tuple[int, ...]
    score: float


def combine(lists: Sequence[Sequence[WindowText]], count: int) -> list[tuple[WindowText, ...]]:
    """At most `count` combinations of one text of each list: that of the first of each, which is the answer,
    and behind it the others by score, equal ones in the order of the lists."""
    # One more than asked for, since the answer may be among the best or not.
    best: list[tuple[float, tuple[WindowText, ...]]] = [(0.0, ())]
    for texts in lists:
        longer = [(score + text.score, (*head, text)) for score, head in best for text in texts]
        best = sorted(longer, key=lambda pair: -pair[0])[: count + 1]
    answer = tuple(texts[0] for texts in lists)
    return [answer, *(each for _, each in best if each != answer)][:count]
