"""Networks of real sizes with seeded random weights, for benches that need shapes and no sense.

`SMALL` is of the size of parakeet-tdt_ctc-110m, `LARGE` of parakeet-tdt-0.6b-v2. Blank's bias is bisected so
that greedy search emits 0.3 tokens a frame of noise, as it does of speech.
"""

from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from spool.domain.recognition import Hypothesis
from worker.decode.search import search
from worker.models.conformer.config import EncoderConfig, PreprocessorConfig
from worker.models.conformer.encoder import ConformerEncoder
from worker.models.front_ends.log_mel import FeatureExtractor
from worker.models.heads.config import JointConfig, PredictionConfig
from worker.models.heads.transducer import JointNetwork, PredictionNetwork, Transducer
from worker.models.nemo.config import ModelConfig
from worker.models.nemo.model import NemoModel, Network
from worker.models.requests import SearchOptions
from worker.models.tokenizers.pieces import Tokenizer

DURATIONS = (0, 1, 2, 3, 4)
FRAME_SECONDS = 0.08
TOKENS_A_FRAME = 0.3


@dataclass(frozen=True)
class Size:
    """One model's sizes."""

    encoder: EncoderConfig
    hidden: int = 640
    lstm_layers: int = 1
    vocabulary: int = 1024


_SUBSAMPLING: dict[str, Any] = {
    "subsampling": "dw_striding",
    "subsampling_factor": 8,
    "subsampling_conv_channels": 256,
}
SMALL = Size(EncoderConfig(80, 17, 512, n_heads=8, conv_kernel_size=9, **_SUBSAMPLING))
LARGE = Size(
    EncoderConfig(
        128, 24, 1024, n_heads=8, conv_kernel_size=9, use_bias=False, xscaling=False, **_SUBSAMPLING
    ),
    lstm_layers=2,
)
TINY = Size(
    EncoderConfig(80, 2, 64, n_heads=4, conv_kernel_size=9, **_SUBSAMPLING), hidden=64, vocabulary=128
)


@dataclass(frozen=True)
class Frames:
    """Encoder frames as a search takes them."""

    frames: mx.array
    lengths: np.ndarray


@dataclass(frozen=True)
class HeadAlone:
    """A transducer as a search takes a model."""

    transducer: Transducer
    kind: str
    tokenizer: None = None

    @property
    def heads(self) -> dict[str, Transducer]:
        """The one head, by its name."""
        return {self.kind: self.transducer}


def random_encoder(config: EncoderConfig, dtype: mx.Dtype = mx.float32) -> ConformerEncoder:
    """MLX's initial weights, in `dtype`."""
    mx.random.seed(0)
    encoder = ConformerEncoder(config)
    encoder.update(tree_map(lambda value: value.astype(dtype), encoder.parameters()))
    encoder.fold(dtype)
    encoder.eval()
    mx.eval(encoder.parameters())
    return encoder


def random_features(
    batch: int, seconds: float, mels: int, dtype: mx.Dtype = mx.float32
) -> tuple[mx.array, np.ndarray]:
    """Normalised log-mel of noise, [B, T, mels], and lengths."""
    frames = int(seconds * 100)
    features = mx.random.normal((batch, frames, mels), key=mx.random.key(1)).astype(dtype)
    mx.eval(features)
    return features, np.full(batch, frames, np.int32)


def random_frames(batch: int, seconds: float, width: int, dtype: mx.Dtype = mx.float32) -> Frames:
    """Encoder frames of noise."""
    count = max(1, int(seconds / FRAME_SECONDS))
    frames = mx.random.normal((batch, count, width), key=mx.random.key(1)).astype(dtype)
    mx.eval(frames)
    return Frames(frames, np.full(batch, count, np.int32))


