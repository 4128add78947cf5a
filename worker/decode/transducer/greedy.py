"""Batched greedy search over a transducer, by label-looping.

Label-looping (after "Label-Looping: Highly Efficient Decoding for Transducers", Bataev et al., 2024) runs the
prediction network once per label, not once per frame. Here one round joins a window of frames of each
utterance with the current prediction, jumps over the blanks, and stops at the first label or at the window's
end. A round therefore needs no result on the host; whether anything still runs is checked some rounds later.
"""

from collections import deque
from functools import reduce
from typing import NamedTuple, Self

import mlx.core as mx
import numpy as np

from kernels.runtime.device import fuse
from kernels.search.fixed_point import grid_sum, on_grid
from spool.domain.recognition import Hypothesis
from worker.decode.backtrace import Backtrace, Emission, Path
from worker.decode.fusion.fusion import Fusion, FusionState
from worker.decode.transducer.stepping import advance
from worker.models.heads.transducer import LstmState, Transducer
from worker.models.turns import give_way

WINDOW = 8  # encoder frames per round
WINDOW_OF_A_CPU = 4  # fewer, since a CPU pays for each of them
CHECK_EVERY = 8  # rounds between two checks of whether any utterance still runs


class GreedyRow(NamedTuple):
    """One utterance a row. frames: the next encoder frame. held: labels on the frame `last`. finite: bool.
    fused: the fusion's states. bonus: float32, what it added so far."""

    frames: mx.array
    held: mx.array
    last: mx.array
    output: mx.array
    state: LstmState
    finite: mx.array
    fused: FusionState
    bonus: mx.array

    @classmethod
    def start(cls, transducer: Transducer, batch: int, fusion: Fusion | None = None) -> Self:
        """Rows for utterances at their first frame."""
        output, state = transducer.start(batch)
        none = mx.zeros((batch,), mx.int32)
        fused = fusion.start(1) if fusion else ()
        sure = mx.ones((batch,), mx.bool_)
        return cls(none, none, none - 1, output, state, sure, fused, mx.zeros((batch,)))


class _Stop(NamedTuple):
    """Where a round stopped in its window, [B] each. `emits` is False if it found no label."""

    advance: mx.array
    emits: mx.array
    labels: mx.array
    durations: mx.array
    log_probs: mx.array
    finite: mx.array


