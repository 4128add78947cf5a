"""How long the searches take beside the encoder, and beside each other. Run by hand; prints a table.

    OPENBLAS_NUM_THREADS=1 python ops/bench/engine/batches.py models/demo samples/demo-tdt/long/pauses.flac
    OPENBLAS_NUM_THREADS=1 python ops/bench/engine/batches.py --random [--fused] [--ragged] [--beams 4 8 16
    32]

With a model: a batch of equal pieces of the recording is encoded and searched. With --random: a random
transducer of the size of parakeet-tdt_ctc-110m over random frames, no encoder; its blank is set so that it
emits 0.2 to 0.7 tokens a frame. --fused adds each beam with a bigram model of 20,000 n-grams and with 100
phrases an utterance; --ragged gives the utterances lengths from a quarter to the whole. Times are processor
seconds of this process, the best of the repeats, so that a busy machine matters less; ratios are what to
compare across machines.
"""

# ruff: noqa: E402 - the BLAS has to be loaded before MLX is

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))
from worker.machine.blas import preload_blas

preload_blas()

import mlx.core as mx
import numpy as np

from spool.domain.recognition import Hypothesis
from worker.audio import SAMPLE_RATE, open_audio
from worker.decode.search import search
from worker.models.heads.config import JointConfig, PredictionConfig
from worker.models.heads.transducer import JointNetwork, PredictionNetwork, Transducer
from worker.models.load import load_model
from worker.models.requests import DecodeRequest, SearchOptions

VOCABULARY, HIDDEN, D_MODEL = 1024, 640, 512
BLANK_BIAS = {"tdt": 5.5, "rnnt": 10.0}
FRAME_SECONDS = 0.08
FUSIONS: dict[str, dict[str, Any]] = {
    "late": {},
    "late, blanks": {"lm_blanks": True},
    "early": {"pruning": "early"},
}


@dataclass(frozen=True)
class Frames:
    frames: mx.array
    lengths: np.ndarray


@dataclass(frozen=True)
class Letters:
    """A tokenizer whose token i is the number i."""

    pieces: tuple[str, ...] = tuple(f"▁{token}" for token in range(VOCABULARY))

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]


@dataclass(frozen=True)
class HeadAlone:
    transducer: Transducer
    kind: str
    tokenizer: Letters = Letters()

    @property
    def heads(self) -> dict[str, Transducer]:
        """The one head, by its name."""
        return {self.kind: self.transducer}


def write_arpa(path: Path, pairs: int = 20_000) -> str:
    """A bigram model of random pairs."""
    rng = np.random.default_rng(3)
    rows = [f"-3.0\t▁{token}\t-0.3" for token in range(VOCABULARY)]
    ones = ["-3\t<unk>", "-99\t<s>\t-0.3", "-2.0\t</s>", *rows]
    twos = {(int(a), int(b)) for a, b in rng.integers(0, VOCABULARY, (pairs, 2))}
    lines = [f"-{rng.uniform(0.5, 2):.3f}\t▁{a} ▁{b}" for a, b in sorted(twos)]
    head = f"\\data\\\nngram 1={len(ones)}\nngram 2={len(lines)}\n"
    text = [head, "\\1-grams:", *ones, "", "\\2-grams:", *lines, "", "\\end\\"]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    return str(path)


def asks(batch: int) -> list[DecodeRequest]:
    """100 phrases of 1 to 4 tokens for each utterance, of its own."""
    rng = np.random.default_rng(4)
    return [
        DecodeRequest(
            phrases=tuple(
                " ".join(map(str, rng.integers(0, VOCABULARY, rng.integers(1, 5)).tolist()))
                for _ in range(100)
            )
        )
        for _ in range(batch)
    ]


def random_head(kind: str) -> HeadAlone:
    """A transducer of the size of parakeet-tdt_ctc-110m with seeded random weights."""
    rng = np.random.default_rng(0)
    durations = (0, 1, 2, 3, 4) if kind == "tdt" else ()
    prediction = PredictionNetwork(PredictionConfig(HIDDEN, 1), VOCABULARY)
    joint = JointNetwork(JointConfig(HIDDEN, durations=durations), D_MODEL, HIDDEN, VOCABULARY)

    def draw(spread: float, *shape: int) -> mx.array:
        return mx.array(rng.normal(0, spread, shape).astype(np.float32))

    prediction.prediction["embed"].weight = draw(1.0, VOCABULARY + 1, HIDDEN)
    for layer in prediction.prediction["dec_rnn"].lstm:
        layer.Wx, layer.Wh = draw(HIDDEN**-0.5, 4 * HIDDEN, HIDDEN), draw(HIDDEN**-0.5, 4 * HIDDEN, HIDDEN)
    outputs = VOCABULARY + 1 + len(durations)
    joint.enc.weight, joint.enc.bias = draw(D_MODEL**-0.5, HIDDEN, D_MODEL), mx.zeros(HIDDEN)
    joint.pred.weight, joint.pred.bias = draw(HIDDEN**-0.5, HIDDEN, HIDDEN), mx.zeros(HIDDEN)
    joint.joint_net[2].weight = draw(3 * HIDDEN**-0.5, outputs, HIDDEN)
    joint.joint_net[2].bias = mx.where(mx.arange(outputs) == VOCABULARY, BLANK_BIAS[kind], 0.0)
    config = JointConfig(HIDDEN, durations=durations)
    return HeadAlone(Transducer(prediction, joint, config, VOCABULARY), kind)