def random_head(size: Size, kind: str = "tdt", dtype: mx.Dtype = mx.float32) -> HeadAlone:
    """A transducer of that size. `kind` is tdt or rnnt."""
    rng = np.random.default_rng(0)
    durations = DURATIONS if kind == "tdt" else ()
    hidden, width, labels = size.hidden, size.encoder.d_model, size.vocabulary
    prediction = PredictionNetwork(PredictionConfig(hidden, size.lstm_layers), labels)
    config = JointConfig(hidden, durations=durations)
    joint = JointNetwork(config, width, hidden, labels)

    def draw(spread: float, *shape: int) -> mx.array:
        return mx.array(rng.normal(0, spread, shape).astype(np.float32)).astype(dtype)

    embedding = draw(1.0, labels + 1, hidden)
    prediction.prediction["embed"].weight = mx.where(mx.arange(labels + 1)[:, None] == labels, 0, embedding)
    for layer in prediction.prediction["dec_rnn"].lstm:
        layer.Wx, layer.Wh = draw(hidden**-0.5, 4 * hidden, hidden), draw(hidden**-0.5, 4 * hidden, hidden)
        layer.bias = mx.zeros(4 * hidden, dtype)
    outputs = labels + 1 + len(durations)
    joint.enc.weight, joint.enc.bias = draw(width**-0.5, hidden, width), mx.zeros(hidden, dtype)
    joint.pred.weight, joint.pred.bias = draw(hidden**-0.5, hidden, hidden), mx.zeros(hidden, dtype)
    joint.joint_net[2].weight = draw(3 * hidden**-0.5, outputs, hidden)
    joint.joint_net[2].bias = mx.zeros(outputs, dtype)
    mx.eval(prediction.parameters(), joint.parameters())
    head = HeadAlone(Transducer(prediction, joint, config, labels), kind)
    settle_rate(head, joint, random_frames(4, 4.0, width, dtype), kind)
    return head


def settle_rate(head: HeadAlone, joint: JointNetwork, sample: Frames, kind: str = "tdt") -> None:
    """Bisect blank's bias until greedy search emits `TOKENS_A_FRAME` of the sample."""
    bias = joint.joint_net[2].bias
    outputs, labels, dtype = bias.shape[0], head.transducer.blank, bias.dtype

    def rate(blank: float) -> float:
        joint.joint_net[2].bias = mx.where(mx.arange(outputs) == labels, blank, 0.0).astype(dtype)
        return tokens_a_frame(search(head, sample, SearchOptions(head=kind)), sample)  # type: ignore[arg-type]

    low, high, seen = -5.0, 40.0, []
    for _ in range(10):
        middle = (low + high) / 2
        measured = rate(middle)
        seen.append((abs(measured - TOKENS_A_FRAME), middle))
        low, high = (middle, high) if measured > TOKENS_A_FRAME else (low, middle)
    rate(min(seen)[1])


def random_model(size: Size, sample: np.ndarray, name: str) -> NemoModel:
    """A whole TDT model that speaks of `sample` (16 kHz, [N] float32) as a trained one does of speech; its
    words make no sense."""
    encoder, head = random_encoder(size.encoder), random_head(size)
    transducer = head.transducer
    joint, prediction = transducer._joint, transducer._prediction
    front_end = PreprocessorConfig(window_size=0.025, features=size.encoder.feat_in)
    config = ModelConfig(
        front_end,
        size.encoder,
        PredictionConfig(size.hidden, size.lstm_layers),
        JointConfig(size.hidden, durations=DURATIONS),
        False,
        None,
        {},
    )
    network = Network(config, size.vocabulary)
    network.encoder, network.decoder, network.joint = encoder, prediction, joint
    pieces = Tokenizer([f"\u2581{number}" for number in range(size.vocabulary)])
    features = FeatureExtractor(front_end)
    model = NemoModel(
        config, network, pieces, features, name=name, files={"weights": "0" * 64}, dtype=mx.float32
    )
    encoded = model.encode([sample])
    _spread(joint, encoded.frames)
    settle_rate(head, joint, Frames(encoded.frames, encoded.lengths))
    return model


def _spread(joint: JointNetwork, frames: mx.array) -> None:
    """Make the joint see each dimension of the frames at mean 0 and variance 1.

    Frames of a random encoder hardly differ, so that a search would never leave the first state that
    prefers blank.
    """
    mean, spread = frames.mean(axis=(0, 1)), mx.std(frames, axis=(0, 1)) + 1e-6
    joint.enc.weight = joint.enc.weight / spread
    joint.enc.bias = joint.enc.bias - joint.enc.weight @ mean
    mx.eval(joint.enc.weight, joint.enc.bias)


def tokens_a_frame(found: list[list[Hypothesis]], frames: Frames) -> float:
    """Of the best hypotheses of a search."""
    return sum(len(row[0].tokens) for row in found) / float(frames.lengths.sum())