class GreedySearch:
    """One search over one batch: `encoder` [B, T, d_model] with T >= 1, `lengths` [B] frames, 0 allowed.

    start: the initial rows, by default those of the utterances' starts. goes_on: bool [B], utterances with
    more frames to come, for which the prediction network also reads a label at their end; None: none."""

    def __init__(
        self,
        transducer: Transducer,
        encoder: mx.array,
        lengths: np.ndarray,
        max_symbols: int,
        fusion: Fusion | None,
        fixed: bool,
        start: GreedyRow | None = None,
        goes_on: mx.array | None = None,
    ) -> None:
        self._fixed = fixed
        self._transducer = transducer
        self._fusion = fusion
        self._max_symbols = max_symbols
        self._batch, self._frames = encoder.shape[:2]
        self._lengths = mx.array(lengths.astype(np.int32))
        self._encoder = transducer.project_encoder(encoder).reshape(self._batch * self._frames, -1)
        self._durations = mx.array(transducer.durations or (0,), mx.int32)
        self._overshoot = max(transducer.durations or (1,))
        self._on_cpu = mx.default_device().type == mx.DeviceType.cpu
        self._window = WINDOW_OF_A_CPU if self._on_cpu else WINDOW
        self._steps = mx.arange(self._window, dtype=mx.int32)
        self._columns = mx.arange(self._window + self._overshoot, dtype=mx.int32)
        self._first = mx.arange(self._batch + 1, dtype=mx.int32) * self._frames
        self._rows = mx.repeat(mx.arange(self._batch, dtype=mx.int32), self._window)
        mx.eval(self._steps, self._columns, self._first, self._rows)
        self._has_frames = bool(lengths.any())
        self._backtrace = Backtrace(self._batch, 1)
        self._start = GreedyRow.start(transducer, self._batch, fusion) if start is None else start
        self._goes_on = mx.zeros((self._batch,), mx.bool_) if goes_on is None else goes_on

    def run(self) -> list[list[Hypothesis]]:
        """One hypothesis an utterance; none for one whose logits were not finite."""
        row, paths = self.decode()
        finite, bonus = np.array(row.finite), np.array(row.bonus)
        return [
            [path.with_score(self._score(path, bonus[index]))] if finite[index] else []
            for index, path in enumerate(paths)
        ]

    def decode(self) -> tuple[GreedyRow, list[Path]]:
        """The rows after the last frame, and the path of each."""
        row = self._start
        # A CPU computes while it queues, so it is checked after every round and none is wasted.
        every, behind = (1, 0) if self._on_cpu else (CHECK_EVERY, 1)
        running: deque[mx.array] = deque()
        while self._has_frames and (len(running) <= behind or running.popleft().item()):
            for _ in range(every):
                row = self._round(row)
            running.append(mx.any(row.finite & (row.frames < self._lengths)))
            mx.async_eval(running[-1], row, self._backtrace.latest(every))  # type: ignore[no-untyped-call]
            give_way(row)
        return row, [slots[0] for slots in self._backtrace.paths()]

    def _score(self, path: Path, bonus: np.float32) -> float:
        if self._fixed:
            return grid_sum(np.array(path.log_probs, np.float32)) + float(bonus)
        return float(np.sum(path.log_probs, dtype=np.float32) + bonus)

    def _round(self, row: GreedyRow) -> GreedyRow:
        gains: mx.array | None = None
        if self._fusion is not None:
            gains = self._fusion.gains(row.fused)[:, 0]
        stop = self._look_ahead(row, gains)
        after = _advance_rows(
            (row.frames, row.held, row.last, row.finite),
            stop,
            self._lengths,
            self._goes_on,
            self._max_symbols,
        )
        output, state = advance(self._transducer, stop.labels, after.reads, row.output, row.state)
        self._backtrace.append(Emission(after.emitted, after.at, stop.durations, stop.log_probs))
        return GreedyRow(
            frames=after.frames,
            held=after.held,
            last=after.last,
            output=output,
            state=state,
            finite=after.finite,
            fused=self._advance_fusion(row.fused, stop),
            bonus=row.bonus if gains is None else row.bonus + self._fusion_gain(gains, stop),
        )

    def _fusion_gain(self, gains: mx.array, stop: _Stop) -> mx.array:
        gain = _gain_at_stop(gains, stop)
        return on_grid(gain) if self._fixed else gain

    def _advance_fusion(self, fused: FusionState, stop: _Stop) -> FusionState:
        if self._fusion is None:
            return ()
        emitted = mx.where(stop.emits, stop.labels, -1)[:, None]
        return self._fusion.advance(fused, mx.zeros_like(emitted), emitted)

    def _look_ahead(self, row: GreedyRow, gains: mx.array | None) -> _Stop:
        """Jump over blanks, each by its duration, to the first label within the window. Fusion's gains [B, V]
        choose among labels; the model alone decides between label and blank."""
        blank = self._transducer.blank
        inside, index = _window_frames(row.frames, self._lengths, row.finite, self._steps, self._first)
        logits, spread = self._join(inside, index, row.output)
        best = mx.argmax(logits, axis=-1)
        if gains is not None:
            best_label = mx.argmax(logits[..., :blank].astype(mx.float32) + gains[:, None], axis=-1)
            best = mx.where(best == blank, blank, best_label)
        extremes, waits = [_max_and_sum(logits)], None
        if spread is not None:
            extremes.append(_max_and_sum(spread))
            waits = mx.take(self._durations, mx.argmax(spread, axis=-1))
        window = _classify_window(best, waits, inside, self._columns, blank)
        return _stop(_follow_jumps(window.after, self._window), window, logits, inside, extremes, blank)

    def _join(self, inside: mx.array, index: mx.array, output: mx.array) -> tuple[mx.array, mx.array | None]:
        """The joint of each row's prediction with its window's frames; undefined outside the utterance."""
        if not self._on_cpu:
            return self._transducer.logits(mx.take(self._encoder, index, axis=0), output[:, None])
        pairs = mx.stack([mx.where(inside, index, -1).reshape(-1), self._rows])
        joined = self._transducer.join_rows(self._encoder, output, pairs).reshape(*index.shape, -1)
        return self._transducer.split_scores(joined)


class _Window(NamedTuple):
    """A window: the label and duration at each place, [B, W], and the place that follows it, which is the
    place itself where a row stops, [B, W + overshoot]; int32."""

    labels: mx.array
    durations: mx.array
    after: mx.array


@fuse
def _window_frames(
    frames: mx.array, lengths: mx.array, finite: mx.array, steps: mx.array, first: mx.array
) -> tuple[mx.array, mx.array]:
    """Which frames of each window lie within its utterance, bool [B, W], and their rows in the encoder's
    table, where utterances begin at `first` [B + 1]."""
    places = frames[:, None] + steps
    inside = (places < lengths[:, None]) & finite[:, None]
    return inside, mx.minimum(first[:-1, None] + places, first[1:, None] - 1)


