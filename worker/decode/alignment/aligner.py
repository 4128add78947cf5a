"""Forced alignment of texts with utterances, by any model with a CTC head."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from worker.decode.alignment.emissions import Emissions
from worker.decode.alignment.words import AlignedWord, align_words, marks_of, spell_words
from worker.models.base import ModelInfo, Tokenizer
from worker.models.heads.ctc import CtcHead


class CtcModel(Protocol):
    """A speech model with a head called "ctc"."""

    @property
    def info(self) -> ModelInfo:
        """Which weights these are."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def heads(self) -> Mapping[Any, Any]:
        """ "ctc" is a `CtcHead`."""

    def encode(self, samples: Sequence[NDArray[np.float32]]) -> Any:  # noqa: ANN401 - frames and lengths
        """Utterances of 16 kHz samples as frames."""


def align_texts(
    model: CtcModel, samples: Sequence[NDArray[np.float32]], texts: Sequence[str]
) -> list[tuple[AlignedWord, ...] | None]:
    """The words of each text in its utterance, [N] float32 at 16 kHz; None for a text with more tokens than
    frames. The utterances are encoded as one batch but do not depend on each other."""
    if not samples:
        return []
    encoded, head = model.encode(samples), model.heads["ctc"]
    return [
        _align(model, head, encoded.frames[row, :length], text)
        for row, (length, text) in enumerate(zip(encoded.lengths.tolist(), texts, strict=True))
    ]


def label_emissions(head: CtcHead, frames: mx.array, labels: Sequence[int]) -> Emissions:
    """The head's emissions for these labels in the frames [T, d_model] of one utterance, computed by itself
    since the bits of a product depend on its number of rows."""
    columns = mx.array([*labels, head.blank], mx.int32)
    return Emissions.of(np.array(head.log_probs(frames).astype(mx.float32)[:, columns]))


def _align(model: CtcModel, head: CtcHead, frames: mx.array, text: str) -> tuple[AlignedWord, ...] | None:
    """frames [T, d_model]: of one utterance, since the bits of a product depend on its number of rows."""
    spelled = spell_words(text, model.tokenizer)
    tokens = [token for _, own in spelled for token in own]
    if len(tokens) > frames.shape[0] or not frames.shape[0]:
        return None
    # Only the columns of these tokens are copied to the host, out of thousands.
    columns = mx.array([*tokens, head.blank], mx.int32)
    log_probs = np.array(head.log_probs(frames).astype(mx.float32)[:, columns])
    return align_words(log_probs, spelled, marks_of(model.tokenizer.pieces), model.info.frame_seconds)
