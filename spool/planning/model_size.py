"""The sizes of a model that its cost depends on, by a known name or from its configuration.

Reads `config.json` of a model's folder for numbers alone: what the engine refuses is refused by the engine
(`worker.models.nemo.config`). Reads no weights.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from spool.errors import InvalidRequest
from spool.planning.whisper import KNOWN_WHISPERS, WhisperShape, known_whisper, whisper_of_config

FEATURE_FRAMES = 100  # a second
CONFIG_NAME = "config.json"
WENET_NAME = "train.yaml"

Head = Literal["tdt", "rnnt", "ctc", "attention"]


@dataclass(frozen=True, slots=True)
class DecoderShape:
    """An attention decoder: its layers of a width, four times as wide inside, and the tokens that go before
    an answer. `stamped`: it writes a time at both ends of each word. `backwards`: how many of the layers are
    of a decoder that reads from right to left."""

    layers: int
    width: int
    prompt: int = 9
    stamped: bool = False
    backwards: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """A FastConformer and its heads, all sizes in numbers of values.

    `channels` are those of the subsampling convolutions, `window` how many frames local attention sees (None:
    all). `hidden`, `lstm_layers` and `joint` are zero on a model that has a CTC head alone; `durations` is
    how many a TDT head knows, 0 on RNNT. `labels` is without blank. `decoder`: of a model that has an
    attention decoder in place of a head. `readers`: of WeNet's models the decoders that rescore, both
    directions' layers together; their subsampling has whole convolutions without padding, and their
    attention knows a key's position, not its distance.
    """

    name: str
    mels: int
    layers: int
    width: int
    expansion: int = 4
    kernel: int = 9
    factor: int = 8
    channels: int = 256
    heads: int = 8
    window: int | None = None
    hidden: int = 640
    lstm_layers: int = 1
    joint: int = 640
    labels: int = 1024
    durations: int = 5
    decoder: DecoderShape | None = None
    readers: DecoderShape | None = None

    @property
    def subsampling(self) -> tuple[tuple[int, int], ...]:
        """Kernel and stride of the convolutions before the encoder."""
        if self.readers is not None and self.factor == 6:
            return (3, 2), (5, 3)
        return ((3, 2),) * (self.factor.bit_length() - 1)

    @property
    def head(self) -> Head:
        """Which search it allows first."""
        if self.decoder is not None:
            return "attention"
        if not self.hidden:
            return "ctc"
        return "tdt" if self.durations else "rnnt"

    @property
    def reads_forwards(self) -> DecoderShape | None:
        """Of `readers` the decoder that reads from left to right, which is what rescores another model."""
        readers = self.readers
        return None if readers is None else replace(readers, layers=readers.layers - readers.backwards)

    @property
    def encoder_weights(self) -> int:
        """Matrices of the encoder's layers; what is small beside them is left out."""
        square = self.width * self.width
        return self.layers * (4 * self.expansion + 4 + 1 + 3) * square

    @property
    def step_weights(self) -> int:
        """What one step of a search reads: of a transducer the LSTM, and the joint but for the encoder's
        side; of an attention decoder all but the projections of encoder frames."""
        if self.decoder is not None:
            # Four matrices of self attention, two of cross attention, eight of the feed-forward.
            return self.decoder.layers * 14 * self.decoder.width**2 + self.labels * self.decoder.width
        return self.lstm_layers * 8 * self.hidden**2 + self.joint * (self.hidden + self.outputs)

    @property
    def outputs(self) -> int:
        """Logits: labels, blank and durations."""
        return self.labels + 1 + self.durations


KNOWN: Mapping[str, ModelShape] = {
    "parakeet-tdt-0.6b": ModelShape("parakeet-tdt-0.6b", 128, 24, 1024, lstm_layers=2),
    "parakeet-tdt_ctc-110m": ModelShape("parakeet-tdt_ctc-110m", 80, 17, 512),
    "canary-180m-flash": ModelShape(
        "canary-180m-flash", 128, 17, 512, labels=5248, decoder=DecoderShape(4, 1024, stamped=True)
    ),
    "canary-1b-flash": ModelShape(
        "canary-1b-flash", 128, 32, 1024, labels=5248, decoder=DecoderShape(4, 1024, stamped=True)
    ),
    "canary-1b-v2": ModelShape(
        "canary-1b-v2", 128, 32, 1024, labels=16384, decoder=DecoderShape(8, 1024, prompt=10)
    ),
    "canary-1b": ModelShape(
        "canary-1b", 128, 24, 1024, labels=4128, decoder=DecoderShape(24, 1024, prompt=5)
    ),
}
# The first that a name holds; canary-1b is in the names of two others.
_SHORT = {
    "0.6b": "parakeet-tdt-0.6b",
    "110m": "parakeet-tdt_ctc-110m",
    **{name: name for name in KNOWN if name.startswith("canary")},
}


Shape = ModelShape | WhisperShape


LANGUAGE_MODEL = "lstm_language_model"
"""The `model_type` of a folder that only reads other models' hypotheses."""