def best_of(repeats: int, run: Callable[[], list[list[Hypothesis]]]) -> tuple[float, list[list[Hypothesis]]]:
    seconds, result = [], run()
    for _ in range(repeats):
        begun = time.process_time()
        result = run()
        seconds.append(time.process_time() - begun)
    return min(seconds), result


def report(name: str, seconds: float, audio: float, base: float, note: str = "") -> None:
    print(
        f"{name:22s} {seconds:8.3f} s  RTFx {audio / seconds:8.0f}  {seconds / base:6.2f} x  {note}",
        flush=True,
    )


def measure(
    model: object,
    encoded: Frames,
    heading: str,
    base: float | None,
    repeats: int,
    beams: list[int],
    lm: str | None = None,
) -> None:
    """Greedy, then each beam, then each beam with every kind of fusion where there is a model for it."""
    audio = float(encoded.lengths.sum()) * FRAME_SECONDS
    rows: list[tuple[str, SearchOptions, list[DecodeRequest] | None]] = [("greedy", SearchOptions(), None)]
    rows += [(f"beam {beam}", SearchOptions(decoder="beam", beam=beam), None) for beam in beams]
    if lm is not None:
        favoured = [ask.model_copy(update={"language_model": lm}) for ask in asks(len(encoded.lengths))]
        rows += [
            (f"beam {beam} {name}", SearchOptions(decoder="beam", beam=beam, **fusion), favoured)
            for beam in beams
            for name, fusion in FUSIONS.items()
        ]
    for name, options, asked in rows:
        seconds, result = best_of(repeats, lambda o=options, a=asked: search(model, encoded, o, a))  # type: ignore[misc, arg-type]
        base = base or seconds
        tokens = sum(len(row[0].tokens) for row in result) / encoded.lengths.sum()
        report(f"{heading} {name}", seconds, audio, base, f"{tokens:.2f} tokens a frame")


def with_model(
    path: str, recording: Path, batch: int, seconds: float, repeats: int, beams: list[int]
) -> None:
    model = load_model(path)
    with open_audio(recording) as stream:
        samples = np.concatenate([block[:, 0] for block in stream.blocks()])
    size = int(seconds * SAMPLE_RATE)
    pieces = np.resize(samples, (batch, size)).astype(np.float32)

    def encode() -> list[list[Hypothesis]]:
        mx.eval(model.encode(list(pieces)).frames)
        return []

    spent, _ = best_of(repeats, encode)
    report("features and encoder", spent, batch * seconds, spent)
    encoded = model.encode(list(pieces))
    measure(model, Frames(encoded.frames, encoded.lengths), "", spent, repeats, beams)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("recording", nargs="?", type=Path)
    parser.add_argument("--random", action="store_true")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--beams", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--ragged", action="store_true")
    chosen = parser.parse_args()
    if chosen.model and chosen.recording:
        with_model(chosen.model, chosen.recording, chosen.batch, chosen.seconds, chosen.repeats, chosen.beams)
    elif chosen.random:
        frames = int(chosen.seconds / FRAME_SECONDS)
        noise = np.random.default_rng(1).normal(0, 1, (chosen.batch, frames, D_MODEL)).astype(np.float32)
        lengths = np.linspace(frames / 4 if chosen.ragged else frames, frames, chosen.batch).astype(np.int32)
        with tempfile.TemporaryDirectory() as folder:
            lm = write_arpa(Path(folder, "random.arpa")) if chosen.fused else None
            for kind in BLANK_BIAS:
                encoded = Frames(mx.array(noise), lengths)
                measure(random_head(kind), encoded, kind, None, chosen.repeats, chosen.beams, lm)
    else:
        parser.error("give a model and a recording, or --random")


if __name__ == "__main__":
    main()
