"""The transducer searches once more, in plain numpy and Python: one utterance, one hypothesis at a time.

Written to be read beside a paper, not to be fast: token tuples stand for themselves, a beam is a list, and
nothing is shared with the code under test. `tiny_transducer` makes a random network whose searches are
worth comparing.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import mlx.core as mx
import numpy as np

from worker.models import (
    CtcHead,
    HeadName,
    JointConfig,
    JointNetwork,
    PredictionConfig,
    PredictionNetwork,
    Transducer,
)

D_MODEL = 6
HIDDEN = 10
ZERO = np.float32(0)


@dataclass(frozen=True)
class Encoded:
    """Encoder frames of a batch [B, T, d] with their lengths [B]."""

    frames: mx.array
    lengths: np.ndarray


@dataclass(frozen=True)
class HeadModel:
    """A model that is its heads."""

    transducer: Transducer | None = None
    ctc: CtcHead | None = None
    tokenizer: Any = None

    @property
    def heads(self) -> dict[HeadName, Any]:
        name: HeadName = "tdt" if self.transducer and self.transducer.durations else "rnnt"
        heads: dict[HeadName, Any] = {name: self.transducer, "ctc": self.ctc}
        return {name: head for name, head in heads.items() if head is not None}


def tiny_transducer(
    seed: int, vocabulary: int, durations: tuple[int, ...] = (), layers: int = 2
) -> Transducer:
    """A random transducer, confident enough that near-ties are rare and blank and labels take turns."""
    rng = np.random.default_rng(seed)
    prediction = PredictionNetwork(PredictionConfig(HIDDEN, layers), vocabulary)
    config = JointConfig(joint_hidden=12, durations=durations)
    joint = JointNetwork(config, D_MODEL, HIDDEN, vocabulary)

    def draw(*shape: int, spread: float) -> mx.array:
        return mx.array(rng.normal(0, spread, shape).astype(np.float32))

    table = rng.normal(0, 1.5, (vocabulary + 1, HIDDEN)).astype(np.float32)
    table[vocabulary] = 0
    prediction.prediction["embed"].weight = mx.array(table)
    for layer in prediction.prediction["dec_rnn"].lstm:
        layer.Wx, layer.Wh = draw(4 * HIDDEN, HIDDEN, spread=0.7), draw(4 * HIDDEN, HIDDEN, spread=0.4)
        layer.bias = draw(4 * HIDDEN, spread=0.2)
    outputs = vocabulary + 1 + len(durations)
    joint.enc.weight, joint.enc.bias = draw(12, D_MODEL, spread=0.8), draw(12, spread=0.2)
    joint.pred.weight, joint.pred.bias = draw(12, HIDDEN, spread=1.0), draw(12, spread=0.2)
    joint.joint_net[2].weight = draw(outputs, 12, spread=0.9)
    bias = rng.normal(0, 0.3, outputs).astype(np.float32)
    # Only blank advances an RNNT: it needs more of it, or every frame ends at max_symbols.
    bias[vocabulary] += 1.5 if durations else 7.0
    joint.joint_net[2].bias = mx.array(bias)
    return Transducer(prediction, joint, config, blank=vocabulary)


def random_frames(seed: int, lengths: list[int]) -> mx.array:
    """Encoder frames [B, T, D_MODEL]; the padding is large, so that a search that reads it shows."""
    rng = np.random.default_rng(seed)
    frames = rng.normal(0, 1.5, (len(lengths), max([*lengths, 1]), D_MODEL)).astype(np.float32)
    for row, length in enumerate(lengths):
        frames[row, length:] = 50.0
    return mx.array(frames)


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


class Network:
    """The same weights, one vector at a time."""

    def __init__(self, transducer: Transducer) -> None:
        inner, joint = transducer._prediction.prediction, transducer._joint
        self.table = np.array(inner["embed"].weight)
        self.layers = [(np.array(x.Wx), np.array(x.Wh), np.array(x.bias)) for x in inner["dec_rnn"].lstm]
        self.enc = np.array(joint.enc.weight), np.array(joint.enc.bias)
        self.pred = np.array(joint.pred.weight), np.array(joint.pred.bias)
        self.out = np.array(joint.joint_net[2].weight), np.array(joint.joint_net[2].bias)
        self.blank, self.durations = transducer.blank, transducer.durations

    def read(self, token: int, state: tuple[Any, ...]) -> tuple[np.ndarray, tuple[Any, ...]]:
        x, after = self.table[token], []
        for (wx, wh, bias), (h, c) in zip(self.layers, state, strict=True):
            i, f, g, o = np.split(wx @ x + wh @ h + bias, 4)
            c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
            h = np.tanh(c) / (1 + np.exp(-o))
            after.append((h, c))
            x = h
        return self.pred[0] @ x + self.pred[1], tuple(after)

    def begin(self) -> tuple[np.ndarray, tuple[Any, ...]]:
        zero = np.zeros(HIDDEN, np.float32)
        return self.read(self.blank, tuple((zero, zero) for _ in self.layers))

    def joint(self, frame: np.ndarray, prediction: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        both = np.maximum(self.enc[0] @ frame + self.enc[1] + prediction, 0)
        logits = self.out[0] @ both + self.out[1]
        if not self.durations:
            return logits, None
        return logits[: self.blank + 1], logits[self.blank + 1 :]


@dataclass(frozen=True)
class Trace:
    """A partial hypothesis."""

    score: np.float32 = ZERO
    tokens: tuple[int, ...] = ()
    times: tuple[int, ...] = ()
    durations: tuple[int, ...] = ()
    confidences: tuple[float, ...] = ()
    frame: int = 0
    held: int = 0
    reading: tuple[Any, ...] = field(default=(), compare=False)


class Adviser:
    """What may be fused in: changes nothing. A test's own says what tokens and an end are worth."""

    def bonus(self, tokens: tuple[int, ...]) -> np.ndarray | float:
        """What each next label earns after these tokens."""
        return 0.0

    def end(self, tokens: tuple[int, ...]) -> float:
        """What ending after these tokens earns."""
        return 0.0

    def fuse(self, tokens: tuple[int, ...], log_probs: np.ndarray) -> np.ndarray:
        """Log-probabilities of labels and blank as a beam ranks them."""
        return np.append(log_probs[:-1] + self.bonus(tokens), log_probs[-1]).astype(np.float32)


