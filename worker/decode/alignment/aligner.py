"""Words of a given text in seconds: forced alignment by any model with a CTC head.

Each word between spaces is spelled by itself, so that its tokens are known; the tokens of all words run
through the frames on the best path. A word begins with its first token and ends with its last; marks have no
length of their own. (nemo.collections.asr, aligner_utils.py.) Knows neither chunks nor who wrote the text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.decode.alignment.viterbi import align_tokens
from worker.models.base import ModelInfo, Tokenizer
from worker.models.heads.ctc import CtcHead

MARKS = frozenset({",", ".", "!", "?"})


class CtcModel(Protocol):
    """A speech model with a head called "ctc"."""

    @property
    def info(self) -> ModelInfo:
        """Which weights these are."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokens."""

    @property
    def heads(self) -> Mapping[Any, Any]:
        """ "ctc" is a `CtcHead`."""

    def encode(self, samples: Sequence[NDArray[np.float32]]) -> Any:  # noqa: ANN401 - frames and lengths
        """Utterances of 16 kHz samples as frames."""


@dataclass(frozen=True, slots=True)
class AlignedToken:
    """A token of the aligning model, and its frames [first, last)."""

    token: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class AlignedWord:
    """A word of the text as it stands there, seconds from the utterance's start, and its tokens."""

    text: str
    start: float
    end: float
    tokens: tuple[AlignedToken, ...]


def align_texts(
    model: CtcModel, samples: Sequence[NDArray[np.float32]], texts: Sequence[str]
) -> list[tuple[AlignedWord, ...] | None]:
    """The words of each text in its utterance, [N] float32 at 16 kHz. None where a text cannot be spoken in
    so little sound. The utterances are encoded as one batch, and depend on nothing but themselves."""
    if not samples:
        return []
    encoded, head = model.encode(samples), model.heads["ctc"]
    return [
        _align(model, head, encoded.frames[row, :length], text)
        for row, (length, text) in enumerate(zip(encoded.lengths.tolist(), texts, strict=True))
    ]


def _align(model: CtcModel, head: CtcHead, frames: mx.array, text: str) -> tuple[AlignedWord, ...] | None:
    """frames [T, d_model] of the utterance alone: the bits of a product depend on its number of rows."""
    spelled = spell_words(text, model.tokenizer)
    tokens = [token for _, own in spelled for token in own]
    if len(tokens) > frames.shape[0] or not frames.shape[0]:
        return None
    # The host needs the columns of these tokens alone, of a table of thousands.
    columns = mx.array([*tokens, head.blank], mx.int32)
    log_probs = np.array(head.log_probs(frames).astype(mx.float32)[:, columns])
    return align_words(log_probs, spelled, model.tokenizer.pieces, model.info.frame_seconds)


def spell_words(text: str, tokenizer: Tokenizer) -> list[tuple[str, tuple[int, ...]]]:
    """The words between a text's spaces, each with its own tokens; none where it cannot be spelled."""
    spelled = []
    for word in text.split():
        try:
            spelled.append((word, tuple(tokenizer.encode(word))))
        except InvalidRequest:
            spelled.append((word, ()))
    return spelled


def align_words(
    log_probs: NDArray[np.float32],
    spelled: Sequence[tuple[str, Sequence[int]]],
    pieces: Sequence[str],
    frame_seconds: float,
) -> tuple[AlignedWord, ...] | None:
    """log_probs: float32 [T, N + 1], a column for each token of the words in order, blank last. A word
    without tokens stands between its neighbours. None where the tokens do not fit into the frames."""
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
            if pieces[token] in MARKS:  # a mark has no length of its own
                first = last = aligned[-1].last if aligned else first
            aligned.append(AlignedToken(token, first, last))
        words.append((text, tuple(aligned)))
    return _timed(words, len(log_probs), frame_seconds)


def _timed(
    words: Sequence[tuple[str, tuple[AlignedToken, ...]]], frames: int, frame_seconds: float
) -> tuple[AlignedWord, ...]:
    """The words in seconds; those without tokens share what lies between their neighbours."""
    bounds = [(own[0].first, own[-1].last) if own else None for _, own in words]
    timed = []
    for index, ((text, own), bound) in enumerate(zip(words, bounds, strict=True)):
        if bound is None:
            before = [each[1] for each in bounds[:index] if each is not None]
            after = [each[0] for each in bounds[index + 1 :] if each is not None]
            left, right = (before[-1] if before else 0), (after[0] if after else frames)
            bound = (left, max(left, right))
        timed.append(AlignedWord(text, bound[0] * frame_seconds, bound[1] * frame_seconds, own))
    return tuple(timed)
