"""Qwen3-ForcedAligner: when each word of a given text is spoken, by one pass of the language model over the
sound and the text (transformers 5.24.0, processing_qwen3_asr.py).

Behind each unit of the text stand two places whose classes are its start and its end. Knows no chunks.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from spool.errors import InvalidRequest
from worker.models.artifacts.hub_folder import HubFolder, is_hub_folder
from worker.models.attention.audio_tower import AudioEncoder
from worker.models.attention.causal import CausalDecoder
from worker.models.base import BatchCost, Capabilities, HeadName, ModelFiles, PreparedRequest, WordPlace
from worker.models.configuration import require_number
from worker.models.front_ends.whisper_mel import SAMPLE_RATE
from worker.models.qwen3_asr.config import MODEL_TYPE, QwenConfig, is_aligner
from worker.models.qwen3_asr.load import load_parts, read_config
from worker.models.qwen3_asr.model import QwenPart
from worker.models.qwen3_asr.tokenizer import (
    CLOSE,
    MERGES,
    OPEN,
    TIMESTAMP,
    VOCABULARY,
    QwenTokenizer,
    read_tokenizer,
)
from worker.models.requests import DecodeRequest
from worker.models.weights import default_dtype

LONGEST_SECONDS = 300.0  # the published model's card
SEGMENT_MILLISECONDS = 80
SHORT_RUN = 2  # of times out of order, which take a neighbour's
# Written one by one (transformers, `_is_cjk_char`): ideographs, not kana and Hangul.
IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class QwenAligner(QwenPart):
    """segment: seconds of one class."""

    def __init__(
        self,
        config: QwenConfig,
        encoder: AudioEncoder,
        head: CausalDecoder,
        tokenizer: QwenTokenizer,
        segment: float,
        *,
        name: str,
        files: Mapping[str, str],
        bits: int | None = None,
    ) -> None:
        super().__init__(config, encoder, head, tokenizer, name=name, files=files, bits=bits)
        self.segment = segment
        self.classes = int(head.logits(mx.zeros((1, config.text.hidden_size))).shape[-1])

    @property
    def heads(self) -> Mapping[HeadName, CausalDecoder]:
        return {}

    @cached_property
    def capabilities(self) -> Capabilities:
        none: frozenset[str] = frozenset()
        return Capabilities(none, none, none, "alignment", none, self.chunking, family="qwen3_aligner")

    @property
    def longest_seconds(self) -> float:
        """Of a recording that it can align."""
        return min(LONGEST_SECONDS, self.segment * self.classes)

    def prepare(self, request: DecodeRequest) -> PreparedRequest:  # noqa: ARG002 - whatever it is
        raise InvalidRequest(f"{self.name} aligns given words (spool-worker align), it transcribes nothing")

    def cost(self, samples: int, beam: int = 1) -> BatchCost:  # noqa: ARG002 - never searched
        return BatchCost(0, 0)

    def place(self, samples: NDArray[np.float32], words: Sequence[str]) -> list[WordPlace | None]:
        """When each word is spoken in samples [N] at 16 kHz; None for a word without a letter or a digit.
        Raises InvalidRequest for a recording that is longer than the model takes."""
        seconds = len(samples) / SAMPLE_RATE
        if seconds > self.longest_seconds:
            raise InvalidRequest(
                f"{self.name} aligns recordings of at most {self.longest_seconds:g} s, this one has "
                f"{seconds:.1f} s; cut it, or align with a model that has a CTC head"
            )
        units = [split_units(word) for word in words]
        flat = [unit for own in units for unit in own]
        if not flat:
            return [None] * len(words)
        classes, shares = self.classify(self.encode([samples])[0], flat)
        times = [each / 1000 for each in repair_times((classes * np.float32(self.segment * 1000)).tolist())]
        placed: list[WordPlace | None] = []
        at = 0
        for own in units:
            first, at = at, at + len(own)
            span = slice(2 * first, 2 * at)
            placed.append(
                WordPlace(times[2 * first], times[2 * at - 1], float(shares[span].min())) if own else None
            )
        return placed

    def classify(
        self, encoded: mx.array, units: Sequence[str]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The class at each place behind the units, int [2 * units], and its probability."""
        tokens = self.prompt(len(encoded), units)
        places = np.flatnonzero(np.array(tokens) == self.config.timestamp_token)
        logits = self.head.logits(self.head.hidden(encoded, tokens)[mx.array(places)])
        shares = np.array(mx.softmax(logits, axis=-1))
        return shares.argmax(axis=-1), shares.max(axis=-1)

    def prompt(self, rows: int, units: Sequence[str]) -> tuple[int, ...]:
        """So many rows of sound, and each unit with the two places of its times."""
        special = self.tokenizer.special
        times = (special[TIMESTAMP],) * 2
        text = [token for unit in units for token in (*self.tokenizer.encode(unit), *times)]
        return (special[OPEN], *[self.config.audio_token] * rows, special[CLOSE], *text)