NOBODY = Adviser()


def greedy_reference(
    network: Network, frames: np.ndarray, max_symbols: int, adviser: Adviser = NOBODY
) -> Trace:
    trace, prediction, state = Trace(), *network.begin()
    frame = held = 0
    while frame < len(frames):
        labels, spread = network.joint(frames[frame], prediction)
        label = int(labels.argmax())
        log_probs = log_softmax(labels)
        jump = 0 if spread is None else (network.durations or ())[int(spread.argmax())]
        if label == network.blank:
            frame, held = frame + max(jump, 1), 0
            continue
        advised = log_probs[:-1] + adviser.bonus(trace.tokens)
        label = int(advised.argmax())
        trace = replace(
            trace,
            score=trace.score + advised[label],
            tokens=(*trace.tokens, label),
            times=(*trace.times, frame),
            durations=(*trace.durations, jump),
            confidences=(*trace.confidences, math.exp(log_probs[label])),
        )
        prediction, state = network.read(label, state)
        held += 1
        if jump == 0 and held >= max_symbols:
            jump = 1
        if jump:
            frame, held = frame + jump, 0
    return trace


def beam_reference(
    network: Network, frames: np.ndarray, beam: int, max_symbols: int, adviser: Adviser = NOBODY
) -> list[Trace]:
    traces = [Trace(reading=network.begin())]
    while any(trace.frame < len(frames) for trace in traces):
        moves = [
            move for trace in traces for move in _moves(network, frames, trace, beam, max_symbols, adviser)
        ]
        moves = sorted(moves, key=lambda move: -move[0].score)[:beam]
        classes: dict[tuple[Any, ...], list[tuple[Trace, bool]]] = {}
        for trace, emitted in moves:
            end = trace.frame if network.durations else None
            classes.setdefault((trace.tokens, end), []).append((trace, emitted))
        traces = []
        for members in classes.values():
            best, emitted = max(members, key=lambda member: member[0].score)
            if len(members) > 1:
                total = np.logaddexp.reduce(np.array([member[0].score for member in members], np.float32))
                best = replace(best, score=total)
            if emitted:
                best = replace(best, reading=network.read(best.tokens[-1], best.reading[1]))
            traces.append(best)
    traces = [replace(trace, score=trace.score + np.float32(adviser.end(trace.tokens))) for trace in traces]
    return sorted(traces, key=lambda trace: -trace.score / (len(trace.tokens) + 1))


def _moves(
    network: Network, frames: np.ndarray, trace: Trace, beam: int, max_symbols: int, adviser: Adviser
) -> list[tuple[Trace, bool]]:
    if trace.frame >= len(frames):
        return [(trace, False)]
    logits, spread = network.joint(frames[trace.frame], trace.reading[0])
    acoustic = log_softmax(logits)
    labels = adviser.fuse(trace.tokens, acoustic)
    jumps = network.durations or (0,)
    waits = log_softmax(spread) if spread is not None else np.zeros(1, np.float32)
    if trace.held >= max_symbols:
        step = max(jumps[int(waits.argmax())], 1)
        score = trace.score + (labels[network.blank] + waits.max())
        return [(replace(trace, score=score, frame=trace.frame + step, held=0), False)]
    joint = (labels[:, None] + waits[None, :]).reshape(-1)
    found = []
    for index in np.argsort(-joint, kind="stable")[:beam]:
        label, jump = divmod(int(index), len(jumps))
        step, score = jumps[jump], trace.score + joint[index]
        if label == network.blank:
            step = max(step, 1)
            found.append((replace(trace, score=score, frame=trace.frame + step, held=0), False))
            continue
        longer = replace(
            trace,
            score=score,
            tokens=(*trace.tokens, label),
            times=(*trace.times, trace.frame),
            durations=(*trace.durations, step),
            confidences=(*trace.confidences, math.exp(acoustic[label])),
            frame=trace.frame + step,
            held=trace.held + 1 if step == 0 else 0,
        )
        found.append((longer, True))
    return found
