"""The state of a streaming Sortformer: chunks go into a queue, and from the queue into the speaker cache,
which keeps the frames that tell the speakers apart best.

In numpy and float32 on every device: 16-bit probabilities would choose other frames. Equal scores are the
rule, since a frame may stand in the cache under two speakers; of equals the first one is taken. Paper:
Medennikov et al. 2025, "Streaming Sortformer: Speaker Cache-Based Online Speaker Diarization with
Arrival-Time Ordering"; the constants are NeMo's (`SortformerModules`).
"""

import math

import numpy as np
from numpy.typing import NDArray

from worker.models.sortformer.config import StreamingOptions

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Bools = NDArray[np.bool_]

_SPEAKS = 0.5
_LOG_HALF = math.log(0.5)


def frame_scores(probabilities: Floats, threshold: float) -> Floats:
    """`[T, S]` of probabilities `[T, S]`: high where one speaker alone is surely heard.

    log p - log(1 - p) + Σ log(1 - p) + log 2, the sum over all speakers, every probability and its complement
    first raised to at least `threshold`.
    """
    least = np.float32(threshold)
    heard = np.log(np.maximum(probabilities, least))
    silent = np.log(np.maximum(np.float32(1) - probabilities, least))
    scores: Floats = (heard - silent + silent.sum(1, keepdims=True) - np.float32(_LOG_HALF)).astype(
        np.float32
    )
    return scores


def keep_frames(probabilities: Floats, options: StreamingOptions) -> tuple[Indices, Bools]:
    """Which of the frames with `probabilities` `[T, S]`, T above `spkcache_len`, stay in the cache.

    Indices `[spkcache_len]` by speaker, within a speaker by time, and which of these places hold the mean
    silence instead (their index is 0). A frame may stand under two speakers.
    """
    frames, speakers = probabilities.shape
    share = options.spkcache_len // speakers - options.spkcache_sil_frames_per_spk
    scores = frame_scores(probabilities, options.pred_score_threshold)
    speech = probabilities > _SPEAKS
    scores[~speech] = -np.inf
    clean = scores > 0
    enough = clean.sum(0) >= math.floor(share * options.min_pos_scores_rate)
    scores[~clean & speech & enough[None]] = -np.inf  # overlap is needed only where clean frames are few
    scores[options.spkcache_len :] += np.float32(options.scores_boost_latest)
    # A floor for every speaker first, then a bar against one who would take all places.
    for rate, factor in ((options.strong_boost_rate, 2), (options.weak_boost_rate, 1)):
        best = np.argsort(-scores, axis=0, kind="stable")[: math.floor(share * rate)]
        raised = np.take_along_axis(scores, best, 0) - np.float32(factor * _LOG_HALF)
        np.put_along_axis(scores, best, raised, 0)
    silence = np.full((options.spkcache_sil_frames_per_spk, speakers), np.inf, np.float32)
    rows = np.concatenate([scores, silence])
    by_speaker = rows.T.reshape(-1)
    places = np.argsort(-by_speaker, kind="stable")[: options.spkcache_len]
    # Places that no speech fills come last, as silence.
    places = np.sort(np.where(np.isneginf(by_speaker[places]), by_speaker.size, places))
    indices = places % len(rows)
    silent = (places == by_speaker.size) | (indices >= frames)
    return np.where(silent, 0, indices), silent


class SpeakerCache:
    """What the model remembers of one recording. Frames are subsampled ones, float32 `[T, d]`, before the
    encoder's scale."""

    def __init__(self, width: int, options: StreamingOptions) -> None:
        self._options = options
        self._cache: Floats = np.zeros((0, width), np.float32)
        self._queue: Floats = np.zeros((0, width), np.float32)
        self._probabilities: Floats | None = None
        self._silence: Floats = np.zeros(width, np.float32)
        self._silent_frames = 0

    @property
    def frames(self) -> Floats:
        """What the network hears before the next chunk: the cache, then the queue."""
        return np.concatenate([self._cache, self._queue])

    def take(self, chunk: Floats, probabilities: Floats, left: int, right: int) -> Floats:
        """Moves on by a chunk `[left + n + right, d]` of which n frames are new, after the network gave
        `probabilities` `[len(frames) + left + n + right, S]`. Returns those of the new frames, `[n, S]`."""
        options = self._options
        cached, queued = len(self._cache), len(self._queue)
        new = len(chunk) - left - right
        first = cached + queued + left
        answer = probabilities[first : first + new]
        queue = np.concatenate([self._queue, chunk[left : left + new]])
        of_queue = np.concatenate([probabilities[cached : cached + queued], answer])
        if len(queue) > options.fifo_len:
            count = min(max(options.spkcache_update_period, len(queue) - options.fifo_len), len(queue))
            self._append(queue[:count], of_queue[:count], probabilities[:cached])
            queue = queue[count:]
        self._queue = queue
        return answer

    def _append(self, frames: Floats, probabilities: Floats, of_cache: Floats) -> None:
        quiet = frames[probabilities.sum(1) < np.float32(self._options.sil_threshold)]
        if len(quiet):
            total = self._silence * np.float32(self._silent_frames) + quiet.sum(0)
            self._silent_frames += len(quiet)
            self._silence = (total / np.float32(self._silent_frames)).astype(np.float32)
        self._cache = np.concatenate([self._cache, frames])
        if self._probabilities is not None:
            self._probabilities = np.concatenate([self._probabilities, probabilities])
        if len(self._cache) <= self._options.spkcache_len:
            return
        if self._probabilities is None:
            # The first time: as the network hears the cached frames now.
            self._probabilities = np.concatenate([of_cache, probabilities])
        indices, silent = keep_frames(self._probabilities, self._options)
        self._cache = np.where(silent[:, None], self._silence, self._cache[indices])
        self._probabilities = np.where(silent[:, None], np.float32(0), self._probabilities[indices])