@fuse
def _classify_window(
    best: mx.array, waits: mx.array | None, inside: mx.array, columns: mx.array, blank: int
) -> _Window:
    """`waits`: the duration at each place; None: one frame for a blank and none for a label."""
    labels = best.astype(mx.int32)
    places = labels.shape[1]
    durations = mx.where(labels == blank, 1, 0) if waits is None else waits
    rests = (labels != blank) | ~inside
    onward = columns[:places] + mx.where(rests, 0, mx.maximum(durations, 1))
    beyond = mx.broadcast_to(columns[places:], (labels.shape[0], len(columns) - places))
    return _Window(labels, durations, mx.concatenate([onward, beyond], axis=1))


@fuse
def _stop(
    stops: mx.array,
    window: _Window,
    logits: mx.array,
    inside: mx.array,
    extremes: list[tuple[mx.array, mx.array]],
    blank: int,
) -> _Stop:
    places = window.labels.shape[1]
    landed = mx.minimum(stops, places - 1)[:, None]

    def pick(values: mx.array) -> mx.array:
        return mx.take_along_axis(values, landed, axis=1)[:, 0]

    chosen = mx.take_along_axis(logits, landed[..., None], axis=1)[:, 0].astype(mx.float32)
    label = pick(window.labels)
    norm = mx.logsumexp(chosen, axis=-1)
    has_nan = inside & ~reduce(mx.logical_and, [mx.isfinite(top) & ~mx.isnan(sum_) for top, sum_ in extremes])
    return _Stop(
        advance=stops,
        emits=(stops < places) & (label != blank) & pick(inside),
        labels=label,
        durations=pick(window.durations),
        log_probs=mx.take_along_axis(chosen, label[:, None], axis=1)[:, 0] - norm,
        finite=~mx.any(has_nan, axis=1),
    )


class _Advanced(NamedTuple):
    """The rows after a stop, [B] each; `emitted` and `at` go into an `Emission`."""

    frames: mx.array
    held: mx.array
    last: mx.array
    finite: mx.array
    reads: mx.array
    emitted: mx.array
    at: mx.array


@fuse
def _advance_rows(
    row: tuple[mx.array, mx.array, mx.array, mx.array],
    stop: _Stop,
    lengths: mx.array,
    goes_on: mx.array,
    max_symbols: int,
) -> _Advanced:
    """`row`: frames, held, last and finite of a `GreedyRow`."""
    before, held_before, last, finite = row
    at = before + stop.advance
    held = mx.where(at == last, held_before, 0) + 1
    frames = at + mx.where(stop.emits, stop.durations, 0)
    full = stop.emits & (held >= max_symbols) & (frames == at)
    return _Advanced(
        frames=frames + full.astype(mx.int32),
        held=mx.where(stop.emits, held, held_before),
        last=mx.where(stop.emits, at, last),
        finite=finite & stop.finite,
        reads=stop.emits & ((frames < lengths) | goes_on),
        emitted=mx.where(stop.emits, stop.labels, -1),
        at=at,
    )


def _gain_at_stop(gains: mx.array, stop: _Stop) -> mx.array:
    """Fusion's gain for the label a round stopped at, float32 [B]; 0 if it found none."""
    chosen = mx.where(stop.emits, stop.labels, 0)
    return mx.where(stop.emits, mx.take_along_axis(gains, chosen[:, None], axis=1)[:, 0], 0.0)


def _follow_jumps(after: mx.array, places: int) -> mx.array:
    """The place where each row stops when it starts at place 0 and follows `after`, int32 [B, W + overshoot].
    A jump out of the window of W places stops where it lands.

    Pointer doubling needs only log2(W) iterations.
    """
    for _ in range((places - 1).bit_length()):
        after = mx.take_along_axis(after, after, axis=1)
    return after[:, 0]


def _max_and_sum(logits: mx.array) -> tuple[mx.array, mx.array]:
    """Maximum and sum of the last axis: its logsumexp is finite where the maximum is and the sum is not NaN.
    Cheaper than the exponentials."""
    # A sum is NaN where an element is; -inf alone marks an impossible label.
    return mx.max(logits, axis=-1), mx.sum(logits, axis=-1)


def greedy_search(
    transducer: Transducer,
    encoder: mx.array,
    lengths: np.ndarray,
    max_symbols: int,
    fusion: Fusion | None = None,
    *,
    fixed: bool = False,
) -> list[list[Hypothesis]]:
    """The label and duration of highest logit at each step, for each utterance.

    encoder: [B, T, d_model]; lengths: [B] valid frames; an utterance without frames has one empty hypothesis
    of score 0. Blank advances at least one frame; after `max_symbols` labels on a frame the search goes to
    the next. The score sums the labels' log-probabilities among labels and blank, and fusion's gains, without
    blanks and durations, so it is not comparable to a beam's. An utterance with a NaN or without a finite
    logit has an empty list.
    """
    if encoder.shape[1] == 0:
        return [[Hypothesis((), 0.0, (), ())] for _ in range(encoder.shape[0])]
    return GreedySearch(transducer, encoder, lengths, max_symbols, fusion, fixed).run()
