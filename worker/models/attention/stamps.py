"""Words from time stamps among the tokens: `<|s|> word<|e|>`, frames from the window's start.

NeMo keeps complete pairs alone (timestamp_utils.process_aed_timestamp_outputs), so a word without a closing
stamp vanishes from its text. Here it stays and is bounded by its neighbours. A pair has the times that NeMo
gives it. Knows no probabilities.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.models.base import Tokenizer


class StampTokenizer(Tokenizer, Protocol):
    """A tokenizer among whose tokens are stamps."""

    @property
    def stamps(self) -> Mapping[int, int]:
        """The frame that each stamp names."""

    def is_text(self, token: int) -> bool:
        """Whether a token is text."""


@dataclass(frozen=True, slots=True)
class StampedRun:
    """Text between stamps: the half-open range of its tokens, and the frames that the stamps beside it name,
    None where there is none."""

    text: str
    first: int
    last: int
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True)
class StampedWord:
    """A word: its text, the half-open range of its tokens, seconds from the window's start."""

    text: str
    first: int
    last: int
    start: float
    end: float


def split_at_stamps(tokens: Sequence[int], tokenizer: StampTokenizer) -> list[StampedRun]:
    """Every text between stamps, in order. Other special tokens are passed over."""
    runs, first, before = [], None, None
    for at, token in enumerate(tokens):
        if token in tokenizer.stamps:
            stamp = tokenizer.stamps[token]
            if first is not None:
                runs.append(StampedRun(tokenizer.decode(tokens[first:at]).strip(), first, at, before, stamp))
            first, before = None, stamp
        elif tokenizer.is_text(token) and first is None:
            first = at
    if first is not None:
        text = tokenizer.decode(tokens[first:]).strip()
        runs.append(StampedRun(text, first, len(tokens), before, None))
    return [run for run in runs if run.text]


def time_stamped_words(
    tokens: Sequence[int], tokenizer: StampTokenizer, frame_seconds: float, seconds: float
) -> list[StampedWord]:
    """The words of `tokens`, none of them lost. Several words of one run share its time by their tokens. No
    word ends before it starts, starts before the one before it, or lies behind `seconds`."""
    runs = split_at_stamps(tokens, tokenizer)
    words: list[StampedWord] = []
    reached = 0.0
    for index, run in enumerate(runs):
        start = reached if run.start is None else min(max(run.start * frame_seconds, reached), seconds)
        end = run.end
        if end is None:  # bounded by the next start that is known
            end = next((later.start for later in runs[index + 1 :] if later.start is not None), None)
        stop = seconds if end is None else min(max(end * frame_seconds, start), seconds)
        own = [at for at in range(run.first, run.last) if tokenizer.is_text(tokens[at])]
        spans = tokenizer.words([tokens[at] for at in own])
        step = (stop - start) / max(len(own), 1)
        words += [
            StampedWord(
                span.text,
                own[span.first],
                own[span.last - 1] + 1,
                start + span.first * step,
                stop if span.last == len(own) else start + span.last * step,
            )
            for span in spans
        ]
        reached = stop
    return words