def read_shape(model: str) -> Shape:
    """The shape of a known model (by any name that holds 0.6b, 110m, a Canary's name, or whisper and a size)
    or of a folder with a `config.json` or WeNet's `train.yaml`.

    Raises InvalidRequest for what is neither, or has no sizes.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        is_wenet = (folder / WENET_NAME).is_file()
        path = folder / (WENET_NAME if is_wenet else CONFIG_NAME)
        try:
            known = folder.resolve().name
            if is_wenet:
                return _wenet_shape(yaml.safe_load(path.read_text(encoding="utf-8")), known)
            tree = json.loads(path.read_text(encoding="utf-8"))
            if tree.get("model_type") == LANGUAGE_MODEL:
                raise InvalidRequest(
                    f"{path} is a language model's, whose time is too little to count: plan without it."
                )
            # CTranslate2's configuration tells no sizes: the folder's name does.
            whisper = whisper_of_config(tree, known) or known_whisper(known)
            return whisper or _shape_of(tree, known)
        except OSError as error:
            raise InvalidRequest(f"{path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, yaml.YAMLError) as error:
            raise InvalidRequest(f"{path} does not tell the model's sizes: {error!r}.") from error
    if whisper := known_whisper(model):
        return whisper
    name = next((known for short, known in _SHORT.items() if short in model.lower()), None)
    if name is None:
        raise InvalidRequest(
            f"The sizes of the model {model!r} are not known: it is no folder with a {CONFIG_NAME} that "
            f"tells them, and none of {', '.join(KNOWN)} or whisper- with {', '.join(KNOWN_WHISPERS)}. "
            f"Name one with --model."
        )
    return KNOWN[name]


def _shape_of(tree: Mapping[str, Any], name: str) -> ModelShape:
    attention = tree.get("transf_decoder")
    encoder, decoder, joint = tree["encoder"], tree.get("decoder", {}), tree.get("joint")
    if attention is None and "decoder" not in tree:
        raise KeyError("decoder")
    local = encoder.get("self_attention_model") == "rel_pos_local_attn"
    shape = ModelShape(
        name=name,
        mels=int(encoder["feat_in"]),
        layers=int(encoder["n_layers"]),
        width=int(encoder["d_model"]),
        expansion=int(encoder.get("ff_expansion_factor", 4)),
        kernel=int(encoder.get("conv_kernel_size", 31)),
        factor=int(encoder.get("subsampling_factor", 4)),
        channels=_channels(encoder),
        heads=int(encoder.get("n_heads", 4)),
        window=sum(encoder["att_context_size"]) + 1 if local else None,
        hidden=int(decoder["prednet"]["pred_hidden"]) if joint else 0,
        lstm_layers=int(decoder["prednet"].get("pred_rnn_layers", 1)) if joint else 0,
        joint=int(joint["jointnet"]["joint_hidden"]) if joint else 0,
        labels=_labels(tree),
        durations=len(tree.get("model_defaults", {}).get("tdt_durations") or ()) if joint else 0,
        decoder=None if attention is None else _decoder(tree, attention["config_dict"]),
    )
    if min(shape.mels, shape.layers, shape.width, shape.expansion, shape.kernel, shape.factor) < 1:
        raise ValueError("a size is below one")
    return shape


def _wenet_shape(tree: Mapping[str, Any], name: str) -> ModelShape:
    encoder, decoder = tree["encoder_conf"], tree.get("decoder_conf") or {}
    width, is_transducer = int(encoder["output_size"]), tree.get("model") == "transducer"
    backwards = int(decoder.get("r_num_blocks", 0))
    layers = int(decoder.get("num_blocks", 6)) + backwards
    predictor = (tree.get("predictor_conf") or {}) if is_transducer else {}
    shape = ModelShape(
        name=name,
        mels=int(tree.get("input_dim", 80)),
        layers=int(encoder["num_blocks"]),
        width=width,
        expansion=int(encoder["linear_units"]) // width,
        kernel=int(encoder.get("cnn_module_kernel", 15)),
        factor={"conv2d": 4, "conv2d6": 6, "conv2d8": 8}[encoder.get("input_layer", "conv2d")],
        channels=width,
        heads=int(encoder.get("attention_heads", 4)),
        hidden=int(predictor.get("hidden_size", 0)),
        lstm_layers=int(predictor.get("num_layers", 1)) if is_transducer else 0,
        joint=int(tree["joint_conf"]["join_dim"]) if is_transducer else 0,
        labels=int(tree["output_dim"]) - 1,
        durations=0,
        readers=DecoderShape(layers, width, prompt=1, backwards=backwards),
    )
    if min(shape.mels, shape.layers, shape.width, shape.expansion, shape.kernel) < 1:
        raise ValueError("a size is below one")
    return shape


def _decoder(tree: Mapping[str, Any], config: Mapping[str, Any]) -> DecoderShape:
    """Canary's: the flash models have their special tokens in a tokenizer of its own, and write stamps."""
    first = tree.get("prompt_format") == "canary"
    is_aggregate = (tree.get("tokenizer") or {}).get("type") == "agg"
    return DecoderShape(
        int(config["num_layers"]),
        int(config["hidden_size"]),
        prompt=5 if first else 9 if is_aggregate else 10,
        stamped=is_aggregate and not first,
    )


def _channels(encoder: Mapping[str, Any]) -> int:
    given = int(encoder.get("subsampling_conv_channels", -1))
    return given if given > 0 else int(encoder["d_model"])


def _labels(tree: Mapping[str, Any]) -> int:
    for section, key in (
        ("head", "num_classes"),
        ("decoder", "vocab_size"),
        ("joint", "num_classes"),
        ("decoder", "num_classes"),
    ):
        size = (tree.get(section) or {}).get(key)
        if isinstance(size, int) and size > 0:
            return size
    words = (tree.get("joint") or tree.get("decoder") or {}).get("vocabulary")
    return len(words) if words else 1024