class Qwen3Aligner:
    """The family of Qwen3-ForcedAligner."""

    def matches(self, files: ModelFiles) -> bool:
        nested = files.config.get("thinker_config")
        original = str(nested.get("model_type")) if isinstance(nested, dict) else ""
        return is_hub_folder(files, MODEL_TYPE) and (is_aligner(files.config) or "forced_aligner" in original)

    def load(self, files: ModelFiles, dtype: mx.Dtype | None = None) -> QwenAligner:
        folder = HubFolder(files.path)
        config = read_config(folder)
        tokenizer = read_tokenizer(folder, config)
        stated = folder.optional("processor_config.json").get("timestamp_segment_time", SEGMENT_MILLISECONDS)
        segment = require_number("timestamp_segment_time", stated) / 1000
        encoder, head = load_parts(folder, config, dtype or default_dtype())
        digests = folder.digests(vocabulary=VOCABULARY, merges=MERGES)
        return QwenAligner(
            config,
            encoder,
            head,
            tokenizer,
            segment,
            name=files.name,
            files=digests,
            bits=folder.bits,
        )


def split_units(word: str) -> list[str]:
    """What is timed of a word between spaces: letters, digits and apostrophes, ideographs one by one."""
    units: list[str] = []
    is_open = False
    for letter in word:
        if any(first <= ord(letter) <= last for first, last in IDEOGRAPHS):
            units.append(letter)
            is_open = False
        elif letter == "'" or unicodedata.category(letter)[0] in "LN":
            if is_open:
                units[-1] += letter
            else:
                units.append(letter)
            is_open = True
    return units


def repair_times(times: Sequence[float]) -> list[int]:
    """Times in milliseconds that never decrease: those outside the longest non-decreasing subsequence (the
    first of equal ones, by the earliest predecessors) take the nearer neighbour's within it, the left one's
    when equal; runs of more than two are interpolated."""
    values = np.asarray(times, np.float64)
    lengths, parents = np.ones(len(values), int), np.full(len(values), -1)
    for at in range(1, len(values)):
        before = np.where(values[:at] <= values[at], lengths[:at], 0)
        best = int(before.argmax())
        if before[best]:
            lengths[at], parents[at] = before[best] + 1, best
    good, at = [], int(lengths.argmax())
    while at >= 0:
        good.append(at)
        at = int(parents[at])
    good.reverse()
    repaired = values.copy()
    for left, right in zip([-1, *good], [*good, len(values)], strict=True):
        _fill(repaired, left, right)
    return [int(value) for value in repaired]


def _fill(values: NDArray[np.float64], left: int, right: int) -> None:
    """What lies between two good values, beyond the ends the one that there is."""
    count = right - left - 1
    low = values[left] if left >= 0 else None
    high = values[right] if right < len(values) else None
    for step in range(1, count + 1):
        if low is None or high is None:
            values[left + step] = high if low is None else low
        elif count <= SHORT_RUN:
            values[left + step] = low if step <= count + 1 - step else high
        else:
            values[left + step] = low + (high - low) / (count + 1) * step
