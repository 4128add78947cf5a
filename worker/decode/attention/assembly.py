"""The answer to an utterance from those of its windows. None depends on another, so a hypothesis is one of
each, and its score the sum of theirs. Knows no rounds and no search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from spool.domain.recognition import Hypothesis
from spool.domain.transcript import Word
from worker.decode.answer import Answer
from worker.decode.attention.beam import SearchAnswer
from worker.models.base import is_wide
from worker.models.base_attention import SAMPLE_RATE, AttentionModel, Window

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class WindowAnswer:
    """What was heard in one window: its answer with times, its words, and all hypotheses of the search.
    passed: its parts that the answer passed over."""

    window: Window
    best: Hypothesis
    words: tuple[Word, ...]
    found: SearchAnswer
    passed: tuple[Window, ...]


@dataclass(frozen=True, slots=True)
class WindowText:
    """What a window may say: text tokens, and their log-probability with what else was searched there."""

    tokens: tuple[int, ...]
    score: float


def text_tokens(model: AttentionModel, tokens: Sequence[int]) -> tuple[int, ...]:
    """Those of an answer that are text, and neither its opening nor an order to the model."""
    return tuple(token for token in tokens[model.opening(tokens).length :] if model.is_text(token))


def assemble(model: AttentionModel, answers: Sequence[WindowAnswer], nbest: int, *, single: bool) -> Answer:
    """The answer to an utterance, with at most `nbest` hypotheses. single: the hypotheses of one window
    are given as the search found them."""
    answers = sorted(answers, key=lambda each: each.window.start)
    frame_samples = model.info.frame_seconds * SAMPLE_RATE
    rows = _in_order(
        answers,
        lambda each: list(
            zip(each.best.times, each.best.tokens, each.best.durations, each.best.confidences, strict=True)
        ),
        lambda row: row[0] * frame_samples,
    )
    times, tokens, durations, confidences = zip(*rows, strict=True) if rows else ((), (), (), ())
    score = sum(each.best.score for each in answers)
    best = Hypothesis(tokens, score, times, durations, confidences)
    words = tuple(_in_order(answers, lambda each: each.words, lambda word: word.start * SAMPLE_RATE))
    if single and len(answers) == 1:
        found = answers[0].found
        listed = [Hypothesis(each.tokens, each.score, (), ()) for each in found.hypotheses]
        listed[found.answer] = best
        return Answer(tuple(listed)[:nbest], None, words, text=model.tokenizer.decode(best.tokens))
    ways = combine([_texts(model, each, alone=len(answers) == 1) for each in answers], nbest)
    others = (
        Hypothesis(_join_tokens(answers, way, frame_samples), sum(text.score for text in way), (), ())
        for way in ways[1:]
    )
    text = _join_texts(model, answers) if single and answers else None
    return Answer((best, *others), None, words, text=text)


def _join_texts(model: AttentionModel, answers: Sequence[WindowAnswer]) -> str:
    """The texts of windows, one after another."""
    text = ""
    for each in answers:
        own = model.tokenizer.decode(each.best.tokens).strip()
        glued = not text or not own or is_wide(text[-1]) or is_wide(own[0])
        text += own if glued else f" {own}"
    return text


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


def _in_order(
    answers: Sequence[WindowAnswer],
    items: Callable[[WindowAnswer], Sequence[Item]],
    start: Callable[[Item], float],
) -> list[Item]:
    """The items of all windows: window by window, but what was passed over and asked again comes where it was
    spoken. start: an item's, in samples."""
    placed: list[tuple[int, Item]] = []
    for each in answers:
        place = each.window.start
        for item in items(each):
            behind = [part.stop for part in each.passed if start(item) >= (part.start + part.stop) / 2]
            place = max([place, *behind])
            placed.append((place, item))
    return [item for _, item in sorted(placed, key=lambda pair: pair[0])]


def _join_tokens(
    answers: Sequence[WindowAnswer], texts: Sequence[WindowText], frame_samples: float
) -> tuple[int, ...]:
    """Those of one text of each window, in the order in which they were spoken."""
    tokens = {each.window: text.tokens for each, text in zip(answers, texts, strict=True)}

    def add_times(each: WindowAnswer) -> list[tuple[int, int]]:
        # Only the answer has times, and only where that is kept is a window parted by another.
        chosen = tokens[each.window]
        times = each.best.times if chosen == each.best.tokens else [0] * len(chosen)
        return list(zip(times, chosen, strict=True))

    return tuple(token for _, token in _in_order(answers, add_times, lambda row: row[0] * frame_samples))


def _texts(model: AttentionModel, answer: WindowAnswer, *, alone: bool) -> list[WindowText]:
    """What a window may say, the answer first; that alone where another window reads a part of it, which the
    other hypotheses may have read too. Those that differ in their times alone are one."""
    hypotheses, best = answer.found.hypotheses, answer.best
    is_parted = (
        bool(answer.passed) or text_tokens(model, hypotheses[answer.found.answer].tokens) != best.tokens
    )
    texts = {best.tokens: best.score}
    for each in hypotheses if alone or not is_parted else ():
        texts.setdefault(text_tokens(model, each.tokens), each.score)
    return [WindowText(*pair) for pair in texts.items()]
