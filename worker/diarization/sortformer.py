"""Sortformer as a diarization model: processes a recording chunk by chunk, or as a whole.

Cuts the recording for the network and feeds the speaker cache; `worker.models.sortformer` has the network and
the cache. Chunk by chunk and without normalisation, as with NVIDIA's models, memory grows only by the
probabilities, 0.7 MB an hour.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from spool.errors import InvalidRequest
from worker.audio.resample import SAMPLE_RATE
from worker.diarization.activity import PLAIN, active_segments
from worker.diarization.base import (
    Blocks,
    Diarization,
    Floats,
    RunSteps,
    SpeakerActivity,
    SpeakerBounds,
    SpeechHeard,
    TooLongAtOnce,
)
from worker.models.artifacts.nemo_files import CONFIG_NAME, config_of
from worker.models.sortformer.cache import SpeakerCache
from worker.models.sortformer.config import PRESETS, SortformerConfig, StreamingOptions, parse_sortformer
from worker.models.sortformer.steps import ChunkStep, MelStep, NormaliseStep

VERSION = 1
"""Incremented with every change that may change segments."""
OFFLINE = "offline"
DEFAULT = "default"
SETTINGS = (DEFAULT, OFFLINE, *PRESETS)
ARCHIVE = "very_high"
"""The preset of jobs: 27 s of new frames per step; the best and the cheapest one."""
OFFLINE_SECONDS = 600
"""The longest recording processed as a whole, since attention grows with the square of its length."""

_MEL_STEP = 3000
_PEAK_FLOOR = 1e-3


def read_config(path: Path) -> SortformerConfig:
    """The configuration in a `.nemo`. Raises ModelUnreadable naming the file and the cause."""
    return parse_sortformer(config_of(path), f"{path}: {CONFIG_NAME}")


@dataclass(frozen=True, slots=True)
class Followed:
    """The speakers' probabilities `[T, S]` in each frame, columns by arrival, and the number of samples."""

    probabilities: Floats
    samples: int


