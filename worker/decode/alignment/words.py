"""The words of a given text on the best path of their tokens: the part of forced alignment without a device.

Each word between spaces is spelled by itself, so that its tokens are known; the tokens of all words are
aligned with the frames. A word begins with its first token and ends with its last; punctuation has no length.
(nemo.collections.asr, aligner_utils.py.)
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from spool.wer import normal_words
from worker.decode.alignment.viterbi import align_tokens
from worker.models.base import Spelling, Tokenizer

MARKS = frozenset({",", ".", "!", "?"})


@dataclass(frozen=True, slots=True)
class AlignedToken:
    """A token of the aligning model, and its frames [first, last)."""

    token: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word as written in the text, in seconds from the utterance's start, and its tokens."""

    text: str
    start: float
    end: float
    tokens: tuple[AlignedToken, ...]


def spell_words(text: str, tokenizer: Tokenizer) -> list[tuple[str, tuple[int, ...]]]:
    """The words of a text, split at spaces, each with its tokens; no tokens if it cannot be spelled."""
    spelled = []
    for word in text.split():
        try:
            spelled.append((word, tuple(tokenizer.encode(word))))
        except InvalidRequest:
            spelled.append((word, ()))
    return spelled


def marks_of(pieces: Sequence[str]) -> frozenset[int]:
    """The tokens that are punctuation marks."""
    return frozenset(token for token, piece in enumerate(pieces) if piece in MARKS)


def spell_folded(words: Sequence[str], tokenizer: Tokenizer) -> Spelling:
    """Each word with its tokens, as written or else as its letters in lower case; no tokens if the model can
    spell neither."""
    return Spelling({word: _spelling(word, tokenizer) for word in words}, marks_of(tokenizer.pieces))


def _spelling(word: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    for form in (word, word.lower(), " ".join(normal_words(word))):
        try:
            tokens = tuple(tokenizer.encode(form)) if form else ()
        except InvalidRequest:
            continue
        if tokens:
            return tokens
    return ()


def align_words(
    log_probs: NDArray[np.float32],
    spelled: Sequence[tuple[str, Sequence[int]]],
    marks: Collection[int],
    frame_seconds: float,
) -> tuple[AlignedWord, ...] | None:
    """log_probs: float32 [T, N + 1], a column for each token of the words in order, blank last. A word
    without tokens stands between its neighbours. marks: tokens without a length of their own. None where the
    tokens do not fit into the frames."""
    tokens = np.array([token for _, own in spelled for token in own], np.int64)
    ranges = align_tokens(log_probs, tokens)
    if ranges is None:
        return None
    words, at = [], 0
    for text, own in spelled:
        aligned: list[AlignedToken] = []
        for token in own:
            first, last = ranges[at]
            at += 1
            if token in marks:  # a mark has no length of its own
                first = last = aligned[-1].last if aligned else first
            aligned.append(AlignedToken(token, first, last))
        words.append((text, tuple(aligned)))
    return _time_words(words, len(log_probs), frame_seconds)


def _time_words(
    words: Sequence[tuple[str, tuple[AlignedToken, ...]]], frames: int, frame_seconds: float
) -> tuple[AlignedWord, ...]:
    """The words in seconds; those without tokens share what lies between their neighbours."""
    bounds = [(own[0].first, own[-1].last) if own else None for _, own in words]
    following, after = [], frames
    for bound in reversed(bounds):
        following.append(after)
        after = after if bound is None else bound[0]
    timed, before = [], 0
    for (text, own), bound, right in zip(words, bounds, reversed(following), strict=True):
        first, last = (before, max(before, right)) if bound is None else bound
        before = before if bound is None else bound[1]
        timed.append(AlignedWord(text, first * frame_seconds, last * frame_seconds, own))
    return tuple(timed)