class Sortformer:
    """The part of the model that follows recordings; safe to share."""

    def __init__(self, path: str, archive: Path) -> None:
        """`path`: by which the engine loads the network; `archive`: the `.nemo` file. Raises
        ModelUnreadable."""
        self.path = path
        self.config = read_config(archive)
        self._archive = archive

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the file, the setting and the version."""
        with self._archive.open("rb") as file:
            digest = sha256(f"{VERSION} {ARCHIVE} ".encode())
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
        return digest.hexdigest()

    @property
    def most_speakers(self) -> int:
        return self.config.speakers

    @property
    def frame_seconds(self) -> float:
        """Seconds from one probability to the next."""
        return self.config.frame_seconds

    def diarize(
        self,
        read: Callable[[], Blocks],
        run: RunSteps[Any, Any],
        bounds: SpeakerBounds,
        speech: SpeechHeard | None = None,  # noqa: ARG002 - it hears speech itself
    ) -> Diarization:
        """Like `DiarizationModel.diarize`, with at most as many speakers as the network has columns; if fewer
        are allowed, those with most frames are kept."""
        heard = self.follow(read, run, OFFLINE if self.config.streaming is None else ARCHIVE)
        spoken = (heard.probabilities > PLAIN.onset).sum(0)
        dropped = np.argsort(-spoken, kind="stable")[bounds.most :]
        probabilities = heard.probabilities.copy()
        probabilities[:, dropped] = 0
        segments = active_segments(probabilities, self.frame_seconds)
        activity = SpeakerActivity.of(probabilities, self.frame_seconds)
        return Diarization(segments, heard.probabilities, heard.samples, activity=activity)

    def follow(self, read: Callable[[], Blocks], run: RunSteps[Any, Any], setting: str = DEFAULT) -> Followed:
        """The probabilities under one of `SETTINGS`; `default` is the file's own.

        Raises InvalidRequest for a streaming setting of a model without a speaker cache, TooLongAtOnce for a
        recording too long to be processed as a whole, and whatever `read` and `run` raise.
        """
        options = self._streaming(setting)
        if options is None:
            return self._offline(read, run)
        reader = _Reader(read())
        cache, parts = SpeakerCache(self.config.encoder.d_model, options), []
        source = self._chunks(reader, options) if self._is_plain else self._mel_chunks(reader, run, options)
        for chunk in source:
            step = replace(chunk.step, memory=cache.frames)
            (output,) = run(iter([(chunk.samples, step)]))
            parts.append(cache.take(output.rows, output.probabilities, chunk.left, chunk.right))
        return Followed(self._concatenate(parts), reader.total)

    def _streaming(self, setting: str) -> StreamingOptions | None:
        own = self.config.streaming
        if setting == OFFLINE or (setting == DEFAULT and own is None):
            return None
        if own is None:
            raise InvalidRequest(
                f"{self._archive}: this model cannot follow a recording (its configuration has no "
                f"streaming_mode), so it has no setting {setting}; use {OFFLINE}"
            )
        return replace(own, **PRESETS.get(setting, {}))

    def _concatenate(self, parts: list[Floats]) -> Floats:
        return np.concatenate(parts) if parts else np.zeros((0, self.config.speakers), np.float32)

    # --- chunk by chunk -------------------------------------------------------------------------------------

    @property
    def _is_plain(self) -> bool:
        """Whether mel frames do not depend on the rest of the recording."""
        return self.config.preprocessor.normalize is None

    def _chunks(self, reader: "_Reader", options: StreamingOptions) -> Iterator["_Chunk"]:
        """The chunks while the recording is read; only one chunk's samples are in memory."""
        for cut in self._cuts(options, lambda mels: self._ready(reader, mels)):
            samples, lead = self._cut_out(reader, cut.first, cut.last)
            step = ChunkStep(lead, cut.last - cut.first, self._nothing)
            yield _Chunk(samples, step, cut.left, cut.right)

    def _mel_chunks(
        self, reader: "_Reader", run: RunSteps[Any, Any], options: StreamingOptions
    ) -> Iterator["_Chunk"]:
        """The chunks for a model whose features are normalised over the recording."""
        mel = self._normalise(self._mel(reader, run, 1.0), run)
        for cut in self._cuts(options, lambda _: len(mel)):
            frames = mel[cut.first : cut.last]
            yield _Chunk(_SILENCE, ChunkStep(0, len(frames), self._nothing, frames), cut.left, cut.right)

    def _cuts(self, options: StreamingOptions, ready: Callable[[int], int]) -> Iterator["_Cut"]:
        """The bounds of the chunks. `ready(n)` returns the number of mel frames available, at most n."""
        factor = self.config.encoder.subsampling_factor
        step, before = options.chunk_len * factor, options.chunk_left_context * factor
        behind = options.chunk_right_context * factor
        for first in itertools.count(0, step):
            there = ready(first + step + behind)
            if first >= there:
                return
            last = min(first + step, there)
            left, right = min(before, first), min(behind, there - last)
            yield _Cut(first - left, last + right, round(left / factor), -(-right // factor))

    # --- all at once ----------------------------------------------------------------------------------------

    def _offline(self, read: Callable[[], Blocks], run: RunSteps[Any, Any]) -> Followed:
        gain = 1.0
        if self.config.streaming is None:
            # The largest sample, not the largest magnitude, as in training.
            peak = max((float(block.max()) for block in _limit_length(read()) if len(block)), default=0.0)
            gain = float(np.float32(1) / (np.float32(peak) + np.float32(_PEAK_FLOOR)))
        reader = _Reader(_limit_length(read()))
        mel = self._normalise(self._mel(reader, run, gain), run)
        if not len(mel):
            return Followed(self._concatenate([]), reader.total)
        (output,) = run(iter([(_SILENCE, ChunkStep(0, len(mel), self._nothing, mel))]))
        return Followed(output.probabilities, reader.total)

    def _normalise(self, mel: Floats, run: RunSteps[Any, Any]) -> Floats:
        if self._is_plain or not len(mel):
            return mel
        (normalised,) = run(iter([(_SILENCE, NormaliseStep(mel))]))
        frames: Floats = normalised
        return frames

    def _mel(self, reader: "_Reader", run: RunSteps[Any, Any], gain: float) -> Floats:
        """All mel frames of the recording, not normalised."""

        def steps() -> Iterator[tuple[Floats, MelStep]]:
            for first in itertools.count(0, _MEL_STEP):
                last = self._ready(reader, first + _MEL_STEP)
                if first >= last:
                    return
                samples, lead = self._cut_out(reader, first, last)
                yield samples, MelStep(lead, last - first, gain)

        parts = list(run(steps()))
        return (
            np.concatenate(parts) if parts else np.zeros((0, self.config.preprocessor.features), np.float32)
        )

    # --- samples --------------------------------------------------------------------------------------------

    def _ready(self, reader: "_Reader", mels: int) -> int:
        """How many of so many mel frames the recording has."""
        hop, half = self.config.preprocessor.hop_length, self.config.preprocessor.fft_length // 2
        reader.fill(mels * hop + half)
        return min(mels, reader.total // hop) if reader.ended else mels

    def _cut_out(self, reader: "_Reader", first: int, last: int) -> tuple[Floats, int]:
        """The samples under mel frames first … last, and how many frames lie before them there."""
        hop, half = self.config.preprocessor.hop_length, self.config.preprocessor.fft_length // 2
        lead = min(first, half // hop + 1)  # half a transform, and the sample before it for the pre-emphasis
        return reader.take((first - lead) * hop, last * hop + half), lead

    @property
    def _nothing(self) -> Floats:
        return np.zeros((0, self.config.encoder.d_model), np.float32)


_SILENCE = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Mel frames first … last of a chunk with its context, and how many frames of 80 ms are context."""

    first: int
    last: int
    left: int
    right: int


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    samples: Floats
    step: ChunkStep
    left: int
    right: int


class _Reader:
    """A recording's samples by their number, as far back as they were last taken."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks, self._held, self._first = iter(blocks), _SILENCE, 0
        self.ended = False

    @property
    def total(self) -> int:
        """Samples read so far."""
        return self._first + len(self._held)

    def fill(self, count: int) -> None:
        """Reads until `count` samples were read, or to the end."""
        parts, total = [self._held], self.total
        while total < count and not self.ended:
            block = next(self._blocks, None)
            if block is None:
                self.ended = True
                break
            parts.append(block)
            total += len(block)
        self._held = np.concatenate(parts) if len(parts) > 1 else self._held

    def take(self, first: int, last: int) -> Floats:
        """Samples first … last, fewer at the end. Those before them may be gone afterwards."""
        if first > self._first:
            self._held = self._held[first - self._first :].copy()
            self._first = first
        return self._held[first - self._first : last - self._first]


def _limit_length(blocks: Blocks) -> Iterator[Floats]:
    """The blocks of a recording that is to be taken at once. Raises TooLongAtOnce."""
    total = 0
    for block in blocks:
        total += len(block)
        if total > OFFLINE_SECONDS * SAMPLE_RATE:
            raise TooLongAtOnce(
                f"The recording is longer than {OFFLINE_SECONDS} s, the longest that a Sortformer takes "
                "at once; use a streaming model and setting."
            )
        yield block
